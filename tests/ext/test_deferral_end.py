"""A deferred message is cancelled, or queued at once, by the id that its publisher was told: wherever it is, and no
other one. Who did not ask for ids sees what NSQ's nsqd says.
"""

import random

import pytest
from nsqfast._ext.dev.probes import fix_parts, let_pass, live_deliveries

from ext.test_durable import no_room
from support.core import NEVER, SECOND_NS, Peer, counted_deliveries, make_registry, sync

OK = (0, b"OK")
HOUR_MS = 3_600_000
HOUR_NS = HOUR_MS * 1_000_000
ASKS = b'{"feature_negotiation":true,"nsqfast_deferred_ids":true}'
ABSENT = b"0" * 16


def sized(data):
    return len(data).to_bytes(4, "big") + data


def dpub(topic=b"t", delay_ms=HOUR_MS, body=b"job", more=b" id"):
    return b"DPUB %s %d%s\n" % (topic, delay_ms, more) + sized(body)


class Told(Peer):
    """A publisher that asked to be told ids."""

    def __init__(self, registry):
        super().__init__(registry)
        self.send(b"IDENTIFY\n" + sized(ASKS))
        self.receive()

    def defer(self, topic=b"t", **how):
        """Publish it deferred; return its id."""
        self.send(dpub(topic, **how))
        ((kind, answer),) = self.receive()
        assert (kind, answer[:3]) == (0, b"OK ")
        return answer[3:]

    def end(self, command, id, topic=b"t"):
        """Return in how many channels it was still deferred."""
        self.send(b"%s %s %s\n" % (command, topic, id))
        has_log = self.registry.settings.has_log
        ((kind, answer),) = sync(self.registry, self)[0] if has_log else self.receive()
        assert (kind, answer[:3]) == (0, b"OK "), answer
        return int(answer[3:])

    def cancel(self, id, topic=b"t"):
        return self.end(b"CANCEL_DEFERRED", id, topic)

    def run(self, id, topic=b"t"):
        return self.end(b"RUN_DEFERRED", id, topic)


@pytest.fixture
def registry(tmp_path):
    registry = make_registry(tmp_path)
    yield registry
    fix_parts(NEVER)
    registry.topics.close()


def deferred(topic):
    return [channel.deferred_count for channel in topic.channels()]


def consume(registry, channel=b"c", topic=b"t", rdy=9):
    """The bodies that are ready in the channel, in flight to the consumer that is returned."""
    peer = Peer(registry)
    peer.subscribe(topic, channel, rdy)
    return peer, [data[26:] for kind, data in peer.receive() if kind == 2]


def test_who_does_not_ask_sees_no_difference(registry):
    """The answers to IDENTIFY and DPUB, and what NSQ says to a command that it does not know, to the byte."""
    answers = []
    for identity in (ASKS, ASKS.replace(b"true}", b"false}"), b'{"feature_negotiation":true}'):
        peer = Peer(registry)
        peer.send(b"IDENTIFY\n" + sized(identity))
        answers += [data for _, data in peer.receive()]
        if identity is not ASKS:
            peer.send(dpub() + b"CANCEL_DEFERRED t %s\n" % ABSENT)
            assert peer.receive() == [OK, (1, b"E_INVALID invalid command CANCEL_DEFERRED")]
    assert answers[1] == answers[2]
    assert answers[0] == answers[1][:-1] + b',"nsqfast_deferred_ids":true}'
    peer = Peer(registry)
    peer.send(b"IDENTIFY\n" + sized(b'{"nsqfast_deferred_ids":true}'))  # it negotiates nothing
    peer.send(dpub() + b"RUN_DEFERRED t %s\n" % ABSENT)
    assert peer.receive() == [OK, OK, (1, b"E_INVALID invalid command RUN_DEFERRED")]


def test_who_asked_is_told_when_it_wants_to_be(registry):
    peer = Told(registry)
    peer.send(dpub(more=b"") + dpub() + dpub(delay_ms=0) + dpub(more=b" id x"))
    (first, (_, told), third, fourth) = peer.receive()
    assert (first, third, fourth) == (OK, OK, OK)
    assert told[:3] == b"OK "
    topic = registry.topics.find("t")
    row_ids = {told[3:]}
    assert topic.depth == 4
    assert [peer.cancel(id) for id in row_ids] == [1]
    assert topic.depth == 3


