"""Limits of queues: a publish beyond them is refused as a whole, or the oldest messages go; the flow to consumers."""

import random
import shutil

import pytest
from nsqfast._ext.dev.probes import fix_parts, let_pass

from ext.test_durable import mpub, pub
from support.core import SECOND_NS, Peer, make_registry, sync

OK = (0, b"OK")
LARGE = 12_000  # messages of an MPUB that is put in parts
KINDS = {
    "memory": {},
    "disk": {"mem_queue_size": 0},
    "mixed": {"mem_queue_size": 3},
    "log": {"durable": "always"},
    "log and disk": {"durable": "always", "mem_queue_size": 0},
}


@pytest.fixture(params=KINDS)
def registry(request, tmp_path):
    registry = make_registry(tmp_path, **KINDS[request.param])
    yield registry
    fix_parts(1 << 60)
    registry.topics.close()


def refused(command):
    return (1, b"E_%s_FAILED %s failed over limit" % (command, command))


def ask(registry, data):
    """A publisher of its own, which an error disconnects."""
    peer = Peer(registry)
    peer.send(data)
    return sync(registry, peer)[0]


def take(registry, channel=b"c", rdy=2500):
    """What the channel has, taken and finished until nothing comes any more."""
    peer = Peer(registry)
    peer.subscribe(b"t", channel, rdy)
    bodies = []
    for _ in range(1000):
        sync(registry)
        registry.timers.run(let_pass(0))
        got = [data for kind, data in peer.receive() if kind == 2]
        if not got and registry.topics.find("t").find_channel(channel.decode()).depth == 0:
            peer.close()
            return bodies
        bodies += [data[26:] for data in got]
        peer.send(b"".join(b"FIN %s\n" % data[10:26] for data in got))
    raise AssertionError("it does not end")


def numbers(first, end):
    return [b"%d" % number for number in range(first, end)]


def make(registry, *channels):
    topic = registry.topics.ensure("t")
    for name in channels:
        topic.channel(name)
    return topic


def test_what_is_beyond_the_limit_is_refused(registry):
    topic = make(registry, "other", "c")
    topic.set_limits(topic.find_channel("c"), 3, 0, False)
    assert ask(registry, mpub(b"t", b"0", b"1")) == [OK]
    assert ask(registry, mpub(b"t", b"no", b"no")) == [refused(b"MPUB")]
    assert ask(registry, pub(b"t", b"2")) == [OK]
    assert ask(registry, pub(b"t", b"no")) == [refused(b"PUB")]
    assert ask(registry, b"DPUB t 1000\n\0\0\0\1x") == [refused(b"DPUB")]
    assert topic.message_count == 3
    assert take(registry) == take(registry, b"other") == numbers(0, 3)
    assert ask(registry, pub(b"t", b"again")) == [OK]


def test_deferred_messages_count(registry):
    topic = make(registry, "c")
    topic.set_limits(topic.find_channel("c"), 2, 0, False)
    assert ask(registry, b"DPUB t 60000\n\0\0\0\1x" * 2) == [OK, OK]
    assert ask(registry, pub(b"t", b"no")) == [refused(b"PUB")]


def test_a_topic_without_channels_has_a_limit_of_its_own(registry):
    topic = make(registry)
    topic.set_limits(None, 2, 0, False)
    assert ask(registry, mpub(b"t", b"0", b"1")) == [OK]
    assert ask(registry, pub(b"t", b"no")) == [refused(b"PUB")]
    topic.set_limits(None, 2, 0, True)
    assert ask(registry, pub(b"t", b"2")) == [OK]
    assert topic.depth == 2
    topic.channel("c")
    assert take(registry) == numbers(1, 3)


