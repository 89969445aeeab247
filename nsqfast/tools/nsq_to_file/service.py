"""The archived topics, from the start of the program to its end, and their figures for GET /metrics."""

import asyncio
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial

from prometheus_client.metrics_core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from nsqfast.client import Consumer
from nsqfast.errors import NsqfastError
from nsqfast.stats.process import process_metrics
from nsqfast.tools.nsq_to_file.formats import NS, make_archive
from nsqfast.tools.nsq_to_file.leftovers import Leftovers
from nsqfast.tools.nsq_to_file.options import PROGRAM, Options
from nsqfast.tools.nsq_to_file.topic import TopicWriter
from nsqfast.tools.shared.client import GiveUp, client_config, make_consumer, stop_consumers
from nsqfast.tools.shared.program import ToolError, log
from nsqfast.tools.shared.topics import Topics

THREADS_MAX = 16


class Service:
    """Call `run` once; `stop` and `reopen` are for signals."""

    def __init__(self, options: Options) -> None:
        self._options = options
        self._threads = ThreadPoolExecutor(THREADS_MAX, "nsq_to_file")
        config = client_config(PROGRAM, options.consumer_opt, max_in_flight=options.max_in_flight)
        self.given_up = GiveUp(options.on_give_up, config, self._fail)
        self._leftovers = Leftovers(options)
        self.writers: dict[str, TopicWriter] = {}
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._reopening: dict[str, asyncio.Task[None]] = {}
        self._is_over = asyncio.Event()
        self._failure: NsqfastError | None = None

    async def run(self) -> None:
        """Return after `stop`; raise any error before that."""
        try:
            topics = Topics(
                self._options, "archived", "couldn't create logger for new topic", self._begin
            )
            await topics.run(self._is_over)
        finally:
            await self._end()
        if self._failure is not None:
            raise self._failure

    def stop(self) -> None:
        """Take no more messages; those written are synced and finished."""
        self._is_over.set()
        for writer in self.writers.values():
            writer.consumer.request_stop()

    def reopen(self) -> None:
        """Close every file; the next message of its topic opens a new one."""
        for topic, writer in self.writers.items():
            task = asyncio.create_task(writer.reopen())
            self._reopening[topic] = task
            task.add_done_callback(self._note_end)

    def _fail(self, failure: NsqfastError) -> None:
        self._failure = self._failure or failure
        self.stop()

    def _note_end(self, task: "asyncio.Task[None]") -> None:
        if task.cancelled():
            return
        error = task.exception()
        if isinstance(error, NsqfastError):
            self._fail(error)
        elif error is not None:
            log.critical("unexpected", exc_info=error)
            self._fail(ToolError(f"unexpected: {error!r}"))

    async def _end(self) -> None:
        self.stop()
        await asyncio.gather(*self._tasks.values(), return_exceptions=True)
        await stop_consumers(writer.consumer for writer in self.writers.values())
        await self.given_up.close()
        self._threads.shutdown()

    # -- topics

    async def _begin(self, topic: str) -> None:
        """Archive this topic, too; an NsqfastError says why that is impossible."""
        writer = TopicWriter(
            self._make_consumer(topic),
            *make_archive(self._options, topic),
            partial(self._leftovers.recover, topic),
            self._threads,
            self._options.max_in_flight,
            self._options.sync_interval_ns / NS,
        )
        self.writers[topic] = writer
        try:
            await writer.consumer.start()
        except NsqfastError:
            del self.writers[topic]
            raise
        task = asyncio.create_task(writer.run(), name=f"nsq_to_file: {topic}")
        task.add_done_callback(self._note_end)
        self._tasks[topic] = task

    def _make_consumer(self, topic: str) -> Consumer:
        def consumer() -> Consumer:
            return self.writers[topic].consumer

        giving_up = self.given_up.of(topic, consumer)
        return make_consumer(
            PROGRAM,
            topic,
            self._options.channel,
            self._options,
            auto_touch=True,
            giving_up=giving_up,
        )


PREFIX = "nsqfast_nsq_to_file_"
COUNTERS = (
    ("messages", "messages", "Messages written."),
    ("bytes", "size", "Bytes written, before compression."),
    ("stored_bytes", "stored_size", "Bytes written to files."),
    ("files", "files", "Files opened."),
    ("syncs", "syncs", "Syncs of files to disk."),
    ("sync_seconds", "sync_s", "Time in which files were synced."),
)


class ServiceFigures(Collector):
    """The current figures."""

    def __init__(self, service: Service, start_time: float) -> None:
        self._service = service
        self._start_time = start_time

    def collect(self) -> Iterator[Metric]:
        """Collect one series for each topic, and those of the process."""
        for name, field, text in COUNTERS:
            counter = CounterMetricFamily(PREFIX + name, text, labels=["topic"])
            for topic, writer in self._service.writers.items():
                counter.add_metric([topic], getattr(writer.figures, field))
            yield counter
        oldest = GaugeMetricFamily(
            f"{PREFIX}oldest_unfinished_seconds",
            "Age of the oldest message that was written and not finished; 0 = there is none.",
            labels=["topic"],
        )
        in_flight = GaugeMetricFamily(
            f"{PREFIX}in_flight", "Messages that wait for a sync.", labels=["topic"]
        )
        for topic, writer in self._service.writers.items():
            oldest.add_metric([topic], writer.oldest_s())
            in_flight.add_metric([topic], writer.unsynced_count)
        yield oldest
        yield in_flight
        yield CounterMetricFamily(
            f"{PREFIX}given_up", "Messages after max_attempts.", self._service.given_up.count
        )
        yield from process_metrics(self._start_time)
