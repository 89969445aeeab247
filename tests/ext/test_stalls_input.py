"""What one client may do in one turn of the loop: work is counted, not time, and all others have their turn between."""

import json
import logging
import random
import re
import time
import zlib

import pytest
from nsqfast._ext.broker.dead_letter_topic import DeadLetterTopic
from nsqfast._ext.core.budget import Part
from nsqfast._ext.dev.probes import fix_parts, let_pass, used_bytes

from ext.test_durable import pub
from support.core import NEVER, SECOND_NS, Peer, end_commit, make_registry, sync

OK = (0, b"OK")
HEARTBEAT = (0, b"_heartbeat_")
PART = 40  # commands; two and a half clients that are written to
COUNT = 400
COUNT_AT_ONCE = 50
MINUTE_NS = 60 * SECOND_NS


@pytest.fixture
def registry(tmp_path):
    registry = make_registry(tmp_path)
    yield registry
    fix_parts(NEVER)
    registry.topics.close()
    fix_parts(0)


def fins(count):
    """Of messages that are nowhere: each is answered with an error that names it."""
    return b"".join(b"FIN %016x\n" % number for number in range(count))


def ids(frames):
    assert all(kind == 1 for kind, _ in frames), frames
    return [int(data.split()[2], 16) for _, data in frames]


def consumer(registry, ready=1):
    peer = Peer(registry)
    peer.subscribe(b"t", b"c", ready)
    assert peer.receive() == [OK]
    return peer


def turns(registry, peer):
    """What each turn has for the peer, until nothing is left to be done."""
    found = []
    while frames := peer.receive():
        found.append(frames)
    return found


