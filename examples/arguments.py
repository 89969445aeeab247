"""The command line that the examples share: [TOPIC [CHANNEL]] [--nsqd HOST:PORT] [--nsqlookupd HOST:PORT]."""

import argparse
import logging
import signal
from typing import Protocol

NSQD = "127.0.0.1:4150"


class Stoppable(Protocol):
    """A consumer, of either kind."""

    def request_stop(self) -> None: ...


class Parser(argparse.ArgumentParser):
    """Takes a topic; with `channel` also a channel, and the addresses of nsqlookupd in place of those of nsqd."""

    def __init__(
        self, doc: str | None, topic: str, channel: str = "", *, publishes: bool = False
    ) -> None:
        super().__init__(description=doc, formatter_class=argparse.RawDescriptionHelpFormatter)
        self._needs_nsqd = publishes or not channel
        self._add("topic", topic)
        if channel:
            self._add("channel", channel)
        self._add_address("nsqd", f"TCP address of an nsqd; repeat it for more (default: {NSQD})")
        if channel:
            self._add_address("nsqlookupd", "HTTP address of an nsqlookupd, which knows the nsqd")

    def _add(self, name: str, default: str) -> None:
        self.add_argument(name, nargs="?", default=default, help="default: %(default)s")

    def _add_address(self, name: str, text: str) -> None:
        self.add_argument(f"--{name}", action="append", default=[], metavar="HOST:PORT", help=text)

    def add_count(self) -> None:
        """--count."""
        self.add_argument(
            "--count", type=int, default=0, metavar="N", help="end after N messages, not at Ctrl-C"
        )

    def parse(self) -> argparse.Namespace:
        """What was given. From now on the client library says on stderr where it connects, and why it does not."""
        given = self.parse_args()
        if not given.nsqd and (self._needs_nsqd or not given.nsqlookupd):
            given.nsqd = [NSQD]
        logging.basicConfig(level=logging.INFO, format="%(message)s")
        return given


def stop_at_signals(consumer: Stoppable) -> None:
    """Have Ctrl-C and SIGTERM end its iterators and `run`, so that the program ends in order."""
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: consumer.request_stop())
