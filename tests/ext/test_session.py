"""Every command on one session: whole, byte by byte, with bytes behind it; and what a state does not allow."""

import json
import os

import pytest
from nsqfast._ext.dev.probes import let_pass, pool_slabs, used_bytes
from nsqfast._ext.protocol.v2 import FrameDecoder

from support.core import SECOND_NS, Peer, counted_bytes, end_commit, make_registry

MS = 1_000_000
DEBUG = any(os.environ.get(f"NSQFAST_{name}", "0") != "0" for name in ("DEBUG", "SANITIZE"))
OK = (0, b"OK")


def body(data):
    return len(data).to_bytes(4, "big") + data


def mpub(*bodies):
    return body(len(bodies).to_bytes(4, "big") + b"".join(map(body, bodies)))


ABSENT = b"0" * 16
COMMANDS = {
    "NOP": (b"NOP\n", []),
    "IDENTIFY": (b"IDENTIFY\n" + body(b'{"client_id":"x"}'), [OK]),
    "IDENTIFY garbage": (
        b"IDENTIFY\n" + body(b"{"),
        [(1, b"E_BAD_BODY IDENTIFY failed to decode JSON body")],
    ),
    "AUTH": (b"AUTH\n" + body(b"secret"), [(1, b"E_AUTH_DISABLED AUTH disabled")]),
    "PUB": (b"PUB t\n" + body(b"hello"), [OK]),
    "PUB empty": (
        b"PUB t\n" + body(b""),
        [(1, b"E_BAD_MESSAGE PUB invalid message body size 0")],
    ),
    "PUB bad name": (
        b"PUB t:t\n" + body(b"x"),
        [(1, b'E_BAD_TOPIC PUB topic name "t:t" is not valid')],
    ),
    "DPUB": (b"DPUB t 10\n" + body(b"hello"), [OK]),
    "DPUB bad delay": (
        b"DPUB t x\n" + body(b"hello"),
        [(1, b"E_INVALID DPUB could not parse timeout x")],
    ),
    "MPUB": (b"MPUB t\n" + mpub(b"a", b"bb", b"c" * 300), [OK]),
    "MPUB bad message": (
        b"MPUB t\n" + mpub(b"a", b""),
        [(1, b"E_BAD_MESSAGE MPUB invalid message(1) body size 0")],
    ),
    "SUB": (b"SUB t c\n", [OK]),
    "RDY": (b"SUB t c\nRDY 5\n", [OK]),
    "RDY too much": (
        b"SUB t c\nRDY 2501\n",
        [OK, (1, b"E_INVALID RDY count 2501 out of range 0-2500")],
    ),
    "FIN": (
        b"SUB t c\nFIN %s\n" % ABSENT,
        [OK, (1, b"E_FIN_FAILED FIN %s failed ID not in flight" % ABSENT)],
    ),
    "REQ": (
        b"SUB t c\nREQ %s 0\n" % ABSENT,
        [OK, (1, b"E_REQ_FAILED REQ %s failed ID not in flight" % ABSENT)],
    ),
    "TOUCH": (
        b"SUB t c\nTOUCH %s\n" % ABSENT,
        [OK, (1, b"E_TOUCH_FAILED TOUCH %s failed ID not in flight" % ABSENT)],
    ),
    "CLS": (b"SUB t c\nCLS\n", [OK, (0, b"CLOSE_WAIT")]),
    "unknown": (b"ASDF\n", [(1, b"E_INVALID invalid command ASDF")]),
    "bad id": (b"SUB t c\nFIN short\n", [OK, (1, b"E_INVALID invalid message ID")]),
}
FATAL = {name for name, (_, frames) in COMMANDS.items() if frames and frames[-1][0] == 1}
FATAL -= {"FIN", "REQ", "TOUCH"}


@pytest.fixture
def registry(tmp_path):
    registry = make_registry(tmp_path)
    yield registry
    registry.topics.close()


@pytest.mark.parametrize("name", COMMANDS)
@pytest.mark.parametrize("pieces", ["whole", "bytes", "trailing"])
def test_command(registry, name, pieces):
    stream, frames = COMMANDS[name]
    peer = Peer(registry, magic=b"")
    stream = b"  V2" + stream
    if pieces == "bytes":
        for i in range(len(stream)):
            peer.send(stream[i : i + 1])
    elif pieces == "trailing":
        peer.send(stream + b"NOP\nPUB t\n\x00\x00")
    else:
        peer.send(stream)
    assert peer.receive() == frames
    assert peer.transport.has_eof is (name in FATAL)
    assert not peer.transport.is_aborted


