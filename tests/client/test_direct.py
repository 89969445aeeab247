"""Direct against real brokers of both implementations (tests/ext/test_direct.py has every way it can end)."""

import time

import pytest
from nsqfast._ext.client.direct import Direct

from nsqfast.errors import PublishRefusedError
from support.wire import Client

NSQD_FLAGS = ("--max-msg-size=1000000", "--max-body-size=5000000")
FAR_S = 20.0


def connect(server, **fields):
    client = Client(server.tcp)
    client.identify(**{"heartbeat_interval": -1, "feature_negotiation": True, **fields})
    return Direct(client.socket.detach())


@pytest.fixture
def direct(broker):
    made = connect(broker)
    yield made
    made.close()


@pytest.fixture
def consumer(broker, topic):
    with Client(broker.tcp) as client:
        client.sub(topic, "c", 1000)
        yield client


def bodies(consumer, count):
    return [message.body for message in consumer.read_messages(count)]


def test_one_after_the_other(direct, consumer, topic):
    sent = [b"%d" % number for number in range(1000)]
    for body in sent:
        assert direct.ask(b"PUB %s\n" % topic.encode(), body, FAR_S) == b"OK"
    assert sorted(bodies(consumer, 1000)) == sorted(sent)


def test_several_at_once(direct, consumer, topic):
    sent = [b"a", b"b" * 70_000, b"c" * 999_999]
    assert direct.ask(b"MPUB %s\n" % topic.encode(), sent, FAR_S) == b"OK"
    assert sorted(bodies(consumer, 3)) == sent


@pytest.mark.slow  # Go looks for new channels with deferred messages every five seconds
def test_later(direct, consumer, topic):
    begun = time.monotonic()
    assert direct.ask(b"DPUB %s 100\n" % topic.encode(), b"late", FAR_S) == b"OK"
    assert bodies(consumer, 1) == [b"late"]
    assert time.monotonic() - begun >= 0.1


@pytest.mark.slow
def test_heartbeats_are_answered_with_the_next_publish(broker, topic):
    """nsqd hangs up after one that is not; the heartbeats of a second connection tell when another is due."""
    direct = connect(broker, heartbeat_interval=1000)
    with Client(broker.tcp) as clock:
        clock.identify(heartbeat_interval=1000, feature_negotiation=True)
        for _ in range(3):
            assert clock.read_frame().data == b"_heartbeat_"
            clock.command("NOP")
            assert direct.ask(b"PUB %s\n" % topic.encode(), b"x", FAR_S) == b"OK"
    direct.close()


@pytest.mark.parametrize(
    ("head", "body", "code"),
    [
        (b"PUB not:valid\n", b"x", "E_BAD_TOPIC"),
        (b"PUB t\n", b"x" * 1_000_001, "E_BAD_MESSAGE"),
        (b"MPUB t\n", [b"x" * 999_999] * 6, "E_BAD_BODY"),
        (b"MPUB t\n", [b"x", b"x" * 1_000_001], "E_BAD_MESSAGE"),
        (b"DPUB t 99999999999\n", b"x", "E_INVALID"),
        (b"NONSENSE\n", b"x", "E_INVALID"),
    ],
)
def test_refused(direct, head, body, code):
    with pytest.raises(PublishRefusedError) as caught:
        direct.ask(head, body, FAR_S)
    assert caught.value.code == code
    assert not direct.is_open
    assert code in str(direct.error)
