"""Connections that come all at once, and how many descriptors they may take."""

import asyncio
import socket
from resource import RLIM_INFINITY

import pytest

from nsqfast.net import descriptor_reserve
from nsqfast.net.descriptor_reserve import DescriptorReserve
from nsqfast.net.listener import BATCH_COUNT, Listener

COUNT = 3 * BATCH_COUNT + 3
SECONDS_MAX = 50


class CountingReserve(DescriptorReserve):
    """Says in which turn of the loop each connection was accepted."""

    def __init__(self, loop):
        super().__init__(loop)
        self.turn = 0
        self.turns = []
        self.all_came = asyncio.Event()
        self.count_turns()

    def count_turns(self):
        self.turn += 1
        if not self.all_came.is_set():
            self._loop.call_soon(self.count_turns)

    def admits(self, descriptor):
        self.turns.append(self.turn)
        if len(self.turns) == COUNT:
            self.all_came.set()
        return super().admits(descriptor)


async def accept_all():
    loop = asyncio.get_running_loop()
    with socket.create_server(("127.0.0.1", 0), backlog=COUNT) as server:
        server.setblocking(False)
        clients = [socket.create_connection(server.getsockname()) for _ in range(COUNT)]
        reserve = CountingReserve(loop)
        listener = Listener("TCP", server, asyncio.Protocol, reserve, open_count=int)
        listener.start()
        await asyncio.wait_for(reserve.all_came.wait(), SECONDS_MAX)
        listener.close()
        reserve.close()
        for client in clients:
            client.close()
        return reserve.turns


def test_only_so_many_are_accepted_in_one_turn():
    turns = asyncio.run(accept_all())
    assert len(turns) == COUNT
    assert max(turns.count(turn) for turn in turns) == BATCH_COUNT


@pytest.mark.parametrize(
    ("limit", "count"), [(96, 72), (20_000, 20_000 - 256), (RLIM_INFINITY, 1 << 31)]
)
def test_the_highest_descriptors_are_for_files(monkeypatch, limit, count):
    """Of those that the process may open, where it could not raise its limit."""
    limits = limit, RLIM_INFINITY
    monkeypatch.setattr(descriptor_reserve.resource, "getrlimit", lambda _kind: limits)

    async def judge():
        reserve = DescriptorReserve(asyncio.get_running_loop())
        judged = [reserve.admits(count - 1), reserve.admits(count)]
        reserve.close()
        return judged

    assert asyncio.run(judge()) == [True, False]
