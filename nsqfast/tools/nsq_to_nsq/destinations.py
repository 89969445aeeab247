"""The destination nsqds, their known limits, and which one is next."""

import asyncio
import re
import sys
import time
from collections.abc import Sequence

from nsqfast._ext.protocol.publish_command import Encoded
from nsqfast.client import Config, Producer, PublishRefusedError
from nsqfast.client.config import seconds
from nsqfast.client.reconnector import Reconnector
from nsqfast.tools.shared.hostpool import Pool, make_pool
from nsqfast.tools.shared.timings import Timings

ANSWER_TIMEOUT_S = 30.0
CLOSE_TIMEOUT_S = 0.5
RETRIES = 3
LIMIT_KEPT_S = 60.0  # a destination's limits may change when it restarts
MPUB_SIZE_MAX = 1 << 20  # nsqd takes 5 MiB by default

_TOO_BIG = re.compile(r"too big \d+ > (\d+)")


class _ImpatientProducer(Producer):
    """When its connection is lost, unsent messages do not wait for the next one: others can have them."""

    def on_trouble(self, reconnector: Reconnector) -> None:
        """There is no connection."""
        super().on_trouble(reconnector)
        if not self.is_connected:
            self.fail_waiting()


class Destination:
    """One nsqd. `is_alone`: it is the only one, so unanswered messages wait for the next connection.

    A message for one of several is sent once: if its fate is unknown, it goes back to its source.
    """

    def __init__(self, address: str, config: Config, timings: Timings, *, is_alone: bool) -> None:
        self.address = address
        self.timings = timings
        self._message_size_max = self._mpub_size_max = sys.maxsize
        self._limits_end_s = 0.0
        make = Producer if is_alone else _ImpatientProducer
        self._producer = make(
            address,
            config=config,
            retries=RETRIES if is_alone else 0,
            timeout_s=min(ANSWER_TIMEOUT_S, seconds(config.read_timeout)),
            close_timeout_s=CLOSE_TIMEOUT_S,
            # The messages in flight at the sources bound the messages that wait here.
            buffer_count_max=sys.maxsize,
            buffer_bytes_max=sys.maxsize,
        )

    async def start(self) -> None:
        """Connect, or keep trying; RefusedError if it refuses us."""
        await self._producer.start()

    async def close(self) -> None:
        """Disconnect."""
        await self._producer.finish()

    @property
    def is_connected(self) -> bool:
        """Whether a publish could be sent now."""
        return self._producer.is_connected

    def send(self, topic: str, bodies: Encoded) -> "asyncio.Future[None]":
        """The future is done when the destination has taken them; a PublishError says why it has not."""
        return self._producer.send_encoded(topic, bodies)

    # -- its limits

    @property
    def message_size_max(self) -> int:
        """The size of the largest message that it is known to take."""
        return self._message_size_max if time.monotonic() < self._limits_end_s else sys.maxsize

    @property
    def mpub_size_max(self) -> int:
        """The size of the largest MPUB to send, after its size field."""
        known = self._mpub_size_max if time.monotonic() < self._limits_end_s else sys.maxsize
        return min(known, MPUB_SIZE_MAX)

    def learn(self, error: PublishRefusedError) -> None:
        """Remember the limit in the answer, if it names one."""
        found = _TOO_BIG.search(error.reason)
        if not found:
            return
        if time.monotonic() >= self._limits_end_s:
            self._message_size_max = self._mpub_size_max = sys.maxsize
        self._limits_end_s = time.monotonic() + LIMIT_KEPT_S
        if error.code == "E_BAD_MESSAGE":
            self._message_size_max = int(found[1])
        else:
            self._mpub_size_max = int(found[1])


class Destinations:
    """All destinations; one given twice gets two turns."""

    def __init__(
        self, addresses: Sequence[str], mode: str, config: Config, status_every: int
    ) -> None:
        is_alone = len(set(addresses)) == 1
        self._by_address = {
            address: Destination(
                address,
                config,
                Timings(f"[{address}]:", 0 if len(addresses) == 1 else status_every),
                is_alone=is_alone,
            )
            for address in addresses
        }
        self._addresses = addresses
        self.is_alone = is_alone
        self._pool: Pool = make_pool(mode, len(addresses))
        self._timings = Timings("[aggregate]:", status_every)
        self._extra = 0

    async def start(self) -> None:
        """Connect to all; unreachable ones are retried."""
        await asyncio.gather(*[one.start() for one in self._by_address.values()])

    async def close(self) -> None:
        """Disconnect."""
        await asyncio.gather(*[one.close() for one in self._by_address.values()])

    def __getitem__(self, number: int) -> Destination:
        return self._by_address[self._addresses[number]]

    def share_out(self, count: int) -> list[tuple[int, int]]:
        """Distribute this many messages in runs over the destinations; fewer than all if nobody is connected.

        If the number does not divide evenly, they take turns in getting one more.
        """
        parts = min(count, len(self._addresses))
        shares = []
        for part in range(parts):
            number = self._next()
            if number is not None:
                extra = (part + self._extra) % parts < count % parts
                shares.append((number, count // parts + extra))
        self._extra += parts - count % parts if parts else 0
        return shares

    def _next(self) -> int | None:
        """The next connected one. A single destination is always chosen, because it keeps messages until it is back."""
        for _ in self._addresses:
            number = self._pool.next()
            if self.is_alone or self[number].is_connected:
                return number
            self._pool.fail(number)
        return None

    def note_loss(self, number: int) -> None:
        """Note that its connection is lost."""
        self._pool.fail(number)

    def note_answer(self, number: int, took_s: float, count: int, *, is_ok: bool) -> None:
        """Note that this many messages were taken, or not."""
        if is_ok:
            self._pool.succeed(number, took_s)
        else:
            self._pool.fail(number)
        self[number].timings.add(took_s, count)
        self._timings.add(took_s, count)
