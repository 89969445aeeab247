"""What storage does on the loop ends after a part: drafts, metadata, cursors and removed files are counted per turn."""

import itertools
import os
import shutil

import pytest
from nsqfast._ext.core.clock import now
from nsqfast._ext.dev.probes import fix_parts, let_pass

from ext.test_durable import pub
from support.core import Peer
from support.core import make_registry as make_whole

COUNT = 20
PERIOD_NS = 2_000_000_000


def make_registry(data_path, **flags):
    """Parts that end after one file."""
    registry = make_whole(data_path, **{"mem_queue_size": 0} | flags)
    fix_parts(1)
    return registry


def publish(registry, body=b"x", count=COUNT):
    """A message for each of so many topics."""
    peer = Peer(registry)
    for number in range(count):
        peer.send(pub(b"t%d" % number, body))
    registry.turn.end()
    peer.close()


def turn(registry):
    registry.timers.run(now()[1] + 2)
    registry.turn.end()


def end_batch(registry):
    """What the end of all fsyncs brings in its turn."""
    for _ in range(2):  # one may be on its way, and ours starts when that one is done
        registry.durability.store.syncer.start_batch()
        registry.durability.store.syncer.wait(registry.durability.store.syncer.open_ticket - 1)
    registry.turn.on_synced()


def run_until(registry, is_done):
    """However long the thread takes to free what it was given."""
    turns = 0
    while not is_done():
        turn(registry)
        turns += 1
        assert turns < 1_000_000


def files(folder, pattern):
    return len(list(folder.glob(pattern)))


def draft_all(registry, folder):
    let_pass(PERIOD_NS)
    while files(folder, "*.meta.dat.1.tmp") < COUNT:
        registry.timers.run(now()[1] + 2)


def depths(folder):
    """Of all queues, as their metadata has it."""
    return [int(path.read_text().split()[0]) for path in sorted(folder.glob("*.meta.dat"))]


def test_positions_are_drafted_and_installed_a_few_in_a_turn(tmp_path):
    registry = make_registry(tmp_path)
    publish(registry)
    end_batch(registry)
    assert depths(tmp_path) == [0] * COUNT
    let_pass(PERIOD_NS)
    before, turns = 0, 0
    while before < COUNT:
        registry.timers.run(now()[1] + 2)
        drafts = files(tmp_path, "*.meta.dat.1.tmp")
        assert drafts - before == 1
        before, turns = drafts, turns + 1
    assert turns == COUNT
    end_batch(registry)
    assert sum(depths(tmp_path)) == 1
    done = [1]
    while done[-1] < COUNT:
        turn(registry)
        done.append(sum(depths(tmp_path)))
    assert all(after - before <= 1 for before, after in itertools.pairwise(done))
    registry.topics.close()


def test_what_becomes_dirty_meanwhile_waits_for_the_next_tick(tmp_path):
    registry = make_registry(tmp_path)
    publish(registry)
    draft_all(registry, tmp_path)
    publish(registry)
    end_batch(registry)
    run_until(registry, lambda: files(tmp_path, "*.tmp") == 0)
    assert depths(tmp_path) == [1] * COUNT
    draft_all(registry, tmp_path)
    end_batch(registry)
    run_until(registry, lambda: files(tmp_path, "*.tmp") == 0)
    assert depths(tmp_path) == [2] * COUNT
    registry.topics.close()


def test_a_failed_batch_is_not_believed_and_the_one_before_it_is(tmp_path):
    registry = make_registry(tmp_path)
    publish(registry)
    end_batch(registry)
    draft_all(registry, tmp_path)
    end_batch(registry)
    assert sum(depths(tmp_path)) == 1
    # Others follow in a batch that fails, before the first is through.
    fix_parts(1 << 60)
    peer = Peer(registry)
    peer.send(b"".join(pub(b"u%d" % number, b"x") for number in range(COUNT)))
    registry.turn.end()
    let_pass(PERIOD_NS)
    reader, writer = os.pipe()
    registry.durability.store.syncer.request_fd(writer)
    os.close(reader)
    os.close(writer)
    fix_parts(1)
    while files(tmp_path, "u*.meta.dat.1.tmp") < COUNT:
        registry.timers.run(now()[1] + 2)
    end_batch(registry)
    run_until(registry, lambda: files(tmp_path, "*.tmp") == 0)
    assert sum(depths(tmp_path)) == COUNT
    assert [int(path.read_text().split()[0]) for path in tmp_path.glob("u*.meta.dat")] == [
        0
    ] * COUNT
    peer.close()
    registry.topics.close()


def test_a_stop_in_the_middle_of_it(tmp_path):
    registry = make_registry(tmp_path)
    publish(registry)
    draft_all(registry, tmp_path)
    end_batch(registry)
    publish(registry)
    registry.topics.close()
    assert depths(tmp_path) == [2] * COUNT
    assert files(tmp_path, "*.tmp") == 0


def test_what_is_emptied_before_its_positions_are_installed(tmp_path):
    registry = make_registry(tmp_path)
    publish(registry)
    draft_all(registry, tmp_path)
    end_batch(registry)
    for topic in registry.topics.sorted():
        topic.empty()
    for _ in range(3 * COUNT):
        turn(registry)
    assert depths(tmp_path) == [0] * COUNT
    registry.topics.close()