@pytest.mark.parametrize("count", [LARGE, LARGE - 1])
def test_a_large_mpub_is_taken_as_a_whole_or_not_at_all(registry, count):
    topic = make(registry, "c")
    topic.set_limits(topic.find_channel("c"), LARGE - 1, 0, False)
    peer = Peer(registry)
    peer.send(mpub(b"t", *numbers(0, count)))
    answers = []
    while not answers:
        answers = sync(registry, peer)[0]
        registry.timers.run(let_pass(0))
    assert answers == ([OK] if count < LARGE else [refused(b"MPUB")])
    assert topic.message_count == (count if count < LARGE else 0)
    assert take(registry) == (numbers(0, count) if count < LARGE else [])


def test_the_oldest_go(registry):
    topic = make(registry, "c", "other")
    channel = topic.find_channel("c")
    topic.set_limits(channel, 5, 0, True)
    assert ask(registry, mpub(b"t", *numbers(0, 4))) == [OK]
    assert ask(registry, mpub(b"t", *numbers(4, 9))) == [OK]
    assert ask(registry, pub(b"t", b"9")) == [OK]
    assert (channel.depth, channel.dropped_count) == (5, 5)
    assert take(registry) == numbers(5, 10)
    assert take(registry, b"other") == numbers(0, 10)


def test_what_is_in_flight_stays(registry):
    topic = make(registry, "c")
    peer = Peer(registry)
    peer.subscribe(b"t", b"c", 2)
    assert ask(registry, mpub(b"t", *numbers(0, 4))) == [OK]
    sync(registry)
    got = [data for kind, data in peer.receive() if kind == 2]
    assert [data[26:] for data in got] == numbers(0, 2)
    topic.set_limits(topic.find_channel("c"), 1, 0, True)
    sync(registry)
    peer.send(b"RDY 0\n" + b"".join(b"FIN %s\n" % data[10:26] for data in got))
    assert peer.receive() == []
    assert take(registry) == [b"3"]


def test_a_new_limit_holds_for_what_is_there_a_part_at_a_time(registry):
    topic = make(registry, "c")
    channel = topic.find_channel("c")
    assert ask(registry, mpub(b"t", *numbers(0, 1000))) == [OK]
    fix_parts(10)
    topic.set_limits(channel, 100, 0, True)
    before = channel.depth
    assert before >= 990
    while channel.depth > 100:
        registry.timers.run(let_pass(0))
        registry.turn.end()
        assert before - channel.depth <= 20
        before = channel.depth
    fix_parts(1 << 60)
    assert take(registry) == numbers(900, 1000)


def test_a_backlog_that_comes_to_its_channels_is_cut(registry):
    topic = make(registry)
    topic.pause()
    for name in ("c", "other"):
        topic.set_limits(topic.channel(name), 10 if name == "c" else 0, 0, True)
    for body in numbers(0, 1000):
        topic.put(body)
    sync(registry)
    topic.unpause()
    while topic.depth:
        sync(registry)
        registry.timers.run(let_pass(0))
    assert take(registry) == numbers(990, 1000)
    assert take(registry, b"other") == numbers(0, 1000)


def test_bytes_are_limited(registry):
    topic = make(registry, "c")
    channel = topic.find_channel("c")
    topic.set_limits(channel, 0, 10_000, False)
    body = b"x" * 900
    answers = [ask(registry, pub(b"t", body)) for _ in range(14)]
    accepted = answers.index([refused(b"PUB")])
    assert 10 <= accepted <= 11  # on disk each has a header of 30 bytes
    assert answers[accepted:] == [[refused(b"PUB")]] * (14 - accepted)
    topic.set_limits(channel, 0, 5_000, True)
    assert channel.depth == 5
    assert take(registry) == [body] * 5


