"""For how long a consumer holds messages without finishing one: what ends that, and what does not."""

import pytest
from nsqfast._ext.dev.probes import let_pass

from support.core import SECOND_NS, Peer, make_registry


@pytest.fixture
def registry(tmp_path):
    registry = make_registry(tmp_path, msg_timeout_ns=15 * SECOND_NS)
    yield registry
    registry.topics.close()


def message_ids(frames):
    return [data[10:26] for kind, data in frames if kind == 2]


def publish(peer, count):
    peer.send(b"PUB t\n\0\0\0\1x" * count)
    peer.receive()


def subscribe(registry, rdy):
    peer = Peer(registry)
    peer.subscribe(b"t", b"c", rdy)
    peer.receive()
    return peer


def held_s(peer):
    return round(peer.session.held_ns() / SECOND_NS)


def channel_held_s(registry):
    return round(registry.topics.find("t").find_channel("c").held_ns() / SECOND_NS)


def pass_s(registry, seconds):
    registry.timers.run(let_pass(seconds * SECOND_NS))


def test_nothing_in_flight_is_nothing_held(registry):
    peer = subscribe(registry, 2)
    pass_s(registry, 20)
    assert (held_s(peer), channel_held_s(registry)) == (0, 0)
    publish(peer, 1)
    assert held_s(peer) == 0
    pass_s(registry, 5)
    assert (held_s(peer), channel_held_s(registry)) == (5, 5)


@pytest.mark.parametrize(
    ("command", "left_s"), [(b"FIN %s\n", 0), (b"REQ %s 60000\n", 0), (b"TOUCH %s\n", 5)]
)
def test_what_is_progress(registry, command, left_s):
    peer, producer = subscribe(registry, 2), Peer(registry)
    publish(producer, 2)
    one, _ = message_ids(peer.receive())
    pass_s(registry, 5)
    peer.send(command % one)
    assert held_s(peer) == left_s
    pass_s(registry, 7)
    assert held_s(peer) == left_s + 7


def test_the_longest_of_all_counts(registry):
    stuck, busy, producer = subscribe(registry, 1), subscribe(registry, 1), Peer(registry)
    publish(producer, 2)
    for _ in range(3):
        pass_s(registry, 4)
        publish(producer, 1)
        for each in message_ids(busy.receive()):
            busy.send(b"FIN %s\n" % each)
    assert (held_s(stuck), channel_held_s(registry)) == (12, 12)
    assert held_s(busy) == 0
    channel = registry.topics.find("t").find_channel("c")
    assert (channel.finish_count, channel.delivery_count) == (3, 5)


def test_a_message_that_times_out_and_comes_back_goes_on_being_held(registry):
    """So a consumer that hangs is one, with --msg-timeout shorter than anybody looks."""
    stuck, producer = subscribe(registry, 3), Peer(registry)
    publish(producer, 3)
    for _ in range(3):
        pass_s(registry, 16)
    assert held_s(stuck) == 48
    assert stuck.session.timeout_count == 9
    assert 0 < stuck.session.oldest_in_flight_ns() < SECOND_NS


def test_who_had_nothing_for_long_begins_anew(registry):
    stuck, producer = subscribe(registry, 1), Peer(registry)
    publish(producer, 1)
    stuck.send(b"RDY 0\n")
    pass_s(registry, 16)
    assert held_s(stuck) == 0
    pass_s(registry, 16)
    stuck.send(b"RDY 1\n")
    pass_s(registry, 2)
    assert held_s(stuck) == 2


def test_the_oldest_was_delivered_first_though_it_was_touched(registry):
    peer, producer = subscribe(registry, 3), Peer(registry)
    publish(producer, 1)
    (one,) = message_ids(peer.receive())
    pass_s(registry, 5)
    publish(producer, 2)
    peer.send(b"TOUCH %s\n" % one)
    pass_s(registry, 7)
    assert round(peer.session.oldest_in_flight_ns() / SECOND_NS) == 12
    peer.send(b"FIN %s\n" % one)
    assert round(peer.session.oldest_in_flight_ns() / SECOND_NS) == 7
