"""The receiver, from the start of the program to its end, and its figures for GET /metrics."""

import asyncio
import math
import time
from collections.abc import Coroutine, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from prometheus_client.metrics_core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from nsqfast.client.config import seconds
from nsqfast.errors import NsqfastError
from nsqfast.spark.receiver.drain import Drain
from nsqfast.spark.receiver.group import Pulse
from nsqfast.spark.receiver.known import KnownMessages, last_sealed_ns
from nsqfast.spark.receiver.options import FREE_PART, FREE_SIZE, NS, Options, make_config
from nsqfast.spark.receiver.releasing import Releaser
from nsqfast.spark.receiver.room import LISTING_REST, Room, count_spool, free_floor
from nsqfast.spark.receiver.sealer import Limits, Sealer
from nsqfast.spark.receiver.topic import CLOCKS_APART_NS, TopicReceiver, unsure_now_ns
from nsqfast.spark.spool.identity import SpoolError, list_subscription, open_spool, read_identity
from nsqfast.spark.spool.release import remove_done
from nsqfast.spark.spool.segments import check_receiver
from nsqfast.spark.spool.store import Store
from nsqfast.spark.spool.writer import SegmentWriter
from nsqfast.stats.process import process_metrics
from nsqfast.tools.shared.client import stop_consumers
from nsqfast.tools.shared.program import ToolError, failure_of, log
from nsqfast.tools.shared.topics import Topics
from nsqfast.wire.gotext import os_error

COUNT_INTERVAL_S = 1.0
REMOVE_INTERVAL_S = 15.0
MANY_TOPICS = 16  # with more topics, each has only one connection to each nsqd
FRESH_S = 60.0  # within this time after the start, other receivers have sealed hardly anything


class Service:
    """Runs once; signals call `stop`. SpoolError: the spool is not available."""

    def __init__(self, options: Options) -> None:
        self._options = options
        self.spool = Path(options.spool)
        check_receiver(options.receiver)
        subscription = list_subscription(options.topic) or f"/{options.topic_pattern}/"
        self._identity = open_spool(self.spool, subscription, options.channel)
        try:
            store = Store.open(options.store, options.receiver) if options.store else None
            self._writer = SegmentWriter.open(
                self.spool, options.receiver, options.segment_format, store
            )
            first = count_spool(self.spool)
            self._sealed_ns = last_sealed_ns(self.spool)
            floor = free_floor(self.spool, options.min_free_bytes, FREE_SIZE, FREE_PART)
        except OSError as error:
            raise SpoolError(f"spool {self.spool}: {os_error(error)}") from None
        config = make_config(options, 1)
        msg_timeout_s = seconds(config.msg_timeout)
        self.room = Room(options.max_spool_bytes, floor, self._pause)
        self._releaser = (
            Releaser(self._writer.folder, Path(options.checkpoint)) if options.checkpoint else None
        )
        self._known = KnownMessages(self.spool, options.receiver, options.dedupe_memory)
        heartbeat_s = seconds(config.heartbeat_interval)
        # nsqd closes after two intervals without an answer; the last answer may be one interval old.
        self._pulse = Pulse(min(msg_timeout_s / 2, heartbeat_s if heartbeat_s > 0 else math.inf))
        self._msg_timeout_s = msg_timeout_s
        limits = Limits(
            options.seal_rows, options.seal_bytes, options.seal_interval_ns / NS, msg_timeout_s
        )
        self.sealer = Sealer(
            self._writer,
            self._known,
            limits,
            self.room.note_sealed,
            self.room.note_failure,
            self._pulse.is_stale,
        )
        self.topics: dict[str, TopicReceiver] = {}
        self._begun_s = time.monotonic()
        self._drain_before_ns = time.time_ns() if options.drain else 0
        self._house = ThreadPoolExecutor(1, "nsq_spool: house")
        self._is_over = asyncio.Event()
        self._failure: NsqfastError | None = None
        self._tasks: list[asyncio.Task[None]] = []
        self.room.note_count(first)

    # -- beginning and end

    async def run(self) -> None:
        """Return after `stop`, or at the end of a drain; raise an earlier error."""
        sealing = self._spawn(self.sealer.run(), "seal")
        self._spawn(self._pulse.beat_on(), "pulse")
        self._spawn(self._keep_house(), "house")
        if self._options.status_interval_ns:
            self._spawn(self._say_on(), "status")
        try:
            following = Topics(self._options, "received", "cannot receive topic", self._begin)
            if self._options.drain:
                before_ns = self._drain_before_ns
                await Drain(
                    self._options, following, self.topics, self.sealer, self.room, before_ns
                ).run(self._is_over)
            else:
                await following.run(self._is_over)
        finally:
            await self._end(sealing)
        if self._failure is not None:
            raise self._failure

    def stop(self) -> None:
        """Receive nothing more; seal and finish what was received."""
        self._is_over.set()
        for topic in self.topics.values():
            for consumer in topic.consumers:
                consumer.request_stop()

    async def _end(self, sealing: "asyncio.Task[None]") -> None:
        self.stop()
        await asyncio.gather(
            *[topic.wait() for topic in self.topics.values()], return_exceptions=True
        )
        self.sealer.end()
        await asyncio.wait([sealing])
        await stop_consumers(
            consumer for topic in self.topics.values() for consumer in topic.consumers
        )
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._house.shutdown()
        self._writer.close()
        if self.topics:
            self._say()

    def _spawn(self, work: Coroutine[Any, Any, None], name: str) -> "asyncio.Task[None]":
        task = asyncio.create_task(work, name=f"nsq_spool: {name}")
        task.add_done_callback(self._note_end)
        self._tasks.append(task)
        return task

    def _note_end(self, task: "asyncio.Task[None]") -> None:
        if failure := failure_of(task):
            self._failure = self._failure or failure
            self.stop()

    # -- topics

    async def _begin(self, name: str) -> None:
        """Receive this topic, too; an NsqfastError says why that is impossible."""
        is_one_of_many = len(self.topics) >= MANY_TOPICS
        topic = TopicReceiver(
            name,
            self._options,
            1 if is_one_of_many else self._options.connections,
            self.sealer,
            self._first_unsure_ns,
            self._drain_before_ns,
        )
        self.topics[name] = topic
        if self.room.is_full:
            topic.pause(is_paused=True)
        try:
            await topic.start(self._note_end)
        except NsqfastError:
            del self.topics[name]
            raise

    def _first_unsure_ns(self) -> int:
        """Earlier messages were sealed before the start, unless that is long ago."""
        if time.monotonic() - self._begun_s >= FRESH_S:
            return unsure_now_ns()
        return self._sealed_ns + CLOCKS_APART_NS if self._sealed_ns else 0

    def _pause(self, is_full: bool) -> None:
        for topic in self.topics.values():
            topic.pause(is_paused=is_full)

    # -- the spool

    async def _keep_house(self) -> None:
        """Release what Spark has processed, count what waits for it, remove what it processed long ago, check
        whether the store, or what failed, works."""
        loop = asyncio.get_running_loop()
        removed_s = -REMOVE_INTERVAL_S
        is_checked = not self._options.store
        while True:
            pause_s = COUNT_INTERVAL_S
            try:
                await loop.run_in_executor(self._house, self._check_spool)
                if self._releaser is not None:
                    await loop.run_in_executor(self._house, self._releaser.run)
                self.room.begin_count()
                count = await loop.run_in_executor(self._house, count_spool, self.spool)
                pause_s = max(pause_s, count.cost_s * LISTING_REST)
                self.room.note_count(count)
                if loop.time() - removed_s >= REMOVE_INTERVAL_S or self.room.is_disk_low:
                    removed_s = loop.time()
                    await loop.run_in_executor(self._house, self._remove_done)
                if not self.sealer.waiting_count and (self.room.is_failing or not is_checked):
                    await loop.run_in_executor(self._house, self._writer.check)
                    self.room.note_failure(None)
                    is_checked = True
            except OSError as error:
                self.room.note_failure(os_error(error))
            await asyncio.sleep(pause_s)

    def _check_spool(self) -> None:
        if read_identity(self.spool) != self._identity:
            raise ToolError(f"spool {self.spool} was removed, or is another one by now")

    def _remove_done(self) -> None:
        retention_s = self._options.retention_ns / NS
        if self.room.is_disk_low:
            # Messages that may come again are still looked up.
            retention_s = min(retention_s, 2 * self._msg_timeout_s)
        remove_done(self._writer.folder, retention_s, self._options.max_spool_bytes)

    # -- what is said

    async def _say_on(self) -> None:
        while True:
            await asyncio.sleep(self._options.status_interval_ns / NS)
            self._say()

    def _say(self) -> None:
        done = self.sealer.figures
        log.info(
            "%d messages in %d segments, %d came before and were dropped; %d segments (%d bytes) wait for Spark",
            done.messages,
            done.segments,
            done.dropped,
            self.room.segments,
            self.room.size,
        )


