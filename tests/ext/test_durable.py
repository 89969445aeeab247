"""An OK that promises a message on disk waits for the commit of its turn."""

import contextlib
import os
import resource
import signal

import pytest
from nsqfast._ext.storage.diskqueue.segment import segment_numbers

from support.core import Peer, end_commit, make_registry, sync

OK = (0, b"OK")


def pub(topic, body):
    return b"PUB %s\n" % topic + len(body).to_bytes(4, "big") + body


def mpub(topic, *bodies):
    inner = len(bodies).to_bytes(4, "big")
    inner += b"".join(len(body).to_bytes(4, "big") + body for body in bodies)
    return b"MPUB %s\n" % topic + len(inner).to_bytes(4, "big") + inner


@pytest.fixture
def registry(tmp_path):
    registry = make_registry(tmp_path, durable="always")
    yield registry
    registry.topics.close()


@contextlib.contextmanager
def no_room():
    """Files may not grow."""
    before = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        signal.signal(signal.SIGXFSZ, before)


@pytest.mark.parametrize("is_pair", [False, True], ids=["memory", "pair"])
@pytest.mark.parametrize("mode", ["off", "interval", "always"])
def test_the_pair_of_flags_means_always(tmp_path, is_pair, mode):
    pair = {"mem_queue_size": 0, "sync_every": 1} if is_pair else {"mem_queue_size": 7}
    log = {"durable": mode, "durable_interval_ns": 5, "commit_log_size": 32 << 20}
    registry = make_registry(tmp_path, **pair, **log)
    settings = registry.settings
    assert settings.has_log == (is_pair or mode != "off")
    assert settings.is_interval == (mode == "interval")
    assert settings.mem_queue_size == (7 if not is_pair else 10_000 if mode == "off" else 0)
    assert (settings.durable_interval_ns, settings.commit_log_size) == (5, 32 << 20)
    registry.topics.close()


def size_on_disk(tmp_path, name):
    prefix = str(tmp_path / f"{name}.diskqueue.")
    return sum(os.path.getsize(f"{prefix}{n:06d}.dat") for n in segment_numbers(prefix))


def test_publishes_of_one_turn_share_a_commit(registry):
    registry.topics.ensure("t").channel("c")
    sync(registry)
    peers = [Peer(registry) for _ in range(3)]
    for number, peer in enumerate(peers):
        peer.send(pub(b"t", b"%d" % number) + mpub(b"t", b"x", b"y"))
    assert registry.topics.ensure("t").find_channel("c").depth == 9
    registry.turn.end()
    assert [peer.decode_all() for peer in peers] == [[], [], []]
    end_commit(registry)
    registry.turn.end()
    assert [peer.decode_all() for peer in peers] == [[OK, OK]] * 3


def test_a_commit_that_ends_in_the_turn_does_not_answer_for_it(registry):
    registry.topics.ensure("t").channel("c")
    sync(registry)
    first, second = Peer(registry), Peer(registry)
    first.send(pub(b"t", b"1"))
    registry.turn.end()
    second.send(pub(b"t", b"2"))
    end_commit(registry)  # of the first; starts that of the second
    registry.turn.end()
    assert (first.decode_all(), second.decode_all()) == ([OK], [])
    assert sync(registry, second) == [[OK]]


def test_a_consumer_gets_all_in_order(registry):
    consumer, peer = Peer(registry), Peer(registry)
    consumer.subscribe(b"t", b"c", 100)
    assert consumer.receive() == [OK]
    for number in range(10):
        peer.send(pub(b"t", b"%d" % number))
    [frames] = sync(registry, consumer)
    assert [data[26:] for _, data in frames] == [b"%d" % number for number in range(10)]


def test_a_channel_that_comes_in_the_same_turn_gets_all_in_order(registry):
    peer, consumer = Peer(registry), Peer(registry)
    peer.send(pub(b"t", b"1") + pub(b"t", b"2"))
    consumer.subscribe(b"t", b"c", 100)
    peer.send(pub(b"t", b"3"))
    got = []
    while len(got) < 4:
        [frames] = sync(registry, consumer)
        registry.timers.run(1 << 62)
        got += [data[26:] or data for _, data in frames]
    assert got == [b"OK", b"1", b"2", b"3"]


def test_a_write_that_fails_refuses_its_publish(tmp_path):
    """What came before it in the turn stays."""
    registry = make_registry(tmp_path, mem_queue_size=0)
    registry.topics.ensure("t").channel("c")
    peers = [Peer(registry), Peer(registry)]
    settled = Peer(registry)
    settled.send(pub(b"t", b"before"))
    with no_room():
        peers[0].send(pub(b"t", b"1" * 100))
        peers[1].send(mpub(b"t", b"2", b"3"))
    registry.turn.end()
    assert registry.durability.health().startswith("NOK")
    assert settled.decode_all() == [OK]
    for peer, command in zip(peers, (b"PUB", b"MPUB"), strict=True):
        ((kind, text),) = peer.decode_all()
        assert kind == 1
        assert text.startswith(b"E_%s_FAILED %s failed write " % (command, command))
        assert text.endswith(b"file too large")
    assert registry.topics.ensure("t").find_channel("c").depth == 1
    late = Peer(registry)
    late.send(pub(b"t", b"after"))
    assert sync(registry, late) == [[OK]]
    assert registry.topics.ensure("t").find_channel("c").depth == 2
    assert registry.durability.health() == "OK"
    registry.topics.close()


def test_emptying_and_deleting_drop_what_is_not_committed(registry):
    peer = Peer(registry)
    registry.topics.ensure("t").channel("c")
    peer.send(pub(b"t", b"1"))
    registry.topics.ensure("t").find_channel("c").empty()
    assert registry.topics.ensure("t").find_channel("c").depth == 0
    peer.send(pub(b"t", b"2"))
    registry.topics.ensure("t").delete_channel("c")
    peer.send(pub(b"u", b"3"))
    registry.topics.delete("u")
    assert sync(registry, peer) == [[OK] * 3]


def test_a_stop_keeps_what_is_not_committed(tmp_path):
    registry = make_registry(tmp_path, durable="always")
    registry.topics.ensure("t").channel("c")
    Peer(registry).send(pub(b"t", b"1") + pub(b"v", b"2"))
    registry.topics.close()
    again = make_registry(tmp_path, durable="always")
    assert again.topics.ensure("v").depth == 1
    assert again.topics.ensure("t").channel("c").depth == 1
    again.topics.close()


def test_answers_that_wait_leave_before_a_line_without_end_ends_the_connection(registry):
    peer = Peer(registry)
    peer.send(pub(b"t", b"1") + b"x" * 20_000)
    assert not peer.transport.has_eof
    assert sync(registry, peer) == [[OK]]
    assert peer.transport.has_eof
    assert registry.turn.fault_count == 0
