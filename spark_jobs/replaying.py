"""Runs `replay`: in one Spark job, or with --state or --rate in slices, one after the other."""

import contextlib
import shutil
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.metadata import version
from typing import TYPE_CHECKING

from nsqfast.errors import NsqfastError
from nsqfast.program.options import PlainError
from nsqfast.program.stdout import print_text
from nsqfast.spark_jobs.failures import explain, spark_errors
from nsqfast.spark_jobs.job import EXIT_BAD, EXIT_FAILED, EXIT_OK, Job
from nsqfast.spark_jobs.replay_input import ORDER, Input, open_input
from nsqfast.spark_jobs.replay_options import Options
from nsqfast.spark_jobs.replay_state import State
from nsqfast.tools.shared.program import ToolError, log

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

# PySpark before 4.3 counts the samples of a sort again; an Observation keeps its first result.
COUNTS_ONCE = not version("pyspark").startswith(("4.0.", "4.1.", "4.2."))
SLICES_HZ = 2  # with --rate
LATE_S_MAX = 0.5  # of a delay only so much is made up for: the rate is a ceiling


@dataclass(slots=True)
class Tally:
    """Counts of messages."""

    read: int = 0
    bad: int = 0
    unique: int = 0
    published: int = 0
    failed: int = 0  # sent or not when the run ended
    before: int = 0  # published by earlier runs
    maybe_twice: int = 0

    def lines(self, seconds: float) -> list[str]:
        """Return the lines for stdout."""
        rate = self.published / seconds if seconds else 0.0
        counts = f"published {self.published:,}, failed {self.failed:,}"
        speed = f"in {seconds:.1f} s ({rate:,.0f}/s)"
        said = [f"read {self.read:,}, unique {self.unique:,}, {counts} {speed}"]
        for number, text in (
            (self.bad, "were left out: damaged, empty, or larger than --max-msg-size"),
            (self.before, "were published by earlier runs, as --state says"),
            (self.maybe_twice, "may be there twice: a run ended while they were published"),
        ):
            if number:
                said.append(f"{number:,} {text}")
        return said