@pytest.mark.parametrize("name", ["PUB", "DPUB", "MPUB", "IDENTIFY"])
def test_a_command_that_ends_too_early(registry, name):
    """At each length something is missing, and at the end of the stream it is named."""
    stream, _ = COMMANDS[name]
    head = stream.index(b"\n") + 1
    for size in range(head, len(stream)):
        peer = Peer(registry)
        peer.send(stream[:size])
        assert peer.receive() == []
        peer.connection.eof_received()
        ((kind, error),) = peer.decode_all()
        assert kind == 1
        assert error.startswith(b"E_BAD_"), error
        assert b"failed to read" in error
    assert all(topic.depth == 0 for topic in registry.topics.sorted())


def test_half_a_line_at_the_end_says_nothing(registry):
    peer = Peer(registry)
    peer.send(b"PUB t")
    peer.connection.eof_received()
    assert peer.decode_all() == []
    assert peer.transport.is_closing


@pytest.mark.parametrize("magic", [b"  V1", b"GET ", b"\x00\x00\x00\x00"])
def test_bad_magic(registry, magic):
    peer = Peer(registry, magic)
    assert peer.receive() == [(1, b"E_BAD_PROTOCOL")]
    assert peer.transport.has_eof


def test_a_peer_without_magic_is_dropped(registry):
    peer = Peer(registry, magic=b"  V")
    registry.timers.run(let_pass(9 * SECOND_NS))
    assert not peer.transport.is_aborted
    registry.timers.run(let_pass(SECOND_NS + 1000))
    assert_dropped_a_turn_later(registry, peer)


def test_a_line_without_end_is_dropped_and_costs_nothing(registry):
    peer = Peer(registry)
    for _ in range(40):
        peer.send(b"x" * 1000)
    assert peer.receive() == []
    assert peer.transport.has_eof
    # The input was thrown away exactly once: the buffer is as good as new.
    assert peer.connection.get_buffer(0).waiting() == b""
    peer.send(b"y" * 100_000)
    assert peer.connection.get_buffer(0).waiting() == b""


def test_a_fatal_error_ends_the_connection_though_the_peer_goes_on(registry):
    peer = Peer(registry)
    peer.send(b"ASDF\n")
    assert peer.receive() == [(1, b"E_INVALID invalid command ASDF")]
    peer.send(b"PUB t\n" + body(b"too late"))
    assert registry.topics.find("t") is None
    registry.timers.run(let_pass(2 * SECOND_NS))
    assert peer.transport.is_aborted


def test_heartbeats_and_silence(registry):
    peer = Peer(registry)
    peer.send(b"IDENTIFY\n" + body(b'{"heartbeat_interval":1000}'))
    assert peer.receive() == [OK]
    registry.timers.run(let_pass(SECOND_NS + 1000))
    assert peer.receive() == [(0, b"_heartbeat_")]
    peer.send(b"NOP\n")
    registry.timers.run(let_pass(SECOND_NS))
    assert peer.receive() == [(0, b"_heartbeat_")]
    registry.timers.run(let_pass(SECOND_NS + 1000))
    assert peer.receive() == [(0, b"_heartbeat_")]
    assert_dropped_a_turn_later(registry, peer)