def test_nothing_is_left_of_the_bytes_when_all_is_gone(registry):
    """Whatever way they took: then a message with as many as there may be is taken."""
    seed = random.randrange(1 << 32)
    print("seed", seed)
    dice = random.Random(seed)
    topic = make(registry, "c")
    channel = topic.find_channel("c")
    peer = Peer(registry)
    peer.subscribe(b"t", b"c", 5)
    for _ in range(300):
        action = dice.random()
        if action < 0.4:
            count = dice.choice([1, 1, 20])
            peer.send(mpub(b"t", *(b"x" * dice.randrange(1, 500) for _ in range(count))))
        elif action < 0.5:
            topic.set_limits(channel, dice.choice([0, 30]), dice.choice([0, 3000]), True)
        elif action < 0.55:
            channel.empty()
        elif action < 0.6:
            topic.set_limits(channel, 0, 0, False)
        sync(registry)
        registry.timers.run(let_pass(0))
        for kind, data in peer.receive():
            if kind == 2 and dice.random() < 0.8:
                name = dice.choice([b"FIN %s", b"REQ %s 0", b"REQ %s 1"])
                peer.send(name % data[10:26] + b"\n")
    peer.close()
    topic.set_limits(channel, 0, 0, False)
    registry.timers.run(let_pass(SECOND_NS))
    take(registry)
    assert (channel.depth, channel.in_flight_count, channel.deferred_count) == (0, 0, 0)
    topic.set_limits(channel, 0, 100, False)
    assert ask(registry, pub(b"t", b"x" * 101)) == [refused(b"PUB")]
    assert ask(registry, pub(b"t", b"x" * 100)) == [OK]


def test_a_deleted_channel_refuses_nothing(registry):
    topic = make(registry, "c", "other")
    topic.set_limits(topic.find_channel("c"), 1, 0, False)
    assert ask(registry, pub(b"t", b"0")) == [OK]
    topic.delete_channel("c")
    assert ask(registry, pub(b"t", b"1")) == [OK]


def test_what_was_dropped_stays_dropped_after_a_kill(tmp_path):
    folder, left = tmp_path / "data", tmp_path / "left"
    folder.mkdir()
    registry = make_registry(folder, durable="always")
    topic = make(registry, "c")
    topic.set_limits(topic.find_channel("c"), 4, 0, True)
    for number in range(50):
        assert ask(registry, pub(b"t", b"%d" % number)) == [OK]
    sync(registry)
    shutil.copytree(folder, left)
    again = make_registry(left, durable="always")
    make(again, "c")
    assert take(again) == numbers(46, 50)
    again.topics.close()
    registry.topics.close()


def test_no_more_are_in_flight_and_a_fin_lets_the_next_go(registry):
    topic = make(registry, "c")
    channel = topic.find_channel("c")
    channel.set_flow(3, 0)
    first, second = Peer(registry), Peer(registry)
    for peer in (first, second):
        peer.subscribe(b"t", b"c", 10)
    assert ask(registry, mpub(b"t", *numbers(0, 8))) == [OK]
    sync(registry)
    got = {peer: [data for kind, data in peer.receive() if kind == 2] for peer in (first, second)}
    assert channel.in_flight_count == 3
    assert sorted(len(each) for each in got.values()) == [1, 2]
    # One that wants no more gives its place to the other.
    first.send(b"RDY 0\n" + b"".join(b"FIN %s\n" % data[10:26] for data in got[first]))
    registry.timers.run(let_pass(0))
    sync(registry)
    assert len([1 for kind, _ in second.receive() if kind == 2]) == len(got[first])
    assert channel.in_flight_count == 3
    channel.set_flow(0, 0)
    sync(registry)
    assert channel.depth == 0


def test_a_rate_is_held(registry):
    topic = make(registry, "c")
    channel = topic.find_channel("c")
    channel.set_flow(0, SECOND_NS // 10)
    peer = Peer(registry)
    peer.subscribe(b"t", b"c", 2500)
    assert ask(registry, mpub(b"t", *numbers(0, 100))) == [OK]
    for _ in range(50):
        registry.timers.run(let_pass(SECOND_NS // 20))
        sync(registry)
    # 2.5 seconds, and what may go at once
    assert 24 <= channel.delivery_count <= 28
