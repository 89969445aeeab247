"""Fills a commit log beside a workload, so that checkpoints come while it runs."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Self

from durability.crash.clients import Consumer, Publisher

if TYPE_CHECKING:
    from durability.crash.clients import Broker
    from durability.crash.ledger import Ledger

TOPIC, CHANNEL = "fill", "f"
BODY_SIZE = 200_000
# More than the memory of a small log may hold, so that some of it goes to files.
BEHIND_MAX = 24
# Between two publishes; what the workload does meanwhile is in batches of its own.
PAUSE_SECONDS = 0.008
MSG_TIMEOUT_MS = 600_000


class Filler:
    """A publisher of large bodies, and a consumer that is some of them behind; a broker that is gone is waited for.

    At its end it has published `least` bodies at least, and the log has been filled as often as that takes.
    """

    def __init__(self, broker: Broker, ledger: Ledger, seed: int, least: int) -> None:
        self._broker = broker
        self._ledger = ledger
        self._seed = seed
        self._least = least
        self._count = 0
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self.error = ""

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._is_over.set()
        self._thread.join()
        assert not self.error, self.error

    def _run(self) -> None:
        try:
            while not self._is_done():
                self._seed += 1
                try:
                    self._fill()
                except (EOFError, ConnectionError, AssertionError):
                    # The broker is gone, or refuses publishes for a while: what it has answered counts.
                    self._is_over.wait(PAUSE_SECONDS)
        except Exception as error:
            self.error = repr(error)

    def _is_done(self) -> bool:
        # A broker that the workload has stopped for good takes nothing more.
        is_up = self._broker.server.process.poll() is None
        return self._is_over.is_set() and (self._count >= self._least or not is_up)

    def _fill(self) -> None:
        with (
            Publisher(self._broker, self._ledger, TOPIC, self._seed) as publisher,
            Consumer(self._broker, self._ledger, TOPIC, CHANNEL, 2, MSG_TIMEOUT_MS) as consumer,
        ):
            publisher.to(CHANNEL)
            behind = 0
            while not self._is_done():
                publisher.pub(1, BODY_SIZE)
                self._count += 1
                behind += 1
                if behind > BEHIND_MAX:
                    consumer.finish(consumer.take(1))
                    behind -= 1
                self._is_over.wait(PAUSE_SECONDS)