def test_a_part_of_the_commands_is_run_in_each_turn(registry):
    greedy, other = consumer(registry), Peer(registry)
    fix_parts(PART)
    greedy.send(fins(COUNT))
    other.send(pub(b"u", b"x"))
    assert ids(greedy.decode_all()) == []
    got = []
    for turn in range(1, COUNT // PART):
        got += ids(greedy.receive())
        assert len(got) == (turn + 1) * PART
        assert other.decode_all() == ([OK] if turn == 1 else [])
    assert got == list(range(COUNT))
    assert greedy.receive() == []
    assert greedy.transport.is_reading


def test_a_large_command_counts_for_more(registry):
    peer = Peer(registry)
    fix_parts(PART)
    peer.send(pub(b"t", b"x" * 64 * PART) * 5)
    assert [len(frames) for frames in turns(registry, peer)] == [
        2,
        1,
        1,
        1,
    ]  # the first before the turn's end


@pytest.mark.parametrize("command", [b"SUB t c\n", b"IDENTIFY\n\0\0\0\2{}", pub(b"new", b"x")])
def test_what_may_take_long_is_a_part_by_itself(registry, command):
    peer = Peer(registry)
    fix_parts(60)
    peer.send(command + b"NOP\n" * 5)
    assert registry.topics.ensure("b").depth == 0
    peer.send(pub(b"b", b"x"))
    assert registry.topics.ensure("b").depth == 0  # behind what is held
    peer.receive()
    assert registry.topics.ensure("b").depth == 1


@pytest.mark.parametrize("command", [b"SUB t c\n", b"IDENTIFY\n\0\0\0\2{}"])
def test_what_may_take_long_from_many_in_one_turn(registry, command):
    """As when a thousand clients connect again: some run at once, then a part of them in each turn."""
    peers = [Peer(registry) for _ in range(50)]
    registry.turn.schedule_end = lambda: None
    fix_parts(5 * 64)
    for peer in peers:
        peer.send(command)
    found = []
    while sum(found) < len(peers):
        registry.turn.end()
        found.append(sum(peer.decode_all() == [OK] for peer in peers))
    assert found == [8 + 5] + [5] * 7 + [2]


def numbers_by_turn(registry, count):
    """How many more there are after each turn, until all of them are; the part of a turn is five clients."""
    found, before = [], 0
    while before < COUNT_AT_ONCE:
        registry.turn.end()
        found.append(count() - before)
        before += found[-1]
    return found


def read(peer, data):
    """What the loop reads of a socket in one turn: until it is empty, or reading is paused. Returns the rest."""
    while data and peer.transport.is_reading:
        with memoryview(peer.connection.get_buffer(65536)) as room:
            size = min(len(room), len(data))
            room[:size] = data[:size]
        peer.connection.buffer_updated(size)
        data = data[size:]
    return data


@pytest.mark.parametrize("is_half", [False, True], ids=["", "halves"])
def test_large_commands_share_a_turn(registry, is_half):
    """New memory is slow: so much of it is filled in a turn, whoever sends, and each of them gets on."""
    whole = pub(b"t", random.Random(1).randbytes(900_000))
    peers = [Peer(registry) for _ in range(30)]
    registry.turn.schedule_end = lambda: None
    registry.topics.ensure("t").channel("c")
    registry.turn.end()
    fix_parts(len(peers) * 64)
    left = dict.fromkeys(peers, memoryview(whole[:-1] if is_half else whole))
    by_turn = []
    while any(left.values()):
        before = sum(map(len, left.values()))
        left = {peer: read(peer, data) for peer, data in left.items()}
        by_turn.append(before - sum(map(len, left.values())))
        registry.turn.end()
    assert sum(by_turn) == len(peers) * (len(whole) - is_half)
    assert max(by_turn) < (1 << 20) + len(peers) * 65536  # the first 64 KiB of each are not large
    if not is_half:
        registry.turn.end()
        assert registry.topics.ensure("t").channel("c").depth == len(peers)
        assert [peer.receive() for peer in peers] == [[OK]] * len(peers)
        return
    fix_parts(5 * 64)
    freed, before = [], used_bytes()
    for peer in peers:
        peer.connection.eof_received()
    while any(not peer.transport.is_closing for peer in peers):
        registry.turn.end()
        freed.append(before - used_bytes())
        before = used_bytes()
    assert sum(freed) > len(peers) << 20
    assert max(freed) <= 5 * 2 << 20  # those of five clients
    assert all(b"E_BAD_MESSAGE" in peer.decode_all()[-1][1] for peer in peers)
    let_pass(20 * SECOND_NS)  # the next test has all lines of the log again


@pytest.mark.parametrize("is_reset", [False, True], ids=["end of file", "reset"])
def test_many_that_leave_in_one_turn(registry, is_reset):
    """Others are served between. What was in flight to them is queued again, all of it."""
    registry.topics.ensure("t").channel("c")
    peers = [consumer(registry) for _ in range(COUNT_AT_ONCE)]
    for number in range(COUNT_AT_ONCE):
        registry.topics.ensure("t").put(b"%d" % number)
    assert all(len(peer.receive()) == 1 for peer in peers)
    registry.turn.schedule_end = lambda: None
    registry.turn.end()
    fix_parts(5 * 64)
    for peer in peers:
        if is_reset:
            peer.connection.connection_lost(ConnectionResetError())
        else:
            peer.connection.eof_received()
    if is_reset:
        left = numbers_by_turn(registry, lambda: COUNT_AT_ONCE - registry.turn.client_count())
    else:
        left = numbers_by_turn(registry, lambda: sum(peer.transport.is_closing for peer in peers))
        assert registry.turn.client_count() == COUNT_AT_ONCE
        for peer in peers:
            peer.connection.connection_lost(None)
    assert left == [8 + 5] + [5] * 7 + [2]
    while registry.turn.client_count() or registry.topics.ensure("t").channel("c").in_flight_count:
        registry.turn.end()
        registry.timers.run(let_pass(0))
    assert registry.topics.ensure("t").channel("c").depth == COUNT_AT_ONCE


@pytest.mark.parametrize(("delay_ms", "dies"), [(0, False), (60_000, False), (0, True)])
def test_what_comes_back_in_one_turn_is_bounded(tmp_path, delay_ms, dies):
    """However many send it: each of these messages costs a write, or dies. Nobody's is lost."""
    registry = make_registry(tmp_path, mem_queue_size=2000 * dies)
    channel = registry.topics.ensure("t").channel("c")
    channel.dead_letters = DeadLetterTopic(registry.topics, "t", "c", "dead")
    channel.failures_max = dies
    peers = [consumer(registry, ready=100) for _ in range(10)]
    for number in range(1000):
        registry.topics.ensure("t").put(b"%d" % number)
    held = [[] for _ in peers]
    while sum(map(len, held)) < 1000:
        for peer, own in zip(peers, held, strict=True):
            own += [data[10:26] for kind, data in peer.receive() if kind == 2]
        registry.timers.run(let_pass(SECOND_NS))
    registry.turn.schedule_end = lambda: None
    registry.turn.end()
    fix_parts(64)
    for peer, own in zip(peers, held, strict=True):
        peer.send(b"RDY 0\n" + b"".join(b"REQ %s %d\n" % (found, delay_ms) for found in own))
    found, before = [], 0
    while before < 1000:
        found.append(channel.requeue_count - before)
        before += found[-1]
        registry.turn.end()
    assert found[0] == 256
    assert max(found[1:]) <= 65
    left = channel.depth + channel.deferred_count
    assert (left, registry.topics.ensure("dead").depth) == ((0, 1000) if dies else (1000, 0))
    fix_parts(NEVER)
    registry.topics.close()
    fix_parts(0)


@pytest.mark.parametrize("way", ["end of file", "channel deleted", "error"])
def test_sockets_closed_in_one_turn_are_bounded(registry, way):
    """The kernel's part of a close comes a turn later, so that no part of ours has it in its time."""
    registry.topics.ensure("t").channel("c")
    peers = [consumer(registry) for _ in range(200)]
    registry.turn.schedule_end = lambda: None
    registry.turn.end()
    fix_parts(1_000_000)
    if way == "channel deleted":
        registry.topics.ensure("t").delete_channel("c")
    else:
        for peer in peers:
            if way == "error":
                peer.send(b"NONSENSE\n")
            peer.connection.eof_received()
    found = []
    while sum(found) < len(peers):
        registry.turn.end()
        registry.timers.run(let_pass(0))
        found.append(sum(peer.transport.is_closing for peer in peers) - sum(found))
    assert max(found) <= 32 + 32
    for peer in peers:
        peer.connection.connection_lost(None)
    while registry.turn.client_count():
        registry.turn.end()


def test_one_that_is_lost_before_its_turn_to_be_closed(registry):
    """Nothing is left of it, and its transport is not asked again."""
    registry.topics.ensure("t").channel("c")
    peers = [consumer(registry) for _ in range(200)]
    registry.turn.schedule_end = lambda: None
    registry.turn.end()
    fix_parts(1_000_000)
    for peer in peers:
        peer.send(b"NONSENSE\n")
        peer.connection.eof_received()
    waiting = [peer for peer in peers if not peer.transport.is_closing]
    assert waiting
    for peer in peers:
        peer.connection.connection_lost(ConnectionResetError())
    while registry.turn.client_count():
        registry.turn.end()
    assert not any(peer.transport.is_closing for peer in waiting)


def test_a_turn_that_took_too_long_ends_without_those_who_are_held(registry):
    """The next one does not, even if it took as long."""
    greedy = consumer(registry)
    fix_parts(PART)
    greedy.send(fins(2 * PART))
    fix_parts(0)
    overspend()
    assert len(greedy.receive()) == PART
    overspend()
    assert len(greedy.receive()) == PART


def overspend():
    """As one command does that waits for the disk."""
    part, end_s = Part(), time.perf_counter() + 0.003
    while time.perf_counter() < end_s:
        pass
    assert part.is_spent(64)


def test_who_greets_with_many_others_waits(registry):
    """The magic is such a command, too: what follows it is not lost, and is run in a later turn."""
    registry.topics.ensure("t")
    registry.turn.schedule_end = lambda: None
    peers = [Peer(registry, magic=b"") for _ in range(50)]
    fix_parts(5 * 64)
    for peer in peers:
        peer.send(b"  V2" + pub(b"t", b"x"))
    found = []
    while sum(found) < len(peers):
        registry.turn.end()
        found.append(sum(peer.decode_all() == [OK] for peer in peers))
    assert found == [8 + 5] + [5] * 7 + [2]
    assert registry.topics.ensure("t").depth == len(peers)


def test_clients_with_much_to_do_take_turns(registry):
    peers = [consumer(registry) for _ in range(3)]
    fix_parts(PART)
    for peer in peers:
        peer.send(fins(3 * PART))
    registry.turn.end()
    seen = [len(peer.decode_all()) for peer in peers]
    while sum(seen) < 3 * 3 * PART:
        registry.turn.end()
        got = [len(peer.decode_all()) for peer in peers]
        assert sum(got) == PART  # of one of them
        seen = [before + more for before, more in zip(seen, got, strict=True)]
        assert max(seen) - min(seen) <= PART
    assert seen == [3 * PART] * 3


def test_who_is_held_is_not_silent(registry):
    peer = consumer(registry)
    fix_parts(PART)
    peer.send(fins(COUNT))
    peer.decode_all()
    registry.timers.run(let_pass(10 * MINUTE_NS))
    assert not peer.transport.is_aborted
    frames = [frame for turn in turns(registry, peer) for frame in turn]
    assert frames.count(HEARTBEAT) == 1
    frames.remove(HEARTBEAT)
    assert ids(frames) == list(range(COUNT))
    # From then on it is.
    registry.timers.run(let_pass(59 * SECOND_NS))
    assert not peer.transport.is_aborted
    for _ in range(3):
        registry.timers.run(let_pass(MINUTE_NS))
    assert peer.transport.is_aborted


def test_the_end_of_the_stream_comes_behind_what_is_held(registry):
    peer = consumer(registry)
    fix_parts(PART)
    peer.send(fins(COUNT) + b"PUB t\n\0\0")
    assert peer.connection.eof_received() is True
    frames = [frame for turn in turns(registry, peer) for frame in turn]
    assert frames.pop() == (1, b"E_BAD_MESSAGE PUB failed to read message body size")
    assert ids(frames) == list(range(COUNT))
    assert peer.transport.is_closing


def test_an_error_ends_what_is_held(registry):
    peer = consumer(registry)
    fix_parts(PART)
    peer.send(fins(PART) + fins(5) + b"WRONG\n" + fins(COUNT))
    frames = [frame for turn in turns(registry, peer) for frame in turn]
    assert frames.pop() == (1, b"E_INVALID invalid command WRONG")
    assert ids(frames) == [*range(PART), *range(5)]
    assert peer.transport.has_eof


def test_a_client_that_is_gone_is_not_gone_on_with(registry):
    peer = consumer(registry)
    fix_parts(PART)
    peer.send(pub(b"u", b"x") * COUNT)
    peer.connection.abort()
    peer.close()
    depth = registry.topics.ensure("u").depth
    assert 0 < depth < COUNT
    registry.turn.end()
    assert registry.topics.ensure("u").depth == depth


def test_much_that_comes_while_held_is_not_read(registry):
    peer = consumer(registry)
    fix_parts(PART)
    peer.send(fins(8000))
    assert not peer.transport.is_reading
    got = 0
    while frames := peer.receive():
        got += len(frames)
    assert got == 8000
    assert peer.transport.is_reading


def test_who_does_not_read_is_not_gone_on_with(registry):
    peer = consumer(registry)
    fix_parts(1 << 40)
    peer.connection.pause_writing()
    for _ in range(10):
        peer.send(fins(3000))  # more than is kept for it
    fix_parts(PART)
    peer.send(fins(COUNT))
    for _ in range(50):
        registry.turn.end()
    assert peer.decode_all() == []
    peer.connection.resume_writing()
    assert len(peer.decode_all()) == 30_000 + PART
    assert sum(map(len, turns(registry, peer))) == COUNT - PART


def deflated(registry):
    peer = Peer(registry)
    settings = b'{"feature_negotiation":true,"deflate":true}'
    peer.send(b"IDENTIFY\n" + len(settings).to_bytes(4, "big") + settings)
    assert json.loads(peer.receive()[0][1])["deflate"] is True
    registry.turn.end()
    return peer, zlib.compressobj(9, zlib.DEFLATED, -15)


def packed(packer, data):
    return packer.compress(data) + packer.flush(zlib.Z_SYNC_FLUSH)


def test_little_that_unfolds_to_much_is_unfolded_in_parts(registry):
    peer, packer = deflated(registry)
    topic = registry.topics.ensure("t")
    stream = packed(packer, pub(b"t", b"x") * 30_000)
    assert len(stream) < 2000
    fix_parts(PART)
    peer.send(stream)
    depths = [0, topic.depth]
    while depths[-1] < 30_000:
        registry.turn.end()
        depths.append(topic.depth)
        assert (
            0 < depths[-1] - depths[-2] <= 2 * PART
        )  # the rest of one piece, and the first of the next


def test_one_piece_a_part(registry):
    """Also where the commands in it are cheap: what is counted is the unfolding."""
    peer, packer = deflated(registry)
    topic = registry.topics.ensure("t")
    fix_parts(64)
    body = b"x" * 200_000  # over more than three pieces, none of which has a whole command
    peer.send(packed(packer, pub(b"t", body) + pub(b"t", b"x")))
    flushes = 0
    while topic.depth < 2:
        registry.turn.end()
        flushes += 1
    assert flushes >= 3


# -- the log -----------------------------------------------------------------------------------------------------------


def failures(caplog):
    return [line for line in caplog.messages if "E_FIN_FAILED" in line]


def test_lines_that_a_client_causes_are_bounded(registry, caplog):
    peer = consumer(registry)
    peer.send(fins(5000))
    assert ids(peer.receive()) == list(range(5000))  # it hears of each
    assert 100 <= len(failures(caplog)) < 200  # ten a second more
    let_pass(SECOND_NS)
    peer.send(fins(5000))
    assert 110 <= len(failures(caplog)) < 200
    let_pass(20 * SECOND_NS)
    peer.send(fins(1))
    lines = failures(caplog)
    left_out = [re.search(r"in flight \((\d+) lines before it left out\)$", line) for line in lines]
    assert len(lines) + sum(int(found[1]) for found in left_out if found) == 10_001
    # One bound for all that a client can have written.
    caplog.set_level(logging.INFO, "nsqd")
    caplog.clear()
    peer.send(b"REQ %016x 99999999999\n" % 1 * 500)
    assert len([line for line in caplog.messages if "REQ" in line]) < 250
    peer.close()
    assert any(re.search(r"exiting ioloop \(\d+ lines before", line) for line in caplog.messages)


def test_another_client_has_lines_of_its_own(registry, caplog):
    greedy, other = consumer(registry), consumer(registry)
    greedy.send(fins(1000))
    caplog.clear()
    other.send(fins(1))
    assert len(failures(caplog)) == 1


# -- bounds ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("command", [b"IDENTIFY", b"AUTH"])
def test_what_a_client_says_of_itself_has_a_bound(registry, command):
    peer = Peer(registry)
    peer.send(command + b"\n" + (65537).to_bytes(4, "big"))
    assert peer.receive() == [(1, b"E_BAD_BODY %s body too big 65537 > 65536" % command)]
    peer = Peer(registry)
    peer.send(command + b"\n" + (65536).to_bytes(4, "big") + b"{}".ljust(65536))
    assert (
        peer.receive() == [OK]
        if command == b"IDENTIFY"
        else [(1, b"E_AUTH_DISABLED AUTH disabled")]
    )


def silent_for_good(registry):
    peer = Peer(registry)
    peer.send(b'IDENTIFY\n\0\0\0\x19{"heartbeat_interval":-1}')
    assert peer.receive() == [OK]
    return peer


def pass_minutes(registry, count):
    for _ in range(2 * count):  # a deadline that has come leaves a moment for what was on its way
        registry.timers.run(let_pass(MINUTE_NS // 2))


def test_without_heartbeats_silence_has_no_end(registry):
    peer = silent_for_good(registry)
    pass_minutes(registry, 60)
    peer.send(pub(b"t", b"x"))
    assert peer.receive() == [OK]
    pass_minutes(registry, 60)
    assert not peer.transport.is_closing


def test_but_a_command_has(registry):
    peer = silent_for_good(registry)
    pass_minutes(registry, 60)
    whole = pub(b"t", b"x")
    peer.send(whole[:5])
    registry.timers.run(let_pass(MINUTE_NS - SECOND_NS))
    assert not peer.transport.is_aborted
    peer.send(whole[5:] + whole[:5])
    assert peer.receive() == [OK]
    registry.timers.run(let_pass(MINUTE_NS - SECOND_NS))
    assert not peer.transport.is_aborted
    pass_minutes(registry, 2)
    assert peer.transport.is_aborted


@pytest.mark.parametrize("is_short", [True, False])
def test_a_large_one_has_to_go_on_while_memory_is_short(registry, is_short):
    """Its buffer is what others would need; whoever sends a little now and then goes on."""
    memory = registry.memory
    memory.set_ceiling(memory.used_bytes() + 200_000 if is_short else 0)
    peer, other = Peer(registry), Peer(registry)
    peer.send(b'IDENTIFY\n\0\0\0\x1c{"heartbeat_interval":60000}')
    other.send(b'IDENTIFY\n\0\0\0\x1c{"heartbeat_interval":60000}')
    whole = pub(b"t", bytes(100_000))
    try:
        peer.send(whole[:90_000])
        memory.charge_bytes(100_000)
        for _ in range(30):
            registry.timers.run(let_pass(SECOND_NS))
            other.send(b"NOP\n")
        assert peer.transport.is_aborted == is_short
        assert not other.transport.is_aborted
        if not is_short:
            peer.send(whole[90_000:])
            assert peer.receive() == [OK, OK]
    finally:
        memory.charge_bytes(-100_000)
        memory.set_ceiling(0)


def test_and_so_have_answers_that_are_not_read(registry):
    peer = silent_for_good(registry)
    peer.connection.pause_writing()
    registry.timers.run(let_pass(29 * SECOND_NS))
    assert not peer.transport.is_aborted
    pass_minutes(registry, 2)
    assert peer.transport.is_aborted


# -- out ---------------------------------------------------------------------------------------------------------------


def test_a_part_of_the_clients_is_written_to_in_each_turn(registry):
    peers = [Peer(registry) for _ in range(COUNT)]
    fix_parts(5 * 16)  # a write is 16
    for peer in peers:
        peer.send(pub(b"t", b"x"))
    for turn in range(1, COUNT // 5 + 1):
        registry.turn.end()
        written = [bool(peer.transport.written) for peer in peers]
        assert written == [True] * 5 * turn + [False] * (COUNT - 5 * turn)
    assert [peer.decode_all() for peer in peers] == [[OK]] * COUNT


def test_a_part_of_those_who_wait_for_the_disk_is_told_in_each_turn(tmp_path):
    registry = make_registry(tmp_path, durable="always")
    registry.topics.ensure("t").channel("c")
    peers = [Peer(registry) for _ in range(COUNT)]
    told = []
    for peer in peers:
        peer.send(pub(b"t", b"x"))
    ticket = registry.topics.find("t").put(b"x")
    registry.turn.end()
    for number in range(COUNT):
        registry.durability.when_durable(ticket, told.append)
        assert len(told) == 0, number
    fix_parts(10 * 8)
    end_commit(registry)
    answered = 0
    for turn in range(1, 2 * COUNT // 10):
        registry.turn.end()
        answered += sum(len(peer.decode_all()) for peer in peers)
        # Ten are told; those who had an answer before are written to.
        assert answered + len(told) <= (turn + 1) * 10
    for _ in range(COUNT):
        registry.turn.end()
        answered += sum(len(peer.decode_all()) for peer in peers)
    assert answered == COUNT
    assert told == [None] * COUNT
    fix_parts(NEVER)
    peers[0].send(pub(b"t", b"x"))
    assert sync(registry, peers[0]) == [[OK]]
    registry.topics.close()
    fix_parts(0)


def test_nobody_hears_of_a_later_commit_first(tmp_path):
    """The second commit ends while its clients are still being told of the first."""
    registry = make_registry(tmp_path, durable="always")
    registry.topics.ensure("t").channel("c")
    peers = [Peer(registry) for _ in range(COUNT)]
    answers = [[] for _ in peers]
    for body in (b"1", b"2", b"3", b"4"):
        fix_parts(NEVER)
        for peer in peers:
            peer.send(pub(b"t", body))
        fix_parts(8)
        for _ in range(COUNT // 10):  # not enough for all of them
            registry.turn.end()
        end_commit(registry)
    for _ in range(20 * COUNT):
        registry.turn.end()
        for got, peer in zip(answers, peers, strict=True):
            got.extend(peer.decode_all())
    assert answers == [[OK] * 4] * COUNT
    fix_parts(NEVER)
    registry.topics.close()
    fix_parts(0)


def test_all_connections_of_an_address_share_its_lines(registry, caplog):
    caplog.set_level(logging.INFO, "nsqd")
    while not any("lines before it left out" in line for line in caplog.messages):
        peer = Peer(registry)
        peer.send(b"FIN x\n" * 20)
        peer.connection.connection_lost(None)
        assert len(caplog.messages) < 50_000
    assert len(caplog.messages) >= 2000
    let_pass(20 * SECOND_NS)  # the next test has all of them again