class Replay:
    """Call `run` once."""

    def __init__(self, job: Job[Options]) -> None:
        self._job = job
        self._options = job.options
        self._tally = Tally()
        self._due_s = 0.0

    def run(self) -> int:
        """Return the exit status; the result is printed on stdout, whatever ended the run."""
        if self._options.dry_run:
            return self._count()
        begun_s = time.monotonic()
        failure = ""
        try:
            self._publish()
        except NsqfastError as error:
            failure = str(error)
        except spark_errors() as error:
            failure = explain(error)
        print_text("\n".join(self._tally.lines(time.monotonic() - begun_s)))
        if self._job.stop.is_asked:
            failure = "told to stop before all was published"
        if failure:
            log.error("%s", failure)
            return EXIT_FAILED
        return self._status()

    def _status(self) -> int:
        return EXIT_BAD if self._options.is_too_bad(self._tally.bad) else EXIT_OK

    def _open(self) -> Input:
        return open_input(self._job.spark, self._options)

    def _count(self) -> int:
        """Run --dry-run."""
        from pyspark.sql import functions

        found = self._open()
        by_topic = found.messages.groupBy("topic").agg(
            functions.count("*").alias("messages"),
            functions.sum(functions.octet_length("body")).alias("bytes"),
        )
        rows = by_topic.orderBy("topic").collect()
        lines = [f"{'MESSAGES':>12} {'BYTES':>15}  TOPIC"]
        lines += [f"{row.messages:>12} {row.bytes:>15}  {row.topic}" for row in rows]
        total = sum(row.messages for row in rows), sum(row.bytes for row in rows)
        lines.append(f"{total[0]:>12} {total[1]:>15}  total")
        self._note_read(found)
        lines.append(f"read {self._tally.read:,}, unique {total[0]:,}")
        if self._tally.bad:
            lines.append(
                f"{self._tally.bad:,} would be left out: damaged, empty, or larger than --max-msg-size"
            )
        print_text("\n".join(lines))
        return self._status()

    def _note_read(self, found: Input) -> None:
        counts = found.read.get
        self._tally.read = counts["read"] + found.damaged
        self._tally.bad = counts["bad"] + found.damaged

    def _publish(self) -> None:
        if not (self._options.state or self._options.rate):
            self._publish_at_once()
            return
        with self._state_folder() as folder:
            self._publish_slices(State(self._job.spark, folder))

    def _publish_at_once(self) -> None:
        found = self._open()
        messages = found.messages.select("topic", "body")
        begun_s = time.monotonic()
        rows, size = self._send(messages)
        self._note_read(found)
        self._tally.unique = self._tally.published = rows
        self._report(0, rows, size, begun_s)

    def _send(self, messages: "DataFrame") -> tuple[int, int]:
        """Return how many were sent, and the bytes of their bodies."""
        from pyspark.sql import Observation, functions

        sent = Observation()
        counted = messages.observe(
            sent,
            functions.count(functions.lit(1)).alias("rows"),
            functions.sum(functions.octet_length("body")).alias("bytes"),
        )
        counted.write.format("nsq").mode("append").options(**self._options.sink_options()).save()
        return sent.get["rows"], sent.get["bytes"] or 0

    def _publish_slices(self, state: State) -> None:
        tally, options = self._tally, self._options
        if not state.open(options):
            self._copy(state)
        tally.read, tally.bad, tally.unique = (
            state.counts[name] for name in ("read", "bad", "unique")
        )
        tally.before, tally.maybe_twice = state.progress.published, state.progress.maybe_twice
        if tally.maybe_twice:
            log.warning(
                "%s messages may be there twice: an earlier run ended while they were published",
                tally.maybe_twice,
            )
        rows_max = max(1, int(options.rate / SLICES_HZ)) if options.rate else 0
        tasks = max(1, self._job.spark.sparkContext.defaultParallelism)
        for number, part in enumerate(state.slices(rows_max, tasks)):
            self._pace(part.rows)
            if self._job.stop.is_asked:
                break
            begun_s = time.monotonic()
            state.begin(part)
            try:
                rows, size = self._send(state.read(part))
            except spark_errors():
                tally.failed = part.rows
                raise
            if rows != part.rows:
                raise ToolError(
                    f"--state: {part.files[0]}: {rows} messages where there were {part.rows}; it was changed"
                )
            state.finish(part)
            tally.published += rows
            self._report(number, rows, size, begun_s)

    def _copy(self, state: State) -> None:
        from pyspark.sql import Observation, functions

        found = self._open()
        unique = Observation()
        count = functions.count(functions.lit(1)).alias("unique")
        messages = found.messages.observe(unique, count)
        if not COUNTS_ONCE:
            messages.write.format("noop").mode("overwrite").save()
        state.copy(messages, ORDER)
        self._note_read(found)
        state.plan(
            {"read": self._tally.read, "bad": self._tally.bad, "unique": unique.get["unique"]}
        )

    @contextlib.contextmanager
    def _state_folder(self) -> Iterator[str]:
        """Return the folder of --state, or a temporary one."""
        if self._options.state:
            yield self._options.state
            return
        if not self._job.spark.sparkContext.master.startswith("local"):
            raise PlainError("--rate needs --state on a cluster: a folder that all executors have")
        folder = tempfile.mkdtemp(prefix="nsqfast-replay-")
        try:
            yield folder
        finally:
            shutil.rmtree(folder, ignore_errors=True)

    def _pace(self, rows: int) -> None:
        """Wait until --rate allows the rows."""
        if not self._options.rate:
            return
        self._job.stop.wait(max(0.0, self._due_s - time.monotonic()))
        earliest_s = time.monotonic() - LATE_S_MAX
        self._due_s = max(self._due_s, earliest_s) + rows / self._options.rate

    def _report(self, number: int, rows: int, size: int, begun_s: float) -> None:
        self._job.reports.note(
            batch=number,
            rows=rows,
            bytes=size,
            published=rows,
            duration_s=round(time.monotonic() - begun_s, 3),
        )
