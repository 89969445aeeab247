"""nsqfast-spark replay: publish again what ingest, load-archives or nsq_to_file wrote.

    nsqfast-spark replay --input=/data/messages --nsqd-tcp-address=127.0.0.1:4150 --state=/data/replay

nsqfast-replay does the same without Spark, from one machine's files; flags of both have the same names.
"""

import contextlib
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from functools import reduce
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

from nsqfast.archives import FileFinder, FileNames
from nsqfast.errors import NsqfastError, OptionsError
from nsqfast.program.options import (
    BOOL,
    DURATION,
    FLOAT,
    INT,
    STRING,
    STRINGS,
    PlainError,
    option,
    text_such_as,
)
from nsqfast.program.stdout import print_text
from nsqfast.spark.failures import explain, spark_errors
from nsqfast.spark_jobs import layout
from nsqfast.spark_jobs.binding import NOTE
from nsqfast.spark_jobs.folders import Folder
from nsqfast.spark_jobs.job import EXIT_BAD, EXIT_FAILED, EXIT_OK, Job, run_job
from nsqfast.spark_jobs.options import InputOptions, JobOptions, parser
from nsqfast.tools.replay.options import (
    BODY,
    FOREVER_NS,
    ID,
    NEVER_NS,
    NONE,
    parse_time_ns,
    parse_topic_map,
)
from nsqfast.tools.shared.options import AUTH_SECRET_HELP, CLIENT_OPTIONS, PRODUCER_HELP
from nsqfast.tools.shared.program import ToolError, log

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, Observation, SparkSession


DEDUPES = (ID, BODY, NONE)
MSG_SIZE_MAX = 1 << 20
BODY_SIZE_MAX = 5 << 20


@dataclass(slots=True)
class Options(InputOptions, JobOptions):
    """As on the command line."""

    # fmt: off
    input: list[str] = option(
        STRINGS, [], "folder of ingest or load-archives, or a file, folder or glob of nsq_to_file (repeatable)",
        group="Input")
    since: str = option(
        STRING, "", "publish only messages from this time on: RFC 3339 or a date; UTC unless it has an offset")
    until: str = option(STRING, "", "publish only messages before this time")
    dedupe: str = option(
        text_such_as(*DEDUPES), NONE, "leave out messages that are there twice in a topic: by id, by body, or none")

    nsqd_tcp_address: list[str] = option(
        STRINGS, [], "TCP <addr>:<port> of an nsqd to publish to (repeatable)", group="Destination")
    topic_map: list[str] = option(
        STRINGS, [], "publish to topic <new> what was in topic <old>, as <old>:<new> (repeatable)")
    producer_opt: list[str] = option(CLIENT_OPTIONS, [], PRODUCER_HELP)
    auth_secret_file: str = option(STRING, "", AUTH_SECRET_HELP)
    max_msg_size: int = option(INT, MSG_SIZE_MAX, "nsqd's --max-msg-size; larger messages are left out, as bad records")
    max_body_size: int = option(INT, BODY_SIZE_MAX, "nsqd's --max-body-size")

    rate: float = option(
        FLOAT, 0.0, "most messages per second, over all tasks; 0 = as fast as nsqd takes them", group="How")
    dry_run: bool = option(BOOL, False, "publish nothing; count the messages of each topic")
    state: str = option(
        STRING, "", "folder to note what was published in, with a copy of what is still to be, "
        "so that the same command goes on from there")
    retry_for_ns: int = option(DURATION, "1m", "time to try a publish while no nsqd takes it")
    # fmt: on
    since_ns: int = field(default=NEVER_NS, init=False)
    until_ns: int = field(default=FOREVER_NS, init=False)
    topics: dict[str, str] = field(default_factory=dict, init=False)

    def check(self) -> None:
        """PlainError: an option is missing or cannot be honoured."""
        JobOptions.check(self)
        self.check_input()
        if not (self.nsqd_tcp_address or self.dry_run):
            raise PlainError("--nsqd-tcp-address required (or --dry-run)")
        if self.dedupe not in DEDUPES:
            raise PlainError(f"--dedupe is {self.dedupe!r}; it is {' or '.join(DEDUPES)}")
        self.topics = parse_topic_map([item.replace("=", ":", 1) for item in self.topic_map])
        if self.since:
            self.since_ns = parse_time_ns("since", self.since)
        if self.until:
            self.until_ns = parse_time_ns("until", self.until)
        if self.since_ns >= self.until_ns:
            raise PlainError("--since is not before --until: there is nothing between them")
        if not 0 <= self.rate < 1e12:
            raise PlainError(f"--rate is {self.rate}; it is 0 or more")
        if not self.dry_run:
            self._check_sink()

    def _check_sink(self) -> None:
        """Check them before Spark is started, which takes a while."""
        from nsqfast.spark.sink.options import parse_options

        parse_options(self.sink_options())

    def sink_options(self) -> dict[str, str]:
        """Return the options of format("nsq")."""
        found = {
            "nsqdTcpAddresses": ",".join(self.nsqd_tcp_address),
            "timeout": f"{self.retry_for_ns}ns",
            "maxMsgSize": str(self.max_msg_size),
            "maxBodySize": str(self.max_body_size),
        }
        for item in self.producer_opt:
            key, _, value = item.partition(",")
            found[f"nsq.{key}"] = value or "true"
        return found

    def binding(self) -> dict[str, object]:
        """Return what decides which messages go where; the rest may differ from run to run."""
        names = (
            "input",
            "topic",
            "topic_pattern",
            "topic_map",
            "since",
            "until",
            "dedupe",
            "max_msg_size",
        )
        return {name: getattr(self, name) for name in names}


