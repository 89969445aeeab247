"""The archived topics, from the start of the program to its end, and their figures for GET /metrics."""

import asyncio
import contextlib
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Executor, ThreadPoolExecutor
from functools import partial
from typing import NoReturn

from prometheus_client.metrics_core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from nsqfast.client import Consumer
from nsqfast.client.batch import ArrayBatch
from nsqfast.client.deaths import Deaths
from nsqfast.errors import NsqfastError
from nsqfast.stats.process import process_metrics
from nsqfast.tools.nsq_to_file.archive import Archive, Figures, MakePieces
from nsqfast.tools.nsq_to_file.formats import NS, make_archive
from nsqfast.tools.nsq_to_file.leftovers import Leftovers
from nsqfast.tools.nsq_to_file.options import PROGRAM, Options
from nsqfast.tools.shared.client import GiveUp, client_config, make_consumer, stop_consumers
from nsqfast.tools.shared.program import ToolError, failure_of, log
from nsqfast.tools.shared.topics import Topics
from nsqfast.wire.gotext import os_error

# One topic on its way to disk: messages are written as they come, and finished once they are synced. Writing and
# syncing happen in a thread, batch by batch, while the next batch comes in. A message is finished when the sync that
# covers it is done, not before: at each --sync-interval, when as many wait as may be in flight, when a connection may
# deliver few more, when a file was begun, and when the waiting messages take much memory.

# Messages that arrive singly are written a few at a time.
GATHER_S = 0.001
DEATHS_MAX = (
    10_000  # of a batch; each of its dead letters may count as a source of its own, of 65536
)
UNSYNCED_SIZE_MAX = 64 << 20  # bytes of bodies, which stay in memory until they are finished


class TopicWriter:
    """Active from `run` until its consumer is told to stop, or until the disk fails: ToolError."""

    def __init__(
        self,
        consumer: Consumer,
        archive: Archive,
        make_pieces: MakePieces,
        recover: Callable[[], None],
        threads: Executor,
        in_flight_max: int,
        sync_interval_s: float,
        *,
        tells_deaths: bool,
    ) -> None:
        self.consumer = consumer
        self._archive = archive
        self._make_pieces = make_pieces
        self._recover = recover
        self._threads = threads
        self._in_flight_max = in_flight_max
        self._tells_deaths = tells_deaths
        self._sync_interval_s = sync_interval_s
        self._unsynced: list[ArrayBatch] = []
        self.unsynced_count = 0
        self._unsynced_size = 0  # bytes of bodies
        # One step at a time, in the order of the requests.
        self._turn = asyncio.Lock()
        self._is_over = asyncio.Event()
        self._failure: ToolError | None = None

    @property
    def figures(self) -> Figures:
        """Counts since the start."""
        return self._archive.figures

    def oldest_s(self) -> float:
        """Age of the oldest message that was written but not finished; 0 if there is none."""
        oldest_ns = min((int(batch.timestamps.min()) for batch in self._unsynced), default=None)
        return 0.0 if oldest_ns is None else max(0.0, time.time() - oldest_ns / 1e9)

    async def run(self) -> None:
        """Return when the consumer was told to stop, all written messages are finished, and the file is closed."""
        await self._step(self._recover_files)
        ticks = asyncio.create_task(self._tick_on())
        try:
            await self._write_on()
        finally:
            self._is_over.set()
            await ticks
        await self.reopen()

    def _recover_files(self) -> bool:
        self._recover()
        return True

    async def reopen(self) -> None:
        """Sync, finish and close; the next message opens a new file."""

        def close() -> bool:
            self._archive.sync()
            self._archive.close()
            return True

        await self._step(close)

    async def _tick_on(self) -> None:
        def tick() -> bool:
            self._archive.tick()
            return True

        loop = asyncio.get_running_loop()
        next_s = loop.time()
        while not self._is_over.is_set():
            next_s = max(next_s + self._sync_interval_s, loop.time())
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._is_over.wait(), next_s - loop.time())
                return
            await self._step(tick)

    async def _write_on(self) -> None:
        consumer, rows_max = self.consumer, self._in_flight_max
        if self._tells_deaths:
            rows_max = min(rows_max, DEATHS_MAX)
        async for batch in consumer.arrays(rows_max, GATHER_S):
            deaths = await batch.deaths() if self._tells_deaths else None
            await self._step(partial(self._write, batch, deaths, consumer.is_starved), batch)

    def _write(self, batch: ArrayBatch, deaths: Deaths | None, must_sync: bool) -> bool:
        self._archive.write(self._make_pieces(batch, deaths))
        is_full = (
            self.unsynced_count + len(batch) >= self._in_flight_max
            or self._unsynced_size + len(batch.bodies) >= UNSYNCED_SIZE_MAX
        )
        if not (is_full or must_sync or self._archive.is_sync_due):
            return False
        self._archive.sync()
        return True

    async def _step(self, step: Callable[[], bool], batch: ArrayBatch | None = None) -> None:
        """Run it in the thread; if it returns true, everything written is on disk and gets finished.

        ToolError: it failed, or an earlier step did. Then the state of written data is unknown, and nothing is
        finished.
        """
        async with self._turn:
            if self._failure is not None:
                raise self._failure
            try:
                is_synced = await asyncio.get_running_loop().run_in_executor(self._threads, step)
            except OSError as error:
                where = f"{error.filename}: " if error.filename else ""
                self._fail(ToolError(f"[{self.consumer.name}] {where}{os_error(error)}"))
            except ToolError as error:
                self._fail(ToolError(f"[{self.consumer.name}] {error}"))
            if batch is not None:
                self._unsynced.append(batch)
                self.unsynced_count += len(batch)
                self._unsynced_size += len(batch.bodies)
            if is_synced:
                self._finish_synced()

    def _fail(self, failure: ToolError) -> NoReturn:
        self._failure = failure
        self.consumer.request_stop()
        raise failure

    def _finish_synced(self) -> None:
        if self._unsynced:
            log.info("[%s] syncing %d records to disk", self.consumer.name, self.unsynced_count)
        for batch in self._unsynced:
            batch.finish()
        self._unsynced.clear()
        self.unsynced_count = self._unsynced_size = 0


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
        if failure := failure_of(task):
            self._fail(failure)

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
            tells_deaths=self._options.deaths,
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