def test_what_is_deleted_and_made_again_before_its_positions_are_installed(tmp_path):
    registry = make_registry(tmp_path)
    publish(registry)
    draft_all(registry, tmp_path)
    end_batch(registry)
    for number in range(COUNT):
        registry.topics.delete(f"t{number}")
    publish(registry, b"new")
    publish(registry, b"new")
    for _ in range(12 * COUNT):
        turn(registry)
    assert files(tmp_path, "*.000000.dat") == COUNT
    assert [topic.depth for topic in registry.topics.sorted()] == [2] * COUNT
    registry.topics.close()
    assert depths(tmp_path) == [2] * COUNT


def test_cursors_are_kept_a_few_in_a_turn(tmp_path):
    """Those that waited for the copies of what was requeued."""
    registry = make_registry(tmp_path, max_bytes_per_file=100)
    fix_parts(1 << 60)
    peers = []
    for number in range(COUNT):
        peer = Peer(registry)
        peers.append(peer)
        peer.subscribe(b"t%d" % number, b"c", 1)
        peer.send(pub(b"t%d" % number, b"x" * 50))
        _, data = next(item for item in peer.receive() if item[0] == 2)
        peer.send(b"RDY 0\nREQ " + data[10:26] + b" 0\n")
    registry.turn.end()
    assert files(tmp_path, "*:c.*.000000.dat") == COUNT
    let_pass(PERIOD_NS)
    registry.timers.run(now()[1])
    fix_parts(1)
    end_batch(registry)
    left = [files(tmp_path, "*:c.*.000000.dat")]
    while left[-1]:
        turn(registry)
        left.append(files(tmp_path, "*:c.*.000000.dat"))
    assert all(before - after <= 1 for before, after in itertools.pairwise(left))
    for peer in peers:
        peer.close()
    registry.topics.close()


def make_files(registry, count=COUNT):
    """A queue of so many."""
    peer = Peer(registry)
    for number in range(count):
        peer.send(pub(b"t", b"%070d" % number))
    registry.turn.end()
    peer.close()
    return registry.topics.ensure("t")


@pytest.mark.parametrize("is_deleted", [False, True])
def test_files_are_removed_a_few_in_a_turn(tmp_path, is_deleted):
    registry = make_registry(tmp_path, max_bytes_per_file=100)
    topic = make_files(registry)
    done = []
    if is_deleted:
        registry.topics.delete("t")
    else:
        topic.empty()
    registry.topics.when_removed(lambda: done.append(files(tmp_path, "*.0000??.dat")))
    left = [files(tmp_path, "*.0000??.dat")]
    assert left == [COUNT]
    while not done:
        turn(registry)
        left.append(files(tmp_path, "*.0000??.dat"))
    assert all(before - after <= 1 for before, after in itertools.pairwise(left))
    assert done == [0]
    if is_deleted:
        assert not list(tmp_path.iterdir())
    registry.topics.when_removed(lambda: done.append(-1))  # nothing has to be waited for
    assert done == [0, -1]
    registry.topics.close()


def test_a_queue_made_again_keeps_its_new_files(tmp_path):
    """What is left of the old one goes before it is opened, and nothing of it comes again."""
    registry = make_registry(tmp_path, max_bytes_per_file=100)
    make_files(registry)
    registry.topics.delete("t")
    turn(registry)
    assert files(tmp_path, "t.*.0000??.dat") == COUNT - 1
    topic = make_files(registry, 3)
    assert files(tmp_path, "t.*.0000??.dat") == 3
    for _ in range(20 * COUNT):
        turn(registry)
    assert files(tmp_path, "t.*.0000??.dat") == 3
    assert topic.depth == 3
    registry.topics.close()


def test_a_kill_before_the_files_of_an_emptied_queue_are_gone(tmp_path):
    (tmp_path / "data").mkdir()
    registry = make_registry(tmp_path / "data", max_bytes_per_file=100)
    topic = make_files(registry)
    topic.empty()
    turn(registry)
    shutil.copytree(tmp_path / "data", tmp_path / "killed")
    registry.topics.close()
    registry = make_registry(tmp_path / "killed", max_bytes_per_file=100)
    assert registry.topics.ensure("t").depth == 0
    assert files(tmp_path / "killed", "t.*.0000??.dat") == 0
    registry.topics.close()


def test_what_the_thread_has_no_room_for_is_not_freed_by_the_loop(tmp_path, monkeypatch):
    registry = make_registry(tmp_path, max_bytes_per_file=100)
    make_files(registry, 60)
    fix_parts(1 << 60)
    closed, done, close = [], [], os.close

    def note(fd):
        closed.append(os.readlink(f"/proc/self/fd/{fd}"))
        close(fd)

    monkeypatch.setattr(os, "close", note)
    registry.topics.delete("t")
    registry.topics.when_removed(lambda: done.append(True))
    run_until(registry, lambda: done)
    assert [path for path in closed if path.endswith("(deleted)")] == []
    registry.topics.close()


def test_a_stop_removes_what_is_left(tmp_path):
    registry = make_registry(tmp_path, max_bytes_per_file=100)
    make_files(registry)
    registry.topics.delete("t")
    registry.topics.close()
    assert not list(tmp_path.iterdir())
