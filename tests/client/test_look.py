"""A publish that is awaited alone: the loop looks for the answer for a moment before it sleeps (docs/CLIENT.md)."""

import pytest
from nsqfast._ext.client.publish_connection import Dispatcher, PublishConnection

from support.still import Loop, Transport, deliver
from support.wire import encode_frame

OK = encode_frame(0, b"OK")
TURNS_MAX = 1_000_000  # a look is some microseconds long


def turns_until_sleep(loop):
    for count in range(TURNS_MAX):
        if not loop.soon:
            return count
        loop.turn()
    raise AssertionError("it never sleeps")


class Publisher:
    """One connection."""

    def __init__(self):
        self.loop = Loop()
        self.connection = PublishConnection(self.loop, lambda _connection: None)
        self.connection.connection_made(Transport())
        self.dispatcher = Dispatcher(self.loop, 100_000, 1 << 20, 0, 0, False)
        self.dispatcher.join(self.connection, 0)

    def publish(self):
        return self.dispatcher.send("t", b"x", False)

    def answer(self):
        deliver(self.connection, OK)


@pytest.fixture
def publisher():
    return Publisher()


def test_it_ends_with_the_answer(publisher):
    for _ in range(100):
        future = publisher.publish()
        assert publisher.loop.soon
        publisher.answer()
        assert future.done()
        assert turns_until_sleep(publisher.loop) <= 1


def test_it_ends_without_one(publisher):
    publisher.publish()
    assert turns_until_sleep(publisher.loop) >= 1


def test_there_is_one_at_a_time(publisher):
    for _ in range(1000):
        publisher.publish()
    assert len(publisher.loop.soon) == 2  # the other writes what was gathered


def test_where_it_does_not_pay_it_is_left_out(publisher):
    looks = 0
    for _ in range(8 + 10 * 64):
        publisher.publish()
        looks += turns_until_sleep(publisher.loop) > 0
        publisher.answer()
    assert looks == 8 + 10


def test_where_it_pays_again_it_is_back(publisher):
    for _ in range(8):
        publisher.publish()
        turns_until_sleep(publisher.loop)
        publisher.answer()
    for count in range(1, 65):
        publisher.publish()
        assert bool(publisher.loop.soon) == (count == 64)
        publisher.answer()
    publisher.publish()
    assert publisher.loop.soon


def test_it_ends_with_the_connection(publisher):
    future = publisher.publish()
    publisher.connection.connection_lost(None)
    publisher.loop.turn()
    assert turns_until_sleep(publisher.loop) <= 2
    assert future.exception() is not None
