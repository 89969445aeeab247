"""One run: the plan, a reading thread, a producer, and the report."""

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass

from nsqfast.archives import Archive, Damage, FileFinder, FileNames
from nsqfast.archives.files import ARROW, LINES, PARQUET
from nsqfast.archives.tables import load_arrow
from nsqfast.client import Producer
from nsqfast.errors import ConnectError, NsqfastError, OptionsError
from nsqfast.program.options import PlainError
from nsqfast.program.signals import watch_signals
from nsqfast.program.stdout import print_text
from nsqfast.tools.replay.batches import Batch, BatchMaker, Feeder, Limits
from nsqfast.tools.replay.options import AUTO, FAILOVER, ID, PROGRAM, Options
from nsqfast.tools.replay.publisher import FilePublisher
from nsqfast.tools.replay.state import Outcome, Progress, State, Tally
from nsqfast.tools.shared.client import client_config
from nsqfast.tools.shared.output import Progress as Bar
from nsqfast.tools.shared.output import is_watched
from nsqfast.tools.shared.program import log


@dataclass(frozen=True, slots=True)
class Plan:
    """The archives in reading order."""

    archives: list[Archive]
    outside: list[str]  # whose names give a time outside the requested span
    unknown: list[str]  # in folders, whose names do not identify them
    left: list[str]  # by a killed nsq_to_file, unfinished
    written: list[str]  # by nsq_to_file, now

    @property
    def size(self) -> int:
        """Bytes to read; 0 if unknown."""
        return (
            0
            if any(one.is_stdin for one in self.archives)
            else sum(one.size for one in self.archives)
        )


def make_plan(options: Options) -> Plan:
    """OptionsError: a request cannot be fulfilled, and nothing was published yet."""
    names = FileNames(options.filename_format, options.datetime_format, options.datetime_zone)
    finder = FileFinder(names, "" if options.format == AUTO else options.format)
    found = finder.find(options.words)
    chosen = [one for one in found if _is_within(one, options)]
    for archive in chosen:
        _check(archive, options)
    if any(one.format in {PARQUET, ARROW} for one in chosen):
        load_arrow()
    inside = {id(one) for one in chosen}
    outside = [one.path for one in found if id(one) not in inside]
    left, written = finder.find_unfinished(options.words, options.work_dir)
    return Plan(chosen, outside, finder.skipped, left, written)


def _is_within(archive: Archive, options: Options) -> bool:
    """Plain lines have no times: their file is taken if its time overlaps the requested span."""
    begin_ns, end_ns = archive.facts.begin_ns, archive.facts.end_ns
    if archive.format != LINES or not options.is_bounded:
        return True
    if begin_ns is None or end_ns is None:
        raise PlainError(
            f"{archive.path}: neither its lines nor its name say a time for --since and --until "
            f"(see --filename-format and --datetime-format)"
        )
    return begin_ns < options.until_ns and end_ns > options.since_ns


def _check(archive: Archive, options: Options) -> None:
    if archive.format != LINES:
        return
    if not (options.topic or archive.facts.topic):
        raise OptionsError(
            f"{archive.path}: its name says no topic; --topic is required (or see --filename-format)"
        )
    if options.dedupe == ID:
        raise OptionsError(f"{archive.path}: plain lines have no ids; use --dedupe=body")


EXIT_OK, EXIT_FAILED, EXIT_DAMAGED = 0, 1, 3
NS_PER_S = 1_000_000_000
FOREVER_S = 366 * 86_400.0
FIRST_TIMEOUT_S = 2.0
STOP_TIMEOUT_S = 2.0  # for the answers still to come
LATE_S_MAX = 0.1
RETRIES_MAX = 1 << 30  # the time ends the attempts, not their number