PREFIX = "nsqfast_nsq_spool_"
COUNTERS = (
    ("segments", "segments", "Segments sealed."),
    ("stored_bytes", "stored_size", "Bytes of segments."),
    ("seal_seconds", "seal_s", "Time from the begin of sealing until a segment was on disk."),
    ("dropped", "dropped", "Messages that came again and were dropped."),
    ("seal_failures", "failures", "Attempts to seal that failed."),
    ("requeued", "requeued", "Messages that could not be sealed and were requeued."),
)


class ServiceFigures(Collector):
    """The figures at the time of the request."""

    def __init__(self, service: Service, start_time: float) -> None:
        self._service = service
        self._start_time = start_time

    def collect(self) -> Iterator[Metric]:
        """Yield what came by topic, what was done with all of it, and the spool."""
        service = self._service
        messages = CounterMetricFamily(f"{PREFIX}messages", "Messages that came.", labels=["topic"])
        size = CounterMetricFamily(f"{PREFIX}bytes", "Bytes of their bodies.", labels=["topic"])
        for name, topic in service.topics.items():
            messages.add_metric([name], topic.received)
            size.add_metric([name], topic.size)
        yield messages
        yield size
        for name, field, text in COUNTERS:
            value = getattr(service.sealer.figures, field)
            yield CounterMetricFamily(PREFIX + name, text, value)
        for name, text, value in self._gauges():
            yield GaugeMetricFamily(PREFIX + name, text, value)
        yield from process_metrics(self._start_time)

    def _gauges(self) -> list[tuple[str, str, float]]:
        room, sealer = self._service.room, self._service.sealer
        return [
            ("paused", "1 while nothing more is taken.", float(room.is_full)),
            ("live_segments", "Segments that Spark did not release.", room.segments),
            ("live_bytes", "Their bytes.", room.size),
            ("disk_free_bytes", "What the disk has left.", room.free_size),
            ("in_flight", "Messages that are not sealed.", sealer.waiting_count),
            (
                "oldest_unfinished_seconds",
                "Age of the oldest message that is not finished; 0 = there is none.",
                sealer.oldest_s(),
            ),
        ]
