"""How many queues have files open or mapped is bounded, and what was let go comes back."""

import os
import tempfile

import pytest
from nsqfast._ext.dev.probes import count_mapped, let_pass, limit_mapped

from support.core import SECOND_NS, make_registry

QUEUES, OPEN_MAX = 40, 8


@pytest.fixture
def made(tmp_path):
    """registry(): each in the place of the one before."""
    found = []

    def make():
        found.append(make_registry(tmp_path, mem_queue_size=0))
        found[-1].durability.store.syncer.open_max = OPEN_MAX
        return found[-1]

    yield make
    for registry in found:
        registry.topics.close()


def data_files():
    """Those that this process has open."""
    found = []
    for name in os.listdir("/proc/self/fd"):
        try:
            found.append(os.readlink(f"/proc/self/fd/{name}"))
        except FileNotFoundError:
            continue
    return [path for path in found if ".diskqueue." in path]


def publish(registry, body):
    for number in range(QUEUES):
        registry.topics.ensure(f"t{number}").put(body)
        assert len(registry.durability.store.syncer.open_queues) <= OPEN_MAX
        assert len(data_files()) <= 4 * OPEN_MAX


def test_only_so_many_are_open(made):
    registry = made()
    for body in (b"1", b"2", b"3"):
        publish(registry, body)
    assert [topic.backend_depth for topic in registry.topics.sorted()] == [3] * QUEUES


def drafts(folder):
    return list(folder.glob("*.meta.dat.1.tmp"))


def depth_of(path):
    return path.read_text().splitlines()[0]


def end_syncs(registry):
    """What was asked for is done when this returns."""
    registry.turn.end()
    with tempfile.TemporaryFile() as file:
        registry.durability.store.syncer.wait(
            registry.durability.store.syncer.request_fd(file.fileno())
        )
    registry.turn.on_synced()


def test_some_are_closed_before_somebody_has_to_wait_for_it(made):
    registry = made()
    registry.durability.store.syncer.open_max = 32
    for number in range(QUEUES):
        registry.topics.ensure(f"t{number}").put(b"x")
        assert len(registry.durability.store.syncer.open_queues) <= 24
        end_syncs(registry)


def test_positions_are_drafted_as_fast_as_the_disk_takes_them(made, tmp_path):
    registry = made()
    registry.durability.store.syncer.open_max = 2 * QUEUES
    for number in range(QUEUES):
        registry.topics.ensure(f"t{number}").put(b"x")
    end_syncs(registry)
    registry.durability.store.syncer.open_max = OPEN_MAX
    now_ns = let_pass(0) + 60 * SECOND_NS
    registry.timers.run(now_ns)
    assert 0 < len(drafts(tmp_path)) <= OPEN_MAX
    registry.timers.run(now_ns + SECOND_NS)
    assert 0 < len(drafts(tmp_path)) <= OPEN_MAX  # the disk was not asked yet
    while {depth_of(path) for path in tmp_path.glob("*.meta.dat")} != {"1"}:
        end_syncs(registry)
        now_ns += SECOND_NS
        registry.timers.run(now_ns)
        assert len(drafts(tmp_path)) <= OPEN_MAX


def test_almost_none_where_descriptors_are_short(made):
    registry = made()
    registry.durability.store.syncer.open_max, registry.durability.store.syncer.short_from = (
        QUEUES,
        0,
    )
    before = len(data_files())
    for body in (b"1", b"2"):
        for number in range(QUEUES):
            registry.topics.ensure(f"t{number}").put(body)
            assert len(registry.durability.store.syncer.open_queues) <= 2
            assert len(data_files()) - before <= 6
    assert [topic.backend_depth for topic in registry.topics.sorted()] == [2] * QUEUES


def test_a_start_opens_none(made):
    publish(made(), b"x")
    before = len(data_files())
    registry = made()  # the first one is killed, so to speak
    for number in range(QUEUES):
        assert registry.topics.ensure(f"t{number}").backend_depth == 1
    assert len(data_files()) == before


def test_a_start_maps_none(made):
    registry = made()
    publish(registry, b"x")
    registry.topics.close()
    before = count_mapped()
    registry = made()
    for number in range(QUEUES):
        assert registry.topics.ensure(f"t{number}").backend_depth == 1
    assert count_mapped() == before


def test_only_so_many_are_mapped(made):
    """Those that were let go are mapped again when they change, and a kill takes nothing of what they say."""
    limit_mapped(3)
    try:
        registry = made()
        for body in (b"1", b"2", b"3"):
            publish(registry, body)
            assert count_mapped() <= 4
        registry = made()
        assert [registry.topics.ensure(f"t{number}").backend_depth for number in range(QUEUES)] == [
            3
        ] * QUEUES
        publish(registry, b"4")
        assert count_mapped() <= 4
        registry = made()
        assert [registry.topics.ensure(f"t{number}").backend_depth for number in range(QUEUES)] == [
            4
        ] * QUEUES
    finally:
        limit_mapped(0)


def test_closed_files_were_synced(made):
    registry = made()
    publish(registry, b"x")
    synced = registry.durability.store.figures()[0]
    assert synced >= QUEUES - OPEN_MAX


def test_a_closed_file_that_somebody_removed(made, tmp_path):
    """What is published afterwards is there after a kill."""
    registry = made()
    publish(registry, b"x")
    assert registry.topics.ensure("t0") not in registry.durability.store.syncer.open_queues
    (tmp_path / "t0.diskqueue.000000.dat").unlink()
    registry.topics.ensure("t0").put(b"y")
    assert (tmp_path / "t0.diskqueue.000001.dat").stat().st_size > 0
    assert made().topics.ensure("t0").backend_depth == 1
