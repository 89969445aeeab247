"""A network of a broker's own, whose cable can be pulled; and what the kernel knows of its connections."""

from __future__ import annotations

import ctypes
import fcntl
import os
import socket
import struct
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

CLONE_NEWNET = 0x40000000
SIOCSIFFLAGS = 0x8914
IFF_UP = 1

_libc = ctypes.CDLL(None, use_errno=True)


def leave_network() -> None:
    """This process (or thread) moves to a new network namespace, where only 127.0.0.1 is; OSError."""
    if _libc.unshare(CLONE_NEWNET):
        raise OSError(ctypes.get_errno(), "unshare")
    set_loopback(is_up=True)


def can_leave_network() -> bool:
    """Whether that is permitted; tried in a thread, which alone moves."""
    with ThreadPoolExecutor(1) as thread:
        try:
            thread.submit(leave_network).result()
        except OSError:
            return False
        return True


def set_loopback(*, is_up: bool) -> None:
    request = struct.pack("16sH14x", b"lo", IFF_UP if is_up else 0)
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
        fcntl.ioctl(any_socket, SIOCSIFFLAGS, request)


def run_within(process_id: int, call: Callable[[], Any]) -> Any:
    """`call()` in the network of that process; sockets opened there stay there."""

    def move() -> Any:
        namespace = os.open(f"/proc/{process_id}/ns/net", os.O_RDONLY)
        try:
            if _libc.setns(namespace, CLONE_NEWNET):
                raise OSError(ctypes.get_errno(), "setns")
        finally:
            os.close(namespace)
        return call()

    with ThreadPoolExecutor(1) as thread:
        return thread.submit(move).result()


def keep_alive_due_s(process_id: int, port: int, peer_port: int) -> float | None:
    """Until the kernel asks that peer of 127.0.0.1:port whether it lives; None if it never will."""
    ends = f"0100007F:{port:04X}", f"0100007F:{peer_port:04X}"
    for line in Path(f"/proc/{process_id}/net/tcp").read_text().splitlines()[1:]:
        words = line.split()
        if (words[1], words[2]) == ends:
            kind, due = words[5].split(":")
            return int(due, 16) / os.sysconf("SC_CLK_TCK") if kind == "02" else None
    raise LookupError(f"no connection {ends}")