class Replay:
    """Call `run` once."""

    def __init__(self, options: Options) -> None:
        self._options = options
        self._limits = Limits(options.batch_bytes)
        self._maker = BatchMaker(options, self._limits, self._tell)
        self._tally = Tally()
        self._plan: Plan
        self._producer: Producer | None = None
        self._state: State | None = None
        self._before: dict[str, Progress] = {}
        self._resent = 0
        self._read_size = 0  # of the files that are done
        self._bar: Bar | None = None
        self._begun_s = 0.0
        self._due_s = 0.0  # when --rate allows the next batch

    @staticmethod
    def _tell(damage: Damage) -> None:
        log.error("%s", damage)

    async def run(self) -> int:
        """Run and return the exit status; errors and the progress are reported."""
        self._plan = make_plan(self._options)
        for path in self._plan.unknown:
            log.warning("%s: left out, its name says no format (name it, or say --format)", path)
        for path in self._plan.written:
            log.warning("%s: left out, nsq_to_file is writing it", path)
        for path in self._plan.left:
            log.warning(
                "%s: left out, unfinished: start nsqfast-nsq-to-file, which finishes it", path
            )
        with contextlib.ExitStack() as stack:
            self._producer = None if self._options.dry_run else self._make_producer()
            self._open_state(stack)
            if is_watched() and not self._options.dry_run:
                self._bar = stack.enter_context(Bar(PROGRAM, self._plan.size or None))
            self._begun_s = time.monotonic()
            try:
                is_whole = await self._go()
                failure = "" if is_whole else "told to stop before all was published"
            except NsqfastError as error:
                failure = str(error)
        if not self._sum_up():
            failure = failure or "the summary could not be written to stdout"
        if failure:
            log.error("%s", failure)
            return EXIT_FAILED
        return EXIT_DAMAGED if self._outcome().is_damaged else EXIT_OK

    def _open_state(self, stack: contextlib.ExitStack) -> None:
        # A dry run reports what a run would publish now, and leaves no traces.
        if self._options.state and not self._options.dry_run:
            self._state = stack.enter_context(State(self._options.state, self._options))
            for archive in self._plan.archives:
                self._before[archive.path] = self._state.read(archive)

    async def _go(self) -> bool:
        """Returns whether it came to the end."""
        loop = asyncio.get_running_loop()
        told_to_stop = asyncio.Event()
        watch_signals(loop, told_to_stop.set, None)
        feeder = Feeder(self._batches())
        stopped = asyncio.create_task(told_to_stop.wait())
        work = asyncio.create_task(
            self._count(feeder) if self._options.dry_run else self._publish(feeder)
        )
        feeder.start()
        try:
            await asyncio.wait({work, stopped}, return_when=asyncio.FIRST_COMPLETED)
            is_whole = work.done()
            work.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await work
            return is_whole
        finally:
            feeder.close()
            stopped.cancel()

    def _batches(self) -> Iterator[Batch]:
        """The batches of all archives, in order; runs in the feeder's thread."""
        for archive in self._plan.archives:
            before = self._before.get(archive.path, Progress())
            # To recognise duplicates of records published earlier, read those again.
            if before.is_done and self._maker.seen is None:
                continue
            yield from self._maker.batches(archive, before.position)

    async def _count(self, feeder: Feeder[Batch]) -> None:
        while batch := await feeder.next():
            self._tally.add(batch)

    async def _publish(self, feeder: Feeder[Batch]) -> None:
        options = self._options
        window = 1 if self._state else options.window
        assert self._producer is not None
        producer = self._producer
        async with self._started(producer):
            publisher = FilePublisher(
                producer, window, self._limits, self._on_published, self._on_refused
            )
            try:
                while batch := await feeder.next():
                    await self._pace(batch)
                    await publisher.put(batch)
                await publisher.wait_answers()
            except asyncio.CancelledError:
                # Wait for publishes under way, and count them; send nothing more.
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(STOP_TIMEOUT_S):
                        await publisher.wait_answers()
                raise
            finally:
                self._resent = producer.stats().resent

    def _make_producer(self) -> Producer:
        options = self._options
        return Producer(
            options.nsqd_tcp_address,
            config=client_config(PROGRAM, options.producer_opt),
            retries=RETRIES_MAX,
            timeout_s=options.retry_for_ns / NS_PER_S or FOREVER_S,
            close_timeout_s=0.0,
            # The publisher's window is the bound.
            buffer_bytes_max=1 << 62,
            sticky=options.mode == FAILOVER,
        )

    @contextlib.asynccontextmanager
    async def _started(self, producer: Producer) -> AsyncIterator[None]:
        await producer.start()
        try:
            if self._options.mode == FAILOVER and len(self._options.nsqd_tcp_address) > 1:
                await self._await_first(producer)
            yield
        finally:
            await producer.finish()

    async def _await_first(self, producer: Producer) -> None:
        """Wait for the first nsqd of the list, so that a faster one does not get messages that the first can take."""
        address = self._options.nsqd_tcp_address[0]
        try:
            async with asyncio.timeout(FIRST_TIMEOUT_S):
                await producer.add_nsqd(address)
        except (ConnectError, TimeoutError) as error:
            log.warning("%s: %s; the others take its place", address, str(error) or "no answer")

    async def _pace(self, batch: Batch) -> None:
        """Wait until --rate allows it."""
        if self._options.rate:
            await asyncio.sleep(max(0.0, self._due_s - time.monotonic()))
            # Catch up only a little: the rate is a ceiling for every second.
            earliest_s = time.monotonic() - LATE_S_MAX
            self._due_s = max(self._due_s, earliest_s) + batch.count / self._options.rate

    def _on_refused(self, damage: Damage) -> None:
        self._maker.skipped.damaged += 1
        self._tell(damage)

    def _on_published(self, batch: Batch) -> None:
        self._tally.add(batch)
        before = self._before.get(batch.archive.path, Progress())
        if self._state is not None:
            # Records read again are counted again.
            is_again = self._maker.seen is not None
            damaged = (
                max(before.damaged, batch.damaged) if is_again else before.damaged + batch.damaged
            )
            self._state.note(batch.archive, batch.end, damaged, is_done=batch.is_last)
        if self._bar is not None:
            self._bar.show(self._read_size + batch.read_size, self._tally.messages)
        if batch.is_last:
            self._read_size += batch.archive.size

    # -- reporting

    def _outcome(self) -> Outcome:
        before = self._before.values()
        seen = self._maker.seen
        done = sum(one.is_done for one in before)
        return Outcome(
            self._tally,
            self._maker.skipped,
            damaged_before=sum(one.damaged for one in before),
            files=len(self._plan.archives) - done,
            done_before=done,
            outside=len(self._plan.outside),
            unfinished=len(self._plan.left),
            resent=self._resent,
            forgotten=seen.forgotten if seen else 0,
            count_sure=seen.count_sure if seen else 0,
            seconds=time.monotonic() - self._begun_s,
        )

    def _sum_up(self) -> bool:
        """Returns whether stdout took it; its reader may be gone."""
        outcome = self._outcome()
        lines = self._tally.table() if self._options.dry_run else []
        lines += outcome.lines("counted" if self._options.dry_run else "published")
        try:
            print_text("\n".join(lines))
        except OSError:
            return False
        return True
