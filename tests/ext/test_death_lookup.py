"""DEATHS while its answer is awaited: what is behind it, what goes on meanwhile, and how it ends."""

import asyncio

import pytest

from support.core import Peer, make_registry

OK = (0, b"OK")
ASK = b"DEATHS\n\0\0\0\x20" + b"%016x%016x" % (1, 2**64 - 1)
IDENTITY = b'{"feature_negotiation":true,"reject":true,"heartbeat_interval":1000}'


class Questions:
    """Keeps them until the test answers them."""

    def __init__(self):
        self.asked = []
        self.futures = []

    def __call__(self, topic, ids):
        self.asked.append((topic, ids))
        self.futures.append(asyncio.get_running_loop().create_future())
        return self.futures[-1]


@pytest.fixture
def registry(tmp_path):
    registry = make_registry(tmp_path)
    registry.topics.ensure("t").take_dead_letters()
    registry.find_deaths = Questions()
    yield registry
    registry.topics.close()


def subscribe(registry):
    peer = Peer(registry)
    peer.send(b"IDENTIFY\n" + len(IDENTITY).to_bytes(4, "big") + IDENTITY)
    peer.send(b"SUB t c\n")
    assert peer.receive()[-1] == OK
    return peer


async def answer(future, data):
    """Its callback runs in the next turn of the loop."""
    future.set_result(data)
    await asyncio.sleep(0)


@pytest.mark.parametrize("size", [1, 1 << 20])
async def test_in_order(registry, size):
    """Whole, and a byte at a time; one question after the other."""
    peer, asked = subscribe(registry), registry.find_deaths
    data = ASK + b"PUB t\n\0\0\0\1x" + ASK
    for start in range(0, len(data), size):
        peer.send(data[start : start + size])
    assert peer.receive() == []
    assert asked.asked == [("t", [1, 2**64 - 1])]
    await answer(asked.futures[0], b'{"a":1}')
    assert peer.receive() == [(0, b'{"a":1}'), OK]
    await answer(asked.futures[1], b"{}")
    assert peer.receive() == [(0, b"{}")]
    assert len(asked.asked) == 2
    peer.close()


async def test_deliveries_go_on(registry):
    peer, other = subscribe(registry), Peer(registry)
    peer.send(b"RDY 1\n" + ASK)
    other.send(b"PUB t\n\0\0\0\1x")
    assert [kind for kind, _ in peer.receive()] == [2]
    await answer(registry.find_deaths.futures[0], b"{}")
    assert peer.receive() == [(0, b"{}")]
    peer.close()
    other.close()


async def test_an_end_meanwhile_cancels(registry):
    """Also one that was answered, and not told yet."""
    for is_answered in (False, True):
        peer = subscribe(registry)
        peer.send(ASK)
        future = registry.find_deaths.futures[-1]
        if is_answered:
            future.set_result(b"{}")
        peer.close()
        assert future.cancelled() is not is_answered
        await asyncio.sleep(0)
        assert peer.decode_all() == []
    assert registry.turn.client_count() == 0


async def test_the_end_of_input_does_not(registry):
    peer = subscribe(registry)
    peer.send(ASK)
    assert peer.connection.eof_received() is True
    await answer(registry.find_deaths.futures[0], b"{}")
    assert peer.decode_all() == [(0, b"{}")]
    assert peer.transport.is_closing


async def test_what_cannot_be_read(registry, caplog):
    """Nothing is known, and the log has why."""
    peer = subscribe(registry)
    peer.send(ASK)
    registry.find_deaths.futures[0].set_exception(ValueError("torn"))
    await asyncio.sleep(0)
    assert peer.receive() == [(0, b"{}")]
    assert "DEATHS: they cannot be read" in caplog.text
    peer.close()


async def test_nobody_is_asked_for_nothing(registry):
    """A topic without dead letters costs the thread nothing."""
    peer = Peer(registry)
    peer.send(b"IDENTIFY\n" + len(IDENTITY).to_bytes(4, "big") + IDENTITY + b"SUB u c\n" + ASK)
    assert peer.receive()[-1] == (0, b"{}")
    assert registry.find_deaths.asked == []
    peer.close()