@pytest.mark.disk
@pytest.mark.parametrize("durable", [False, True])
def test_in_each_channel_once(tmp_path, durable):
    flags = {"durable": "always"} if durable else {}
    registry = make_registry(tmp_path, **flags)
    topic = registry.topics.ensure("t")
    for name in "cd":
        topic.channel(name)
    before = counted_deliveries()
    peer = Told(registry)
    ids = []
    for _ in range(3):
        peer.send(dpub())
        if durable:
            assert peer.receive() == []
        ((_, answer),) = sync(registry, peer)[0] if durable else peer.receive()
        ids.append(answer[3:])
    assert deferred(topic) == [3, 3]
    assert [peer.cancel(ids[1]), peer.cancel(ids[1])] == [2, 0]
    assert deferred(topic) == [2, 2]
    assert [peer.run(ids[2]), peer.run(ids[2]), peer.cancel(ids[2])] == [2, 0, 0]
    assert deferred(topic) == [1, 1]
    for name in (b"c", b"d"):
        consumer, bodies = consume(registry, name)
        assert bodies == [b"job"]
        consumer.send(b"FIN %s\n" % ids[2])
    assert peer.cancel(ids[0]) == 2
    assert live_deliveries() == before
    registry.topics.close()
    registry = make_registry(tmp_path, **flags)
    topic = registry.topics.ensure("t")
    assert [(channel.depth, channel.deferred_count) for channel in map(topic.channel, "cd")] == [
        (0, 0)
    ] * 2
    registry.topics.close()


def test_one_that_is_due_or_was_delivered_is_left_alone(registry):
    topic = registry.topics.ensure("t")
    topic.channel("c")
    peer = Told(registry)
    queued, returned, absent = (
        peer.defer(delay_ms=5),
        peer.defer(delay_ms=5),
        peer.defer(topic=b"u"),
    )
    registry.timers.run(let_pass(5_000_000))
    assert [peer.cancel(queued), peer.run(queued), peer.cancel(absent)] == [0, 0, 0]
    consumer, bodies = consume(registry)
    assert bodies == [b"job"] * 2
    assert peer.cancel(queued) == 0
    consumer.send(b"FIN %s\nREQ %s %d\n" % (queued, returned, HOUR_MS))
    assert deferred(topic) == [1]
    assert [peer.cancel(returned), peer.run(returned)] == [0, 0]
    assert deferred(topic) == [1]


def test_at_a_topic_without_a_channel_and_at_one_that_is_paused(registry):
    peer = Told(registry)
    ids = [peer.defer(body=b"%d" % number) for number in range(9)]
    topic = registry.topics.find("t")
    order = list(range(9))
    random.Random(1).shuffle(order)
    for number in order[:5]:
        assert [peer.cancel(ids[number]), peer.run(ids[number])] == [1, 0]
    assert topic.depth == 4
    assert [peer.run(ids[order[5]]), peer.run(ids[order[5]]), peer.cancel(ids[order[5]])] == [
        1,
        0,
        0,
    ]
    assert topic.depth == 4
    channel = topic.channel("c")
    assert consume(registry)[1] == [b"%d" % order[5]]
    assert channel.deferred_count == 3
    topic.pause()
    paused = peer.defer()
    assert (topic.depth, channel.deferred_count) == (1, 3)
    assert [peer.cancel(paused), peer.cancel(ids[order[6]])] == [1, 1]
    assert (topic.depth, channel.deferred_count) == (0, 2)
    topic.empty()
    channel.empty()
    assert [peer.cancel(ids[order[7]]), peer.run(ids[order[8]])] == [0, 0]


@pytest.mark.disk
@pytest.mark.parametrize("durable", [False, True])
@pytest.mark.parametrize("is_run", [False, True])
def test_in_a_batch_that_some_channels_have(tmp_path, durable, is_run):
    """A topic's messages go to its channels in parts; those that lack it do not get it, or get it at once."""
    registry = make_registry(tmp_path, **({"durable": "always"} if durable else {}))
    topic = registry.topics.ensure("t")
    topic.pause()
    channels = [topic.channel(f"c{number}") for number in range(6)]
    peer = Told(registry)
    peer.send(dpub() * 4)
    answers = sync(registry, peer)[0] if durable else peer.receive()
    ids = [answer[3:] for _, answer in answers]
    fix_parts(7)
    topic.unpause()
    assert 0 < sum(deferred(topic)) < 24
    assert topic.depth == 4
    fix_parts(NEVER)
    assert peer.end(b"RUN_DEFERRED" if is_run else b"CANCEL_DEFERRED", ids[2]) == 6
    assert topic.depth == (4 if is_run else 3)
    registry.timers.run(let_pass(0))
    registry.turn.end()
    assert topic.depth == 0
    assert deferred(topic) == [3] * 6
    assert [channel.depth for channel in channels] == [int(is_run)] * 6
    assert peer.cancel(ids[2]) == 0
    assert peer.cancel(ids[3]) == 6
    registry.topics.close()