# The messages that replay publishes: those chosen of the input, each to its topic, without duplicates.


NS_PER_HOUR = 3600 * 1_000_000_000
# When a message was published, or the start of the hour if only that is known.
ORDER = "order_ns"


@dataclass(slots=True)
class Input:
    """`messages` has topic, body and ORDER. `read` counts the chosen ones, and those that cannot be published."""

    messages: "DataFrame"
    read: "Observation"
    damaged: int  # unreadable records


def open_input(spark: "SparkSession", options: Options) -> Input:
    """OptionsError: there is nothing, or --dedupe cannot tell these messages apart."""
    from pyspark.sql import Observation, functions

    rows, damaged = _read(spark, options)
    rows = rows.where(layout.is_chosen(options))
    hour = functions.concat_ws(" ", "date", "hour")
    hour_s = functions.unix_timestamp(hour, "yyyy-MM-dd HH")
    rows = rows.withColumn("hour_ns", hour_s * 1_000_000_000)
    rows = _within(rows, options)
    rows = rows.withColumn(ORDER, functions.coalesce("timestamp_ns", "hour_ns"))
    rows = rows.withColumn("topic", _mapped(options.topics))
    read = Observation()
    size = functions.octet_length("body")
    is_bad = (size == 0) | (size > options.max_msg_size)
    rows = rows.observe(
        read,
        functions.count(functions.lit(1)).alias("read"),
        functions.count_if(is_bad).alias("bad"),
    ).where(~is_bad)
    return Input(_unique(rows, options).select("topic", "body", ORDER), read, damaged)


def _read(spark: "SparkSession", options: Options) -> "tuple[DataFrame, int]":
    folders: dict[str, list[str]] = {}  # by format
    words: list[str] = []
    for path in options.input:
        format_ = _format_of(spark, path)
        (folders.setdefault(format_, []) if format_ else words).append(path)
    frames, damaged = [], 0
    for format_, paths in folders.items():
        layout.check_format(spark, format_)
        frames.append(layout.read(spark, paths, format_).select(*_COLUMNS))
    if words:
        if options.dedupe == ID:
            _check_ids(words)
        frame, damaged = _read_archives(spark, words)
        if frame is not None:
            frames.append(frame.select(*_COLUMNS))
    if not frames:
        raise OptionsError(f"--input: no messages in {', '.join(options.input)}")
    return reduce(lambda one, other: one.unionByName(other), frames), damaged


_COLUMNS = ("topic", "date", "hour", "id", "timestamp_ns", "body")


def _format_of(spark: "SparkSession", path: str) -> str:
    """Return PARQUET or DELTA for a folder of `layout`, wherever that is; "" for anything else."""
    if "*" in path and "://" not in path:
        return ""
    names = Folder(spark, path).names()
    if layout.DELTA_LOG in names:
        return layout.DELTA
    return layout.PARQUET if any(name.startswith(layout.TOPIC) for name in names) else ""


def _check_ids(words: list[str]) -> None:
    from nsqfast.archives.files import LINES

    for archive in FileFinder(FileNames()).find(words):
        if archive.format == LINES:
            raise OptionsError(f"{archive.path}: plain lines have no ids; use --dedupe=body")


