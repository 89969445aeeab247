"""pynsq: callbacks on tornado's loop."""

from __future__ import annotations

from typing import Any

import nsq
from common import BATCH, CHANNEL, IN_FLIGHT, OUTSTANDING, Load, Watch, arguments
from tornado.ioloop import IOLoop


class Publishing:
    """Awaits so many answers at a time."""

    def __init__(self, load: Load, watch: Watch | None = None) -> None:
        self._load = load
        self._watch = watch
        self.writer = nsq.Writer([load.address])
        self._commands = load.count // (BATCH if load.scenario == "mpub" else 1)
        self._sent = self._answered = 0
        self._outstanding = 1 if load.scenario in {"pub_one", "mpub"} else OUTSTANDING
        # A writer connects as soon as the loop runs, without a callback.
        IOLoop.current().call_later(0.2, self._start)

    def _start(self) -> None:
        if not self.writer.conns:
            IOLoop.current().call_later(0.05, self._start)
            return
        if self._watch is None:
            self._watch = Watch(self._load)
        for _ in range(self._outstanding):
            self._send()

    def _send(self) -> None:
        if self._sent == self._commands:
            return
        self._sent += 1
        if self._load.scenario == "mpub":
            self.writer.mpub(self._load.topic, [self._load.body] * BATCH, self._on_answer)
        else:
            self.writer.pub(self._load.topic, self._load.body, self._on_answer)

    def _on_answer(self, _connection: Any, data: bytes) -> None:
        assert data == b"OK", data
        self._answered += 1
        if self._answered < self._commands:
            self._send()
        elif self._load.scenario != "round_trip":
            assert self._watch is not None
            self._watch.stop()
            IOLoop.current().stop()


def consume(load: Load, watch: Watch | None) -> None:
    """Use a handler that returns True."""
    left = load.count
    running = watch or Watch(load)

    def handle(_message: Any) -> bool:
        nonlocal left
        left -= 1
        if not left:
            running.stop()
            IOLoop.current().add_callback(IOLoop.current().stop)
        return True

    nsq.Reader(
        message_handler=handle,
        topic=load.topic,
        channel=CHANNEL,
        nsqd_tcp_addresses=[load.address],
        max_in_flight=IN_FLIGHT,
    )


def main() -> None:
    """Run the load of the command line."""
    load = arguments()
    if load.scenario == "consume":
        consume(load, None)
    elif load.scenario == "round_trip":
        watch = Watch(load)
        Publishing(load, watch)
        consume(load, watch)
    else:
        Publishing(load)
    IOLoop.current().start()


main()