@pytest.mark.disk
@pytest.mark.parametrize("durable", [False, True])
def test_after_a_clean_stop(tmp_path, durable):
    """The broker that comes next does not know who was told; it finds all that were not delivered yet."""
    flags = {"durable": "always"} if durable else {}
    registry = make_registry(tmp_path, **flags)
    registry.topics.ensure("t").channel("c")
    peer = Told(registry)
    peer.send(
        dpub(body=b"a")
        + dpub(body=b"b")
        + dpub(b"u")
        + dpub(b"u")
        + dpub(delay_ms=1, body=b"again")
    )
    answers = sync(registry, peer)[0] if durable else peer.receive()
    cancelled, run, first, second, again = (answer[3:] for _, answer in answers)
    registry.timers.run(let_pass(SECOND_NS))
    consumer, bodies = consume(registry)
    assert bodies == [b"again"]
    consumer.send(b"REQ %s %d\n" % (again, HOUR_MS))
    registry.topics.close()

    registry = make_registry(tmp_path, **flags)
    topic, waiting = registry.topics.ensure("t"), registry.topics.ensure("u")
    topic.channel("c")
    peer = Told(registry)
    assert deferred(topic) == [3]
    assert [peer.cancel(again), peer.cancel(cancelled), peer.run(run)] == [0, 1, 1]
    assert deferred(topic) == [1]
    assert consume(registry)[1] == [b"b"]
    assert [waiting.depth, peer.cancel(first, b"u"), waiting.depth] == [2, 1, 1]
    assert waiting.channel("c").deferred_count == 1
    assert peer.cancel(second, b"u") == 1
    registry.topics.close()


BAD = {
    b"CANCEL_DEFERRED t": b"E_INVALID CANCEL_DEFERRED insufficient number of parameters",
    b"RUN_DEFERRED": b"E_INVALID RUN_DEFERRED insufficient number of parameters",
    b"CANCEL_DEFERRED t:t " + ABSENT: b'E_BAD_TOPIC CANCEL_DEFERRED topic name "t:t" is not valid',
    b"RUN_DEFERRED  " + ABSENT: b'E_BAD_TOPIC RUN_DEFERRED topic name "" is not valid',
    b"RUN_DEFERRED %s %s"
    % (b"t" * 65, ABSENT): b'E_BAD_TOPIC RUN_DEFERRED topic name "%s" is not valid' % (b"t" * 65),
    b"CANCEL_DEFERRED t " + b"0" * 15: b"E_INVALID CANCEL_DEFERRED invalid message ID",
    b"CANCEL_DEFERRED t " + b"0" * 17: b"E_INVALID CANCEL_DEFERRED invalid message ID",
    b"RUN_DEFERRED t " + b"A" * 16: b"E_INVALID RUN_DEFERRED invalid message ID",
    b"RUN_DEFERRED t ": b"E_INVALID RUN_DEFERRED invalid message ID",
    b"cancel_deferred t " + ABSENT: b"E_INVALID invalid command cancel_deferred",
}


@pytest.mark.parametrize("line", BAD)
def test_what_is_not_valid_ends_the_connection_with_its_reason(registry, line):
    peer = Told(registry)
    peer.send(line + b"\n")
    assert peer.receive() == [(1, BAD[line])]
    assert peer.transport.has_eof
    assert registry.topics.sorted() == []


class Authorizer:
    """An auth server that answers at once, with what the test allows."""

    usage = None
    authorizations = (None,)
    ttl_ns = SECOND_NS

    def __init__(self, *topics):
        self.topics = set(topics)
        self.questions = []

    def __call__(self, host, secret, on_answer):
        self.questions.append(on_answer)
        return self

    def cancel(self):
        self.questions.clear()

    def answer_all(self):
        while self.questions:
            self.questions.pop(0)(Grant(self.topics), False)


class Grant(Authorizer):
    def __init__(self, topics):
        self.topics = set(topics)

    def allows(self, topic, channel):
        return topic in self.topics and channel == ""

    def answer(self):
        return b"granted"


def test_it_takes_the_permission_to_publish_to_that_topic(registry):
    """And a permission that is asked for anew here is none for the topic published to last."""
    registry.authorizer = authorizer = Authorizer("t", "u")
    peer = Told(registry)
    peer.send(b"CANCEL_DEFERRED t %s\n" % ABSENT)
    assert peer.receive() == [(1, b"E_AUTH_FIRST AUTH required before CANCEL_DEFERRED")]
    peer = Told(registry)
    peer.send(b"AUTH\n" + sized(b"secret"))
    authorizer.answer_all()
    assert peer.receive() == [(0, b"granted")]
    other, mine = peer.defer(b"u"), peer.defer(b"t")
    let_pass(2 * SECOND_NS)
    authorizer.topics = {"u"}
    peer.send(b"CANCEL_DEFERRED u %s\n" % other)
    assert peer.receive() == []
    authorizer.answer_all()
    assert peer.receive() == [(0, b"OK 1")]
    peer.send(dpub(b"t"))
    ((kind, text),) = peer.receive()
    assert (kind, text) == (1, b'E_UNAUTHORIZED AUTH failed for DPUB on "t" ""')
    peer = Told(registry)
    peer.send(b"AUTH\n" + sized(b"secret"))
    authorizer.answer_all()
    peer.send(b"RUN_DEFERRED t %s\n" % mine)
    assert peer.receive()[1:] == [(1, b'E_UNAUTHORIZED AUTH failed for RUN_DEFERRED on "t" ""')]
    assert registry.topics.find("t").depth == 1


