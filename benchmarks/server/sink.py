"""The null limit: a process that answers a generator without reading its commands.

It replaces a broker in a round; it has no topics or counters, so any state counts as reached.
"""

from __future__ import annotations

import multiprocessing
import signal
import socket
from typing import Any, Self

NULL = "null"
LIFETIME_SECONDS_MAX = 3600.0
BACKLOG = 1024


def _serve(listener: socket.socket, command_size: int, message_size: int) -> None:
    from nsqfast._ext.dev.null_peer import serve

    # It runs without Python, which would keep SIGTERM for later.
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    serve(listener.fileno(), command_size, message_size, LIFETIME_SECONDS_MAX)


class Sink:
    """Every `command_size` bytes get one OK, a consumer gets messages of `message_size` bytes."""

    name = NULL
    is_endless = True
    mem_queue_size = 0

    def __init__(self, command_size: int, message_size: int) -> None:
        listener = socket.create_server(("127.0.0.1", 0), backlog=BACKLOG)
        listener.setblocking(False)
        self.tcp = f"127.0.0.1:{listener.getsockname()[1]}"
        context = multiprocessing.get_context("fork")
        self._process = context.Process(
            target=_serve, args=(listener, command_size, message_size), daemon=True
        )
        self._process.start()
        listener.close()
        assert self._process.pid is not None
        self.pid: int = self._process.pid

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def stop(self) -> None:
        """End it; nothing is lost."""
        self._process.terminate()
        self._process.join()

    def create(self, _topic: str, _channels: tuple[str, ...]) -> None:
        """It accepts any topic."""

    def delete(self, _topic: str) -> None:
        """It keeps nothing."""

    def wait_queued(self, _topic: str, _messages: int) -> None:
        """An OK is all it does for a message."""

    def wait_finished(self, _topic: str) -> None:
        """It does not count."""

    def wait_for(self, _topic: str, _wanted: Any) -> dict[str, Any]:
        """Nothing is expected of it."""
        return {}