def _read_archives(spark: "SparkSession", words: list[str]) -> "tuple[DataFrame | None, int]":
    """Read everything readable of files of nsq_to_file; return the number of unreadable records, and report each."""
    from nsqfast.spark_jobs.archive_frame import archive_rows
    from nsqfast.spark_jobs.archive_inspection import inspect_all
    from nsqfast.spark_jobs.archive_rows import ArchiveFile

    files = []
    for archive in FileFinder(FileNames()).find(words):
        path = os.path.realpath(archive.path)
        facts, status = archive.facts, os.stat(path)  # noqa: PTH116 - as it was found
        files.append(
            ArchiveFile(
                path, archive.format, archive.packer, status.st_size, status.st_mtime_ns,
                facts.topic or "", facts.begin_ns,
            )
        )  # fmt: skip
    found = inspect_all(spark, files)
    for one in found:
        for damage in one.damages:
            log.warning("%s", damage)
    damaged = sum(one.damage_count for one in found)
    return (archive_rows(spark, found) if any(one.rows for one in found) else None), damaged


def _within(rows: "DataFrame", options: Options) -> "DataFrame":
    """Apply --since and --until. A message without a time of its own is included if its hour overlaps the interval."""
    from pyspark.sql import functions

    if not (options.since or options.until):
        return rows
    time, hour = functions.col("timestamp_ns"), functions.col("hour_ns")
    exact = (time >= options.since_ns) & (time < options.until_ns)
    touching = (hour + NS_PER_HOUR > options.since_ns) & (hour < options.until_ns)
    # Folders in which no time can match are left out by name.
    return rows.where(touching & functions.coalesce(exact, functions.lit(True)))


def _mapped(topics: dict[str, str]) -> "Column":
    from pyspark.sql import functions

    topic = functions.col("topic")
    if not topics:
        return topic
    pairs = [functions.lit(text) for pair in topics.items() for text in pair]
    return functions.coalesce(functions.create_map(*pairs)[topic], topic)


def _unique(rows: "DataFrame", options: Options) -> "DataFrame":
    """Keep one of each group of equal messages. Those without an id equal no others."""
    from pyspark.sql import functions

    if options.dedupe == NONE:
        return rows
    if options.dedupe == BODY:
        key = functions.sha2("body", 256)
        return rows.withColumn("key", key).dropDuplicates(["topic", "key"])
    number = functions.when(
        functions.coalesce(functions.col("id"), functions.lit("")) == "",
        functions.monotonically_increasing_id(),
    )
    return rows.withColumn("key", number).dropDuplicates(["topic", "id", "timestamp_ns", "key"])


# --state: the messages to publish, copied once into files of ordered rows, and the progress.
#
#     _nsqfast.json     the flags of the run
#     messages/         topic, body and slot (the number of the row in its file), by time
#     plan.json         its files with their rows, and the counts; it exists once `messages` is complete
#     progress.json     up to where everything is published, and how many rows are in progress
#
# Rows are recorded as in progress before they are published, and as done afterwards. A run that is killed in between
# leaves them in progress: the next one publishes them again, and reports how many may be duplicates.


FORMAT = 1
PLAN, PROGRESS, MESSAGES = "plan.json", "progress.json", "messages"
FILE_ROWS = 50_000
SLOT = "slot"
_SLOT_BITS = 33  # of monotonically_increasing_id, behind the number of the task


@dataclass(slots=True)
class Progress:
    """Everything before row `slot` of file `file` is published."""

    file: int = 0
    slot: int = 0
    published: int = 0
    under_way: int = 0
    maybe_twice: int = 0  # rows that an earlier run may have published, too


@dataclass(frozen=True, slots=True)
class Slice:
    """Rows that are published at a time: all of several files, or some of one file."""

    files: list[str]
    first: int
    end: int
    rows: int
    next_file: int
    next_slot: int