def test_an_unknown_topic_is_not_made(registry):
    assert Told(registry).cancel(ABSENT) == 0
    assert registry.topics.sorted() == []


def test_a_line_too_long_is_dropped_as_any_other(registry):
    peer = Told(registry)
    peer.send(b"CANCEL_DEFERRED t " + b"0" * 20000)
    assert peer.receive() == []
    assert peer.transport.has_eof


def test_very_many_channels_take_a_part_in_each_turn(registry):
    """Some are deleted and others made meanwhile, and each of the rest is asked."""
    topic = registry.topics.ensure("t")
    for number in range(100):
        topic.channel(f"c{number}")
    registry.turn.schedule_end = lambda: None
    peer = Told(registry)
    id = peer.defer()
    assert deferred(topic) == [1] * 100
    fix_parts(10)
    peer.send(b"CANCEL_DEFERRED t %s\nPUB t\n" % id + sized(b"behind"))
    assert peer.decode_all() == []
    left = sum(deferred(topic))
    assert 80 <= left < 100
    for number in (3, 50, 98):
        topic.delete_channel(f"c{number}")
    topic.channel("new")
    turns = 0
    while not (answers := peer.receive()):
        turns += 1
        assert turns < 100
    assert turns > 3
    fix_parts(NEVER)
    answers += peer.receive()
    assert answers[1] == OK
    assert 97 <= int(answers[0][1][3:]) <= 98  # c98 was among the first
    assert sum(deferred(topic)) == 0


@pytest.mark.disk
def test_a_refused_write_tells_no_id(tmp_path):
    registry = make_registry(tmp_path, mem_queue_size=0)
    registry.topics.ensure("t").channel("c")
    peer = Told(registry)
    with no_room():
        peer.send(dpub())
        ((kind, text),) = peer.receive()
    assert (kind, text[:12]) == (1, b"E_DPUB_FAILE")
    assert registry.topics.find("t").find_channel("c").deferred_count == 0
    registry.topics.close()


@pytest.mark.disk
def test_answers_keep_their_order_and_counts(tmp_path):
    registry = make_registry(tmp_path, durable="always")
    registry.topics.ensure("t").channel("c")
    peer = Told(registry)
    pub = b"PUB t\n" + sized(b"x")
    peer.send(pub + dpub() + pub + dpub(more=b"") + dpub() + b"CANCEL_DEFERRED t %s\n" % ABSENT)
    answers = [data for _, data in sync(registry, peer)[0]]
    assert [len(answer) for answer in answers] == [2, 19, 2, 2, 19, 4]
    assert peer.session.pub_counts() == {"t": 5}
    assert [peer.cancel(answer[3:]) for answer in (answers[1], answers[4])] == [1, 1]
    registry.topics.close()


@pytest.mark.parametrize("seed", range(3))
def test_any_order_of_ends(registry, seed):
    """Against a model: what is due, cancelled and run."""
    dice = random.Random(seed)
    topic = registry.topics.ensure("t")
    for name in "cd":
        topic.channel(name)
    peer = Told(registry)
    now_ns = let_pass(0)
    known: dict[
        bytes, tuple[int, int]
    ] = {}  # when it is due, as told from before and after its command
    ended = []
    for _ in range(3000):
        number = dice.random()
        if number < 0.5:
            delay_ms = dice.randrange(1, 1000)
            before_ns = let_pass(0)
            id = peer.defer(delay_ms=delay_ms)
            known[id] = (before_ns + delay_ms * 1_000_000, let_pass(0) + delay_ms * 1_000_000)
        elif number < 0.9 and known:
            id = dice.choice(list(known))
            del known[id]
            ended.append(id)
            assert peer.end(dice.choice([b"CANCEL_DEFERRED", b"RUN_DEFERRED"]), id) == 2
        elif ended:
            assert peer.cancel(dice.choice(ended)) == 0
        if number > 0.98:
            now_ns = let_pass(dice.randrange(300_000_000))
            while any(first_ns <= now_ns <= last_ns for first_ns, last_ns in known.values()):
                now_ns = let_pass(1000)
            registry.timers.run(now_ns)
            due = [id for id, (_, last_ns) in known.items() if last_ns < now_ns]
            for id in due:
                del known[id]
            ended += due
            assert deferred(topic) == [len(known)] * 2
