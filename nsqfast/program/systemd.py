"""Tell systemd how the program is doing, for units with Type=notify: the protocol of sd_notify(3).

A message is one datagram of KEY=VALUE lines to the socket that NOTIFY_SOCKET names: a path, or an abstract name behind
`@`. Without the variable the program was not started by such a unit, and nothing is sent.
"""

import asyncio
import contextlib
import logging
import os
import socket
import time
from collections.abc import Iterator

log = logging.getLogger(__name__)

SEND_TIMEOUT_S = 1.0  # systemd reads at once; if it does not, the program goes on
EXTENSION_S = 60  # longer than it takes to the next report of a long start or stop


def notify(*lines: str) -> None:
    """Send these lines as one message. Failures are logged, because serving is possible without systemd."""
    name = os.environ.get("NOTIFY_SOCKET", "")
    if not name:
        return
    address = f"\0{name[1:]}" if name[0] == "@" else name
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sender:
            sender.settimeout(SEND_TIMEOUT_S)
            sender.sendto("\n".join(map(_one_line, lines)).encode(), address)
    except OSError as error:
        log.warning("NOTIFY_SOCKET %s: %s", name, error)


def _one_line(text: str) -> str:
    return text.replace("\n", " ")


def notify_progress(text: str) -> None:
    """Report a start or stop that takes long, and ask for more time, so that it is not killed half-way."""
    notify(f"STATUS={text}", f"EXTEND_TIMEOUT_USEC={EXTENSION_S * 1_000_000}", "WATCHDOG=1")


class Service:
    """The states of a daemon as systemd knows them: starting, ready, reloading, stopping."""

    def __init__(self) -> None:
        self._is_ready = False

    def ready(self, status: str) -> None:
        """It serves."""
        self._is_ready = True
        notify("READY=1", f"STATUS={status}")

    @contextlib.contextmanager
    def reloading(self) -> Iterator[None]:
        """Around a reload; nothing is sent before the daemon is ready or once it stops."""
        if not self._is_ready:
            yield
            return
        notify("RELOADING=1", f"MONOTONIC_USEC={time.monotonic_ns() // 1000}")
        try:
            yield
        finally:
            notify("READY=1")

    def stopping(self) -> None:
        """It begins to stop."""
        self._is_ready = False
        notify("STOPPING=1", "STATUS=stopping")


class Watchdog:
    """Says from the event loop that the program is alive, twice in each WatchdogSec of the unit."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._interval_s = _watchdog_s() / 2
        self._timer: asyncio.TimerHandle | None = None

    def start(self) -> None:
        """Begin; without WatchdogSec there is nothing to do."""
        if self._interval_s:
            notify("WATCHDOG=1")
            self._timer = self._loop.call_later(self._interval_s, self.start)

    def stop(self) -> None:
        """End."""
        if self._timer is not None:
            self._timer.cancel()


def _watchdog_s() -> float:
    """Return WatchdogSec, which systemd hands down in microseconds; 0 if it is meant for another process or not set."""
    if os.environ.get("WATCHDOG_PID", str(os.getpid())) != str(os.getpid()):
        return 0.0
    text = os.environ.get("WATCHDOG_USEC", "")
    return int(text) / 1_000_000 if text.isascii() and text.isdigit() else 0.0