def assert_dropped_a_turn_later(registry, peer):
    """Time is up; what may wait in the socket is read before anything else.

    The real clock goes on as well, so no step is near a limit.
    """
    assert not peer.transport.is_aborted
    registry.timers.run(let_pass(SECOND_NS // 2))
    assert peer.transport.is_aborted


@pytest.mark.parametrize("late_s", [1, 60])
def test_a_loop_that_stood_still_listens_for_as_long_again(registry, late_s):
    """But for no longer than a heartbeat, and once."""
    peer, silent = Peer(registry), Peer(registry)
    for each in (peer, silent):
        each.send(b"IDENTIFY\n" + body(b'{"heartbeat_interval":1000}'))
    registry.timers.run(let_pass((2 + late_s) * SECOND_NS))
    assert peer.receive() == [OK, (0, b"_heartbeat_")]
    registry.timers.run(let_pass(SECOND_NS // 2))
    assert not silent.transport.is_aborted
    peer.send(b"NOP\n")
    registry.timers.run(let_pass(SECOND_NS))
    assert silent.transport.is_aborted
    assert not peer.transport.is_aborted
    registry.timers.run(let_pass(SECOND_NS + MS))
    assert_dropped_a_turn_later(registry, peer)


def test_a_consumer_that_does_not_read_is_dropped(registry):
    """Go keeps it as a zombie (spec nsqd-tcp §9)."""
    peer = Peer(registry)
    peer.send(b"IDENTIFY\n" + body(b'{"heartbeat_interval":1000}') + b"SUB t c\nRDY 1\n")
    peer.receive()
    peer.connection.pause_writing()
    registry.timers.run(let_pass(SECOND_NS // 2))
    peer.send(b"NOP\n")
    registry.timers.run(let_pass(SECOND_NS // 2 + 1000))
    assert_dropped_a_turn_later(registry, peer)
    assert registry.topics.find("t").find_channel("c").consumers() == []


def test_sampling_delivers_its_share(registry):
    registry.topics.ensure("t").channel("c")
    producer, consumer = Peer(registry), Peer(registry)
    consumer.send(b"IDENTIFY\n" + body(b'{"sample_rate":25}'))
    consumer.subscribe(b"t", b"c", 2500)
    producer.send(b"MPUB t\n" + mpub(*[b"x"] * 8000))
    got = 0
    while messages := [data[10:26] for kind, data in consumer.receive() if kind == 2]:
        got += len(messages)
        consumer.send(b"".join(b"FIN %s\n" % message_id for message_id in messages))
    # Four standard deviations around 2000.
    assert 1845 < got < 2155
    channel = registry.topics.ensure("t").channel("c")
    assert (channel.depth, channel.in_flight_count) == (0, 0)


def test_negotiation_answer(registry):
    peer = Peer(registry)
    asked = {"feature_negotiation": True, "tls_v1": True, "snappy": True, "msg_timeout": 2000}
    peer.send(b"IDENTIFY\n" + body(json.dumps(asked).encode()))
    ((kind, data),) = peer.receive()
    answer = json.loads(data)
    assert kind == 0
    assert answer["msg_timeout"] == 2000
    assert answer["snappy"] is True
    assert not any(answer[name] for name in ("tls_v1", "deflate", "auth_required"))


def test_publish_counts_follow_each_topic(registry):
    peer = Peer(registry)
    for topic in (b"a", b"b", b"a", b"a"):
        peer.send(b"PUB %s\n" % topic + body(b"x"))
    peer.send(b"MPUB b\n" + mpub(b"x", b"y"))
    assert peer.session.pub_counts() == {"a": 3, "b": 3}


@pytest.mark.parametrize("piece", [1, 7, 1000, 10**6])
def test_a_large_mpub_in_pieces(registry, piece):
    stream = b"MPUB t\n" + mpub(*[b"%d" % n * 40 for n in range(2000)])
    peer = Peer(registry)
    for start in range(0, len(stream), piece):
        peer.send(stream[start : start + piece])
    assert peer.receive() == [OK]
    assert registry.topics.ensure("t").depth == 2000


@pytest.mark.disk
def test_a_durable_ok_waits_for_its_commit(tmp_path):
    registry = make_registry(tmp_path, durable="always")
    peer = Peer(registry)
    peer.send(b"PUB t\n" + body(b"1") + b"PUB t\n" + body(b"2") + b"SUB t c\n")
    # The turn's end starts the commit; nothing left before it, and the order holds.
    assert peer.receive() == []
    decoder = FrameDecoder()
    frames = []
    while len(frames) < 3:
        end_commit(registry)
        registry.turn.end()
        written, peer.transport.written = peer.transport.written, []
        frames += decoder.feed(b"".join(written))
    assert frames == [OK] * 3
    registry.topics.close()


@pytest.mark.skipif(DEBUG, reason="the debug builds take every message from malloc")
def test_memory_of_a_drained_queue_goes_back_little_by_little(tmp_path):
    registry = make_registry(tmp_path, mem_queue_size=100_000)
    # 1 KiB each, and that many: 59 slabs.
    topic = registry.topics.ensure("t")
    peer = Peer(registry)
    for _ in range(60):
        peer.send(b"MPUB t\n" + mpub(*[b"x" * 990] * 1000))
        assert peer.receive() == [OK]
    topic.empty()
    registry.timers.run(let_pass(0))
    registry.turn.end()
    _, kept = pool_slabs(registry.memory)
    assert kept >= 50
    steps = []
    while kept > 32:
        before = kept
        registry.timers.run(let_pass(SECOND_NS // 4))
        _, kept = pool_slabs(registry.memory)
        steps.append(before - kept)
    assert 0 < max(steps) <= 2
    registry.timers.run(let_pass(60 * SECOND_NS))
    assert pool_slabs(registry.memory)[1] == 32
    registry.topics.close()


def test_a_crowded_consumer_takes_more_together_or_in_a_moment(registry):
    registry.topics.ensure("t").channel("c")
    peer = Peer(registry)
    peer.send(b"MPUB t\n" + mpub(*[b"%d" % n for n in range(2000)]))
    peer.subscribe(b"t", b"c", 800)
    ids = [data[10:26] for kind, data in peer.receive() if kind == 2]
    assert len(ids) == 800

    def finish(count):
        peer.send(b"".join(b"FIN %s\n" % ids.pop(0) for _ in range(count)))
        frames = peer.receive()
        ids.extend(data[10:26] for _, data in frames)
        return len(frames)

    # An eighth of the window.
    assert finish(99) == 0
    assert finish(1) == 100
    assert finish(10) == 0
    registry.timers.run(let_pass(SECOND_NS // 1000))
    frames = peer.receive()
    assert len(frames) == 10
    ids.extend(data[10:26] for _, data in frames)
    # With few in flight each slot is filled at once.
    peer.send(b"RDY 50\n")
    assert finish(750) == 0
    assert finish(1) == 1


def test_a_crowded_consumer_that_leaves_in_that_moment(registry):
    peer = Peer(registry)
    peer.send(b"MPUB t\n" + mpub(*[b"x"] * 300))
    peer.subscribe(b"t", b"c", 200)
    ids = [data[10:26] for kind, data in peer.receive() if kind == 2]
    peer.send(b"FIN %s\n" % ids[0])
    peer.close()
    registry.timers.run(let_pass(SECOND_NS // 1000))
    assert registry.topics.ensure("t").find_channel("c").depth == 299


def test_the_loop_turns_on_for_a_moment_as_long_as_that_pays(registry):
    asked = []
    registry.turn.schedule_end = lambda: asked.append(1)

    def turns_after(data):
        """How often the loop is asked for another turn until it may sleep."""
        peer.send(data)
        turns = 0
        while asked:
            asked.clear()
            registry.turn.end()
            turns += 1
            let_pass(10_000)
        return turns

    peer = Peer(registry)
    publish = b"PUB t\n" + body(b"x")
    looks = [turns_after(publish) for _ in range(8)]
    assert min(looks) > 1
    # Nothing came in any of them.
    assert turns_after(publish) == 1
    later = [turns_after(publish) for _ in range(64)]
    assert sum(turns > 1 for turns in later) == 1
    # A client that is back within the look brings them all back.
    while turns_after(publish) == 1:
        pass
    asked.clear()
    for _ in range(64):
        peer.send(publish)
        asked.clear()
        registry.turn.end()
        if asked:
            peer.send(publish)
            registry.turn.end()
            break
    turns_after(b"")
    assert turns_after(publish) > 1


def test_a_large_turn_is_no_reason_to_look(registry):
    asked = []
    registry.turn.schedule_end = lambda: asked.append(1)
    peer = Peer(registry)
    asked.clear()
    peer.send((b"PUB t\n" + body(b"x")) * 300)
    assert asked
    asked.clear()
    assert len(peer.receive()) == 300
    assert not asked


def identify(**wishes):
    return b"IDENTIFY\n" + body(json.dumps({"feature_negotiation": True, **wishes}).encode())


def test_what_a_client_says_of_itself_counts_as_memory_while_it_is_connected(registry):
    others = Peer(registry)  # the first one makes the tables
    before = counted_bytes()
    peer = Peer(registry)
    peer.send(identify(padding="x" * 60_000))
    assert 60_000 < used_bytes() - before < 70_000
    peer.send(identify(padding="y" * 30_000))  # the second replaces the first
    assert 30_000 < used_bytes() - before < 40_000
    peer.connection.connection_lost(None)
    assert used_bytes() == before
    assert not others.transport.is_aborted


def test_what_compresses_counts_as_memory_while_the_client_is_connected(registry):
    others = Peer(registry)  # the first one makes the tables
    before = counted_bytes()
    peer = Peer(registry)
    for kind in ("deflate", "deflate", "snappy"):  # once, whatever else it asks for
        peer.send(identify(**{kind: True}))
        assert 300_000 < used_bytes() - before < 330_000
    peer.connection.connection_lost(None)
    assert used_bytes() == before
    assert not others.transport.is_aborted


@pytest.mark.parametrize(
    "name", ["client_id", "hostname", "user_agent", "topology_region", "topology_zone"]
)
def test_what_a_client_says_of_itself_is_short(registry, name):
    peer = Peer(registry)
    peer.send(identify(**{name: "ä" * 128}))
    assert [kind for kind, _ in peer.receive()] == [0]
    peer.send(identify(**{name: "ä" * 128 + "x"}))
    text = f"E_BAD_BODY IDENTIFY {name} is longer than 256 bytes"
    assert peer.receive() == [(1, text.encode())]


@pytest.fixture
def no_memory(registry):
    registry.memory.set_ceiling(1 << 30)
    registry.memory.charge_bytes(1 << 30)
    yield
    registry.memory.charge_bytes(-(1 << 30))


def test_without_memory_a_client_says_little_of_itself(registry, no_memory):
    modest, talkative = Peer(registry), Peer(registry)
    modest.send(identify(padding="x" * 3000))
    assert [kind for kind, _ in modest.receive()] == [0]
    talkative.send(identify(padding="x" * 5000))
    assert talkative.receive() == [(1, b"E_INVALID no memory left for a command of this size")]
