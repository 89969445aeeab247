"""What the topics of an embedded broker can do beyond others: keep what was published, and let time pass."""

import pytest
from nsqfast._ext.broker import embedded
from nsqfast._ext.broker.embedded import EmbeddedTopics
from nsqfast._ext.broker.mpub_bodies import Bodies
from nsqfast._ext.dev.probes import let_pass

from support.core import SECOND_NS, Peer, make_registry

YEAR_NS = 366 * 86_400 * SECOND_NS


@pytest.fixture
def registry(tmp_path):
    registry = make_registry(tmp_path, EmbeddedTopics)
    yield registry
    registry.topics.close()


def body(text):
    return len(text).to_bytes(4, "big") + text


def defer(peer, delay_ms, text):
    peer.send(b"DPUB t %d\n%s" % (delay_ms, body(text)))


def take_bodies(peer):
    """Those that it was delivered since the last call, finished."""
    frames = [data for kind, data in peer.receive() if kind == 2]
    for data in frames:
        peer.send(b"FIN %s\n" % data[10:26])
    return [data[26:] for data in frames]


def run_due(registry):
    registry.timers.run(let_pass(0))


def test_deferred_messages_come_in_their_order(registry):
    producer, consumer = Peer(registry), Peer(registry)
    consumer.subscribe(b"t", b"c", 100)
    delays_s = [50, 10, 40, 20, 30, 60]
    for delay_s in delays_s:
        defer(producer, delay_s * 1000, b"%d" % delay_s)
    channel = registry.topics.ensure("t").channel("c")
    run_due(registry)
    assert (take_bodies(consumer), channel.deferred_count) == ([], 6)
    assert registry.topics.let_pass(5 * SECOND_NS) == 0
    assert registry.topics.let_pass(20 * SECOND_NS) == 2
    run_due(registry)
    assert take_bodies(consumer) == [b"10", b"20"]
    # One more that has to find its place among those that were moved.
    defer(producer, 10_000, b"35")
    assert registry.topics.let_pass(YEAR_NS) == 5
    run_due(registry)
    assert take_bodies(consumer) == [b"30", b"35", b"40", b"50", b"60"]
    assert registry.topics.let_pass(YEAR_NS) == 0


def test_all_channels_have_their_own(registry):
    producer, consumer = Peer(registry), Peer(registry)
    registry.topics.ensure("t").channel("other")
    consumer.subscribe(b"t", b"c", 1)
    defer(producer, 60_000, b"x")
    assert registry.topics.let_pass(60 * SECOND_NS) == 2
    run_due(registry)
    other = registry.topics.ensure("t").channel("other")
    assert (take_bodies(consumer), other.depth, other.deferred_count) == ([b"x"], 1, 0)


def test_a_requeued_message_comes_earlier(registry):
    producer, consumer = Peer(registry), Peer(registry)
    consumer.subscribe(b"t", b"c", 1)
    producer.send(b"PUB t\n" + body(b"x"))
    [message] = [data for kind, data in consumer.receive() if kind == 2]
    consumer.send(b"REQ %s 3600000\n" % message[10:26])
    assert registry.topics.let_pass(3599 * SECOND_NS) == 0
    assert registry.topics.let_pass(SECOND_NS) == 1
    run_due(registry)
    assert take_bodies(consumer) == [b"x"]


def test_what_is_in_flight_does_not_time_out(registry):
    producer, consumer = Peer(registry), Peer(registry)
    consumer.subscribe(b"t", b"c", 1)
    producer.send(b"PUB t\n" + body(b"x"))
    consumer.receive()
    assert registry.topics.let_pass(3600 * SECOND_NS) == 0
    run_due(registry)
    channel = registry.topics.ensure("t").channel("c")
    assert (channel.in_flight_count, channel.timeout_count) == (1, 0)


def test_a_delay_without_a_channel_is_shortened(registry):
    producer, consumer = Peer(registry), Peer(registry)
    for delay_s in (30, 120):
        defer(producer, delay_s * 1000, b"%d" % delay_s)
    assert registry.topics.let_pass(90 * SECOND_NS) == 0
    consumer.subscribe(b"t", b"c", 2)
    registry.timers.run(let_pass(SECOND_NS))
    assert take_bodies(consumer) == [b"30"]
    assert registry.topics.let_pass(29 * SECOND_NS) == 1
    run_due(registry)
    assert take_bodies(consumer) == [b"120"]


def test_bodies_are_kept_however_they_came(registry):
    producer = Peer(registry)
    told = []
    registry.topics.on_message = lambda: told.append(len(registry.topics.ensure("t").bodies))
    producer.send(b"PUB t\n" + body(b"a"))
    defer(producer, 1000, b"b")
    many = (2).to_bytes(4, "big") + body(b"c") + body(b"d")
    producer.send(b"MPUB t\n" + body(many))
    topic = registry.topics.ensure("t")
    topic.put(b"e")
    lines = Bodies(topic, b"f\ng", False)
    assert lines.check()
    lines.put()
    assert topic.bodies == [b"a", b"b", b"c", b"d", b"e", b"f", b"g"]
    assert told == [1, 2, 3, 4, 5, 6, 7]
    registry.topics.delete("t")
    assert registry.topics.ensure("t").bodies == []


def test_bodies_have_a_bound(registry):
    topic, large = registry.topics.ensure("t"), bytes(1 << 20)
    for _ in range(100):
        topic.put(large)
    topic.put(b"after")
    assert topic.bodies == [large] * (embedded.BODY_BYTES_MAX >> 20)
    topic = registry.topics.ensure("small")
    for _ in range(embedded.BODY_COUNT_MAX + 1):
        topic.put(b"x")
    assert len(topic.bodies) == embedded.BODY_COUNT_MAX
    assert topic.message_count == embedded.BODY_COUNT_MAX + 1


def test_other_topics_have_none_of_it(tmp_path):
    registry = make_registry(tmp_path)
    topic = registry.topics.ensure("t")
    assert [hasattr(registry.topics, name) for name in ("let_pass", "on_message")] == [False, False]
    assert not hasattr(topic, "bodies")
    registry.topics.close()
