"""Ports of 127.0.0.1 that are kept free: suites run beside each other, and the kernel gives a free port to anybody."""

from __future__ import annotations

import collections
import contextlib
import socket

# A test needs a few at a time.
HELD_MAX = 64
_held: collections.deque[socket.socket] = collections.deque()


def hold_port(port: int = 0) -> int:
    """A port that refuses connections until a server of the test takes it; nobody else is given it.

    A socket that is bound and does not listen keeps it; one that listens with SO_REUSEADDR, as servers do, gets it all
    the same. OSError: something listens at `port`.
    """
    holder = socket.socket()
    try:
        holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        holder.bind(("127.0.0.1", port))
    except OSError:
        holder.close()
        raise
    _held.append(holder)
    while len(_held) > HELD_MAX:
        _held.popleft().close()
    return int(holder.getsockname()[1])


def hold_ports_left(ports: list[int]) -> None:
    """Those of a server that has ended, which may come back; where something else listens already, it does."""
    for port in ports:
        with contextlib.suppress(OSError):
            hold_port(port)
