"""Large HTTP bodies share a turn of the loop, however many come at once: counted in bytes, never in time."""

import asyncio

import pytest
from nsqfast._ext.dev.probes import fix_parts, used_bytes

from support.core import NEVER
from support.http import HttpBroker, post

COUNT = 30
BODY = b"x" * 900_000
LARGE = 16 * 1024  # more of a body than this is large
TURN_SIZE_MAX = 12 * 65536  # of large bodies: the read that exceeds half a MiB ends it
FREED_AT_ONCE = 5


@pytest.fixture
def broker(tmp_path):
    fix_parts(NEVER)
    one = HttpBroker(tmp_path, has_shortcut=True, max_msg_size=1 << 20, max_body_size=1 << 20)
    yield one
    fix_parts(NEVER)
    one.registry.topics.close()
    fix_parts(0)


class Sender:
    """What a peer sends is read as a loop does it: until nothing is left, or it is told to pause."""

    def __init__(self, broker, data):
        self.protocol, self.wire = broker.connect()
        self.left = memoryview(data)

    def read(self):
        """Returns how many bytes that were."""
        before = len(self.left)
        while self.left and self.wire.is_reading:
            room = memoryview(self.protocol.get_buffer(-1))
            size = min(len(room), len(self.left))
            room[:size] = self.left[:size]
            room.release()
            self.left = self.left[size:]
            self.protocol.buffer_updated(size)
        return before - len(self.left)


async def send_all(broker, data):
    """All at once; returns the senders."""
    senders = [Sender(broker, data) for _ in range(COUNT)]
    while any(sender.left for sender in senders):
        read = sum(sender.read() for sender in senders)
        assert read < TURN_SIZE_MAX + COUNT * 2 * LARGE
        await asyncio.sleep(0)
    return senders


@pytest.mark.parametrize("target", ["/pub?topic=t", "/mpub?topic=t"])
async def test_they_share_a_turn(broker, target):
    before = used_bytes()
    senders = await send_all(broker, post(target, BODY))
    for sender in senders:
        while not sender.wire.written:
            await asyncio.sleep(0)
        assert sender.wire.written.startswith(b"HTTP/1.1 200 OK")
        assert sender.wire.is_reading
    assert broker.topics()["t"] == ((COUNT, COUNT * len(BODY), COUNT, 0), [BODY] * COUNT)
    assert used_bytes() - before < COUNT * 4096  # the messages were taken, and no body is kept


async def test_many_that_leave_in_the_middle(broker):
    """Freeing the memory of one takes as long as some hundred commands."""
    before = used_bytes()
    senders = await send_all(broker, post("/pub?topic=t", BODY)[:-1])
    assert used_bytes() - before >= COUNT * 850_000
    fix_parts(FREED_AT_ONCE * 64)
    for sender in senders:
        sender.protocol.connection_lost(None)
    left = used_bytes()
    while left > before:
        await asyncio.sleep(0)
        assert left - used_bytes() <= FREED_AT_ONCE * 900_000
        left = used_bytes()
    assert broker.registry.topics.sorted() == []


async def test_a_small_one_does_not_wait_for_them(broker):
    """It is whole after one read, however much of large ones the turn had."""
    senders = [Sender(broker, post("/pub?topic=t", BODY)) for _ in range(COUNT)]
    other = Sender(broker, post("/pub?topic=u", b"y" * 1000))
    for sender in [*senders, other]:
        sender.read()
    assert other.wire.written.startswith(b"HTTP/1.1 200 OK")
    assert all(sender.left for sender in senders)
    for sender in senders:
        sender.protocol.connection_lost(None)
    await asyncio.sleep(0)


async def test_waiting_for_a_turn_gives_no_time(broker):
    """The limit on a request counts from its first byte."""
    senders = [Sender(broker, post("/pub?topic=t", BODY)[:-1]) for _ in range(COUNT)]
    first = [sender.protocol for sender in senders]
    begun = None
    while any(sender.left for sender in senders):
        for sender in senders:
            sender.read()
        begun = begun or [protocol._begun for protocol in first]
        await asyncio.sleep(0)
    assert [protocol._begun for protocol in first] == begun
    for sender in senders:
        sender.protocol.connection_lost(None)
