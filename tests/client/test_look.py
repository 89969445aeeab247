"""A publish that is awaited alone: the loop looks for the answer for a moment before it sleeps (docs/CLIENT.md)."""

from __future__ import annotations

import asyncio
from collections import deque
from typing import TYPE_CHECKING, Any

import pytest
from nsqfast._ext.outbox import Dispatcher, Outbox

from support.wire import encode_frame

if TYPE_CHECKING:
    from collections.abc import Callable

OK = encode_frame(0, b"OK")
TURNS_MAX = 1_000_000  # a look is some microseconds long


class Loop:
    """Only what the two need; turns are taken by the test."""

    def __init__(self) -> None:
        self.soon: deque[Callable[[], None]] = deque()

    def create_future(self) -> asyncio.Future[None]:
        return asyncio.Future(loop=self)  # type: ignore[arg-type]

    def call_soon(self, callback: Callable[..., None], *_: Any, **__: Any) -> None:
        self.soon.append(callback)

    def call_later(self, *_: Any) -> Any:
        raise AssertionError("no deadline was wished for")

    def get_debug(self) -> bool:
        return False

    def turn(self) -> None:
        for _ in range(len(self.soon)):
            self.soon.popleft()()

    def turns_until_sleep(self) -> int:
        for count in range(TURNS_MAX):
            if not self.soon:
                return count
            self.turn()
        raise AssertionError("it never sleeps")


class Transport:
    def __init__(self) -> None:
        self.written = b""

    def set_write_buffer_limits(self, _high: int) -> None:
        pass

    def write(self, data: bytes) -> None:
        self.written += data


class Publisher:
    """One connection."""

    def __init__(self) -> None:
        self.loop = Loop()
        self.link = Outbox(self.loop, lambda _link: None)  # type: ignore[arg-type]
        self.link.connection_made(Transport())  # type: ignore[arg-type]
        self.dispatcher = Dispatcher(self.loop, 100_000, 1 << 20, 0, 0, False)  # type: ignore[arg-type]
        self.dispatcher.join(self.link, 0)

    def publish(self) -> asyncio.Future[None]:
        return self.dispatcher.send("t", b"x", False)

    def answer(self) -> None:
        room = memoryview(self.link.get_buffer(-1))  # type: ignore[arg-type]
        room[: len(OK)] = OK
        room.release()
        self.link.buffer_updated(len(OK))


@pytest.fixture
def publisher() -> Publisher:
    return Publisher()


def test_it_ends_with_the_answer(publisher):
    for _ in range(100):
        future = publisher.publish()
        assert publisher.loop.soon
        publisher.answer()
        assert future.done()
        assert publisher.loop.turns_until_sleep() <= 1


def test_it_ends_without_one(publisher):
    publisher.publish()
    assert publisher.loop.turns_until_sleep() >= 1


def test_there_is_one_at_a_time(publisher):
    for _ in range(1000):
        publisher.publish()
    assert len(publisher.loop.soon) == 2  # the other writes what was gathered


def test_where_it_does_not_pay_it_is_left_out(publisher):
    looks = 0
    for _ in range(8 + 10 * 64):
        publisher.publish()
        looks += publisher.loop.turns_until_sleep() > 0
        publisher.answer()
    assert looks == 8 + 10


def test_where_it_pays_again_it_is_back(publisher):
    for _ in range(8):
        publisher.publish()
        publisher.loop.turns_until_sleep()
        publisher.answer()
    for count in range(1, 65):
        publisher.publish()
        assert bool(publisher.loop.soon) == (count == 64)
        publisher.answer()
    publisher.publish()
    assert publisher.loop.soon


def test_it_ends_with_the_connection(publisher):
    future = publisher.publish()
    publisher.link.connection_lost(None)
    publisher.loop.turn()
    assert publisher.loop.turns_until_sleep() <= 2
    assert future.exception() is not None