class State:
    """The state of one run."""

    def __init__(self, spark: "SparkSession", path: str) -> None:
        self._spark = spark
        self._folder = Folder(spark, path)
        self.progress = Progress()
        self.counts: dict[str, int] = {}
        self._files: list[tuple[str, int]] = []

    def open(self, options: Options) -> bool:
        """Return whether the copy exists already; OptionsError: it belongs to another run."""
        binding = {"format": FORMAT, "options": options.binding()}
        before = self._folder.read_json(NOTE)
        if before is None:
            self._folder.write_json(NOTE, binding)
        elif before != binding:
            raise OptionsError(
                f"--state: {self._folder.path} is of a run with other flags{_changed(before, binding)}"
            )
        plan = self._folder.read_json(PLAN)
        if plan is None:
            return False
        self._files = [(name, rows) for name, rows in plan["files"]]
        self.counts = plan["counts"]
        progress = self._folder.read_json(PROGRESS)
        if progress is not None:
            self.progress = Progress(**progress)
            self.progress.maybe_twice += self.progress.under_way
            self.progress.under_way = 0
        return True

    def store_messages(self, messages: "DataFrame", order: str) -> None:
        """Copy them into files, in order; this replaces the copy of a killed run."""
        from pyspark.sql import functions

        number = functions.monotonically_increasing_id().bitwiseAND((1 << _SLOT_BITS) - 1)
        tasks = int(self._spark.conf.get("spark.sql.shuffle.partitions") or "1")
        (
            messages.repartitionByRange(tasks, order)
            .sortWithinPartitions(order)
            .select("topic", "body", (number % FILE_ROWS).cast("int").alias(SLOT))
            .write.mode("overwrite")
            .option("maxRecordsPerFile", FILE_ROWS)
            .parquet(self._messages)
        )

    def plan(self, counts: dict[str, int]) -> None:
        """The copy is complete: list its files."""
        from pyspark.sql import functions

        self.counts = counts
        if not [
            name for name in self._folder.subfolder_names(MESSAGES) if name.endswith(".parquet")
        ]:
            found = []
        else:
            files = self._spark.read.parquet(self._messages).groupBy(
                functions.input_file_name().alias("path")
            )
            found = files.count().orderBy("path").collect()
        self._files = [(str(row["path"]).rpartition("/")[2], row["count"]) for row in found]
        self._folder.write_json(PLAN, {"files": self._files, "counts": counts})

    @property
    def _messages(self) -> str:
        return f"{self._folder.path}/{MESSAGES}"

    def slices(self, rows_max: int, files_max: int) -> Iterator[Slice]:
        """Yield what is left, in order. `rows_max` 0: whole files, so many at a time."""
        file, slot = self.progress.file, self.progress.slot
        while file < len(self._files):
            rows = self._files[file][1]
            if rows_max or slot:
                end = min(slot + (rows_max or rows), rows)
                is_end = end == rows
                following = (file + 1, 0) if is_end else (file, end)
                yield Slice(self._paths(file, file + 1), slot, end, end - slot, *following)
                file, slot = following
            else:
                last = min(file + files_max, len(self._files))
                total = sum(count for _, count in self._files[file:last])
                yield Slice(self._paths(file, last), 0, FILE_ROWS, total, last, 0)
                file = last

    def _paths(self, first: int, end: int) -> list[str]:
        return [f"{self._messages}/{name}" for name, _ in self._files[first:end]]

    def read(self, part: Slice) -> "DataFrame":
        """Return its topics and bodies."""
        from pyspark.sql import functions

        slot = functions.col(SLOT)
        rows = self._spark.read.schema(f"topic string, body binary, {SLOT} int").parquet(
            *part.files
        )
        return rows.where((slot >= part.first) & (slot < part.end)).select("topic", "body")

    def begin(self, part: Slice) -> None:
        """Its publishing begins."""
        self.progress.under_way = part.rows
        self._note()

    def finish(self, part: Slice) -> None:
        """It was published."""
        progress = self.progress
        progress.file, progress.slot = part.next_file, part.next_slot
        progress.published += part.rows
        progress.under_way = 0
        self._note()

    def _note(self) -> None:
        self._folder.write_json(PROGRESS, asdict(self.progress))


def _changed(old: dict[str, Any], new: dict[str, Any]) -> str:
    before, now = old.get("options"), new["options"]
    if old.get("format") != FORMAT or not isinstance(before, dict):
        return f" (format {old.get('format')})"
    return ": " + ", ".join(
        f"--{name.replace('_', '-')} was {before.get(name)!r}"
        for name in now
        if before.get(name) != now[name]
    )


# Runs `replay`: in one Spark job, or with --state or --rate in slices, one after the other.


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
        state.store_messages(messages, ORDER)
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


NAME = "replay"


def main(argv: list[str] | None = None, spark: "SparkSession | None" = None) -> int:
    """Run the job; return the exit status."""
    words = sys.argv[1:] if argv is None else argv
    return run_job(NAME, parser(Options, NAME, words), live, spark)


def live(job: Job[Options]) -> int:
    """Return the exit status."""
    # Late, so that --help and a wrong flag answer at once.
    import nsqfast.spark

    nsqfast.spark.register(job.spark)
    return Replay(job).run()


if __name__ == "__main__":
    sys.exit(main())
