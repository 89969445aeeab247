"""One topic: its connections to nsqd, and its messages on the way to the sealer."""

import asyncio
import logging
import re
import time
from collections.abc import Callable

from nsqfast.client import Consumer
from nsqfast.client.batch import ArrayBatch
from nsqfast.client.deaths import Deaths
from nsqfast.spark.receiver.columns import ColumnMaker
from nsqfast.spark.receiver.group import TakenBatch
from nsqfast.spark.receiver.options import Options, make_config
from nsqfast.spark.receiver.sealer import Sealer

# Messages that arrive singly are gathered for this long.
GATHER_S = 0.001
FIRST_IN_FLIGHT = 256  # until the size of messages is known
IN_FLIGHT_SIZE_MAX = (
    64 << 20
)  # bytes of bodies that may be in flight, for a connection of each kind
CLOCKS_APART_NS = 60_000_000_000  # nsqd's clock and ours may differ by so much
REPEAT_S = 60.0

client_log = logging.getLogger("nsqfast.client.spool")


class RepeatFilter(logging.Filter):
    """Lets the same log line pass once a minute, whichever connection or attempt it is about."""

    def __init__(self) -> None:
        super().__init__()
        self._said_s: dict[tuple[str, str, str], float] = {}

    def filter(self, record: logging.LogRecord) -> bool:
        """Whether it is new."""
        where, *rest = record.args if isinstance(record.args, tuple) and record.args else ("",)
        # Ids, and seconds until the next attempt, do not matter.
        text = re.sub(r"[0-9a-f]*\d[0-9a-f.]*", "", " ".join(map(str, rest)))
        key = (record.msg, str(where), text)
        now_s = time.monotonic()
        if now_s - self._said_s.get(key, -REPEAT_S) < REPEAT_S:
            return False
        self._said_s = {
            k: said_s for k, said_s in self._said_s.items() if now_s - said_s < REPEAT_S
        }
        self._said_s[key] = now_s
        return True


client_log.addFilter(RepeatFilter())


class TopicReceiver:
    """Runs from `start` until its consumers are told to stop; then `wait` returns."""

    def __init__(
        self,
        topic: str,
        options: Options,
        connections: int,
        sealer: Sealer,
        first_unsure_ns: Callable[[], int],
        drain_before_ns: int,
    ) -> None:
        """`connections` to each nsqd.

        `first_unsure_ns`: messages published until then may have come before, over connections of earlier receivers.
        `drain_before_ns`: 0, or `newest_old_s` is the time when a message published before that last came.
        """
        self.topic = topic
        self.first_unsure_ns = first_unsure_ns
        self.received = 0
        self.size = 0  # bytes of bodies
        self.newest_old_s = 0.0  # by the loop's clock
        self._drain_before_ns = drain_before_ns
        self.tells_deaths = options.deaths
        share = max(1, options.max_in_flight // connections)
        self.feeds = [
            Feed(self, make_consumer(topic, options, share), share) for _ in range(connections)
        ]
        self._sealer = sealer
        self._columns = ColumnMaker(topic, options.channel)
        self._tasks: list[asyncio.Task[None]] = []

    @property
    def consumers(self) -> list[Consumer]:
        """One for each connection to an nsqd."""
        return [feed.consumer for feed in self.feeds]

    async def start(self, on_end: "Callable[[asyncio.Task[None]], object]") -> None:
        """Return when nsqd is connected or was tried in vain; an NsqfastError says why it will never be."""
        try:
            await asyncio.gather(*[consumer.start() for consumer in self.consumers])
        except BaseException:
            await asyncio.gather(*[c.stop() for c in self.consumers], return_exceptions=True)
            raise
        self._tasks = [
            asyncio.create_task(feed.run(), name=f"nsq_spool: {self.topic}") for feed in self.feeds
        ]
        for task in self._tasks:
            task.add_done_callback(on_end)

    def pause(self, *, is_paused: bool) -> None:
        """Set RDY 0, or restore it; also before the start."""
        for consumer in self.consumers:
            if is_paused:
                consumer.pause()
            else:
                consumer.resume()

    async def wait(self) -> None:
        """Return when everything was passed to the sealer."""
        await asyncio.gather(*self._tasks)

    def take(self, feed: "Feed", batch: ArrayBatch, deaths: Deaths | None) -> None:
        """Pass on one more batch."""
        self.received += len(batch)
        self.size += len(batch.bodies)
        if self._drain_before_ns and batch.timestamps.min() < self._drain_before_ns:
            self.newest_old_s = asyncio.get_running_loop().time()
        taken = TakenBatch(batch, self._columns, feed.unsure_before_ns, deaths)
        self._sealer.add(taken, is_last=feed.consumer.is_starved)


class Feed:
    """One consumer of the topic."""

    def __init__(self, topic: TopicReceiver, consumer: Consumer, in_flight_max: int) -> None:
        self.consumer = consumer
        self.unsure_before_ns = 0  # messages published before may come again with attempts = 1
        self._topic = topic
        self._in_flight_max = in_flight_max
        self._in_flight = min(in_flight_max, FIRST_IN_FLIGHT)
        self._connections: dict[str, object] = {}  # the last connection to each nsqd

    async def run(self) -> None:
        """Run until the consumer is told to stop."""
        async for batch in self.consumer.arrays(self._in_flight_max, GATHER_S):
            self._note_connections(batch)
            self._choose_in_flight(batch)
            deaths = await batch.deaths() if self._topic.tells_deaths else None
            self._topic.take(self, batch, deaths)

    def _note_connections(self, batch: ArrayBatch) -> None:
        """An nsqd that was killed may have forgotten that it had delivered a message."""
        for address, connection in zip(batch.nsqd, batch.taken.connections, strict=True):
            if self._connections.get(address) is not connection:
                is_first = address not in self._connections
                self._connections[address] = connection
                since_ns = self._topic.first_unsure_ns() if is_first else unsure_now_ns()
                self.unsure_before_ns = max(self.unsure_before_ns, since_ns)

    def _choose_in_flight(self, batch: ArrayBatch) -> None:
        """Use the maximum, unless messages are so large that they would take much memory."""
        fitting = IN_FLIGHT_SIZE_MAX * len(batch) // max(1, len(batch.bodies))
        wanted = max(1, min(self._in_flight_max, fitting))
        is_little_more = self._in_flight <= wanted < min(2 * self._in_flight, self._in_flight_max)
        if wanted != self._in_flight and not is_little_more:
            self._in_flight = wanted
            self.consumer.set_max_in_flight(wanted)


def unsure_now_ns() -> int:
    """Messages published until now may have come before, whatever their attempts."""
    return time.time_ns() + CLOCKS_APART_NS


def make_consumer(topic: str, options: Options, max_in_flight: int) -> Consumer:
    """Its messages are touched while they are in flight for long."""
    return Consumer(
        topic,
        options.channel,
        nsqd=options.nsqd_tcp_address,
        nsqlookupd=options.lookupd_http_address,
        config=make_config(options, min(max_in_flight, FIRST_IN_FLIGHT)),
        auto_touch=True,
        logger=client_log,
    )
