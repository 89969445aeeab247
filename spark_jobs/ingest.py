"""nsqfast-spark ingest: topics of NSQ to Parquet, each message once.

    nsqfast-spark ingest --topic=orders --channel=archive --nsqd-tcp-address=127.0.0.1:4150 \
        --spool=/data/spool --output=/data/messages --checkpoint=/data/checkpoint

It writes to <output>/topic=T/date=D/hour=H/batch=<query>-<number>. A batch that is written again, because the job was
killed between its files and Spark's commit, replaces its own folders: nothing is lost or duplicated.
"""

import contextlib
import json
import os
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import nsqfast.spark
from nsqfast.program.options import BOOL, DURATION, INT, STRING, PlainError, option, text_such_as
from nsqfast.spark.failures import explain, is_permanent, spark_errors
from nsqfast.spark.source.listing import measure_lag
from nsqfast.spark.spool.segments import ARROW
from nsqfast.spark.spool.segments import FORMATS as SEGMENT_FORMATS
from nsqfast.spark_jobs import layout
from nsqfast.spark_jobs.binding import Binding, Subject
from nsqfast.spark_jobs.job import EXIT_BAD, EXIT_OK, Job, Stop, run_job
from nsqfast.spark_jobs.json_bodies import ERROR, VALUE, parse_bodies, read_json_schema
from nsqfast.spark_jobs.layout import FORMATS, PARQUET
from nsqfast.spark_jobs.options import ANY_NUMBER, AddressOptions, JobOptions, TopicOptions, parser
from nsqfast.tools.shared.options import AUTH_SECRET_HELP, CLIENT_OPTIONS, CONSUMER_HELP
from nsqfast.tools.shared.program import ToolError, log
from nsqfast.wire.names import describe_invalid, is_valid_name

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession
    from pyspark.sql.streaming import StreamingQuery
    from pyspark.sql.types import StructType

# The streaming query of a job: watches it, restarts it after a temporary failure, and stops it in order.

POLL_S = 0.2
FIRST_WAIT_S = 1.0
WAIT_S_MAX = 60.0
HEALTHY_S = 60.0  # a query that ran for so long has recovered from earlier failures


def run_query(
    start: Callable[[], "StreamingQuery"],
    stop: Stop,
    restarts_max: int,
    is_over: Callable[[], bool] = lambda: False,
    watch: "Callable[[StreamingQuery], None]" = lambda _: None,
) -> None:
    """Run until it ends by itself, `stop` is requested, or `is_over`, which is checked after each `watch`.

    ToolError: it failed, and a restart would not help.
    """
    failures, wait_s = 0, FIRST_WAIT_S
    while True:
        begun_s = time.monotonic()
        error = _run(start, stop, is_over, watch)
        if error is None or stop.is_asked:
            return
        if time.monotonic() - begun_s > HEALTHY_S:
            failures, wait_s = 0, FIRST_WAIT_S
        failures += 1
        if is_permanent(error):
            raise ToolError(explain(error))
        if failures > restarts_max:
            raise ToolError(f"{explain(error)} (given up after {restarts_max} restarts)")
        log.warning("%s; starting again in %.0f s", explain(error), wait_s)
        if stop.wait(wait_s):
            return
        wait_s = min(2 * wait_s, WAIT_S_MAX)


def _run(
    start: Callable[[], "StreamingQuery"],
    stop: Stop,
    is_over: Callable[[], bool],
    watch: "Callable[[StreamingQuery], None]",
) -> Exception | None:
    """Return what ended it, unless it ended in order."""
    try:
        query = start()
    except spark_errors() as error:
        return error
    try:
        while query.isActive and not (stop.is_asked or is_over()):
            stop.wait(POLL_S)
            watch(query)
    finally:
        query.stop()
    reason: Exception | None = query.exception()
    return None if stop.is_asked or is_over() else reason


EMBEDDED, EXTERNAL = "embedded", "external"
RECEIVERS = (EMBEDDED, EXTERNAL)
RESTARTS = 5
_REQUIRED = ("channel", "spool", "output", "checkpoint")


@dataclass(slots=True)
class Options(TopicOptions, AddressOptions, JobOptions):
    """As on the command line. 0 or "" leaves the choice to the source."""

    # fmt: off
    max_bad: int = option(
        INT, ANY_NUMBER, "most bad bodies of a run; with more it ends, with exit status 3; -1 = any number")

    channel: str = option(STRING, "", "channel to consume", group="Consumer")
    consumer_opt: list[str] = option(CLIENT_OPTIONS, [], CONSUMER_HELP)
    auth_secret_file: str = option(STRING, "", AUTH_SECRET_HELP)
    receiver: str = option(
        text_such_as(*RECEIVERS), EMBEDDED, "what consumes: embedded, or external for nsqfast-nsq-spool")

    spool: str = option(
        STRING, "", "folder that keeps messages until they are written; every executor must have it", group="Spool")
    segment_format: str = option(
        text_such_as(*SEGMENT_FORMATS), ARROW,
        'what the spool has: arrow for format("nsq"), or parquet, which Spark reads faster, by itself')
    deaths: bool = option(
        BOOL, False, "with each dead letter of nsqfast-nsqd what is known of it, in a column `death`")
    max_spool_bytes: str = option(STRING, "", "size of the spool, such as 10g, from which messages stay in nsqd")
    retention_ns: int = option(DURATION, "0s", "time that the spool keeps messages that are written")
    ignore_data_loss: bool = option(BOOL, False, "go on with a warning where the spool has lost messages")

    output: str = option(
        STRING, "", "folder to write to, by topic, date, hour and batch", group="Output")
    checkpoint: str = option(STRING, "", "folder in which Spark notes its progress; it belongs to one output")
    format: str = option(text_such_as(*FORMATS), PARQUET, "format to write: parquet or delta")
    json_schema: str = option(
        STRING, "",
        "file with the schema of the bodies, which become the column `value`: DDL, Spark's JSON or JSON Schema")
    dead_letter: str = option(
        STRING, "", "folder for messages whose bodies do not fit the schema; empty = they are written with an `error`")

    available_now: bool = option(BOOL, False, "take the messages that wait now, then end", group="Batches")
    interval_ns: int = option(DURATION, "1s", "time between two batches; 0s = as soon as there are messages")
    max_rows_per_trigger: int = option(INT, 0, "most messages of a batch; 0 = no limit")
    max_bytes_per_trigger: str = option(STRING, "", "most bytes of a batch, such as 512m; empty = no limit")
    num_partitions: int = option(INT, 0, "most tasks of a batch; 0 = as the source decides")
    restarts: int = option(
        INT, RESTARTS, "how many times in a row a query that failed for a passing reason is started again")
    # fmt: on

    def check(self) -> None:
        """PlainError: an option is missing or cannot be honoured."""
        JobOptions.check(self)
        self.check_topics()
        if not (self.topic or self.topic_pattern):
            raise PlainError("--topic or --topic-pattern required")
        for name in _REQUIRED:
            if not getattr(self, name):
                raise PlainError(f"--{name} required")
        if not is_valid_name(self.channel):
            raise PlainError(f"--channel: {describe_invalid(self.channel, 'channel')}")
        if self.format not in FORMATS:
            raise PlainError(f"--format is {self.format!r}; it is {' or '.join(FORMATS)}")
        if self.receiver not in RECEIVERS:
            raise PlainError(f"--receiver is {self.receiver!r}; it is {' or '.join(RECEIVERS)}")
        if self.receiver == EMBEDDED:
            self.check_addresses()
        if self.dead_letter and not self.json_schema:
            raise PlainError("--dead-letter needs --json-schema, which says what a good body is")
        self._check_numbers()
        self._check_segment_format()
        self._check_source()

    def _check_numbers(self) -> None:
        for name in (
            "interval_ns",
            "retention_ns",
            "max_rows_per_trigger",
            "num_partitions",
            "restarts",
        ):
            if getattr(self, name) < 0:
                flag = name.removesuffix("_ns").replace("_", "-")
                raise PlainError(f"--{flag} is 0 or more")

    def _check_segment_format(self) -> None:
        if self.segment_format not in SEGMENT_FORMATS:
            raise PlainError(
                f"--segment-format is {self.segment_format!r}; it is {' or '.join(SEGMENT_FORMATS)}"
            )
        if self.segment_format == ARROW:
            return
        if self.max_rows_per_trigger or self.num_partitions:
            raise PlainError(
                "--max-rows-per-trigger and --num-partitions need --segment-format=arrow; Spark's file source has"
                " --max-bytes-per-trigger"
            )
        if ":/" in self.checkpoint:
            raise PlainError(
                f"--checkpoint {self.checkpoint}: with --segment-format=parquet the receiver reads it, so it is a"
                " folder of this machine, also a mounted one"
            )

    def _check_source(self) -> None:
        """Check them before Spark is started, which takes a while."""
        from nsqfast.spark.source.options import SourceOptions

        SourceOptions.parse(self.source_options())

    def source_options(self) -> dict[str, str]:
        """Return the options of format("nsq")."""
        found = {
            "subscribe": ",".join(self.topic),
            "subscribePattern": self.topic_pattern,
            "channel": self.channel,
            "nsqdTcpAddresses": ",".join(self.nsqd_tcp_address),
            "lookupdHttpAddresses": ",".join(self.lookupd_http_address),
            "spoolDir": os.path.abspath(self.spool),  # noqa: PTH100 - a text
            "receiver": self.receiver,
            "maxSpoolBytes": self.max_spool_bytes,
            "maxRowsPerTrigger": str(self.max_rows_per_trigger or ""),
            "maxBytesPerTrigger": self.max_bytes_per_trigger,
            "numPartitions": str(self.num_partitions or ""),
            "retention": f"{self.retention_ns}ns" if self.retention_ns else "",
            "failOnDataLoss": "false" if self.ignore_data_loss else "",
            "deaths": "true" if self.deaths else "",
        }
        for item in self.consumer_opt:
            key, _, value = item.partition(",")
            found[f"nsq.{key}"] = value or "true"
        return {key: value for key, value in found.items() if value}


# With more files in a batch Spark runs a job to list them, which takes as long as reading them.
LISTING = "spark.sql.sources.parallelPartitionDiscovery.threshold"
LISTING_FILES = 10_000

Lag = dict[str, float]  # as `measure_lag` returns it


class FormatSource:
    """format("nsq"), which looks after its receiver itself."""

    def __init__(self, job: Job[Options]) -> None:
        nsqfast.spark.register(job.spark)
        self._reader = job.spark.readStream.format("nsq").options(**job.options.source_options())

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def load(self) -> "DataFrame":
        """Return the messages as a stream; again for a query that is started again."""
        return self._reader.load()

    def measure_lag(self, query: "StreamingQuery") -> Lag:
        """Return what waits in the spool, as far as it is known. SpoolError: no more will come."""
        try:
            offset: Any = json.loads(query.lastProgress["sources"][0]["latestOffset"])
            return dict(offset["waiting"])
        except (TypeError, ValueError, KeyError, IndexError):
            return {}  # not yet, or Spark is too old to ask the source


class FileSource:
    """Spark's own file source. The receiver seals Parquet, and learns from the checkpoint what it may release."""

    def __init__(self, job: Job[Options]) -> None:
        from nsqfast.spark.source.options import SourceOptions

        self._spark: SparkSession = job.spark
        self._options = job.options
        found = SourceOptions.parse(job.options.source_options())
        self._settings = replace(found, checkpoint=Path(job.options.checkpoint).absolute())

    def __enter__(self) -> Self:
        """SpoolError: the spool is another's, or in use, or all that waits in nsqd cannot be received."""
        from nsqfast.spark.source.offsets import LossPolicy
        from nsqfast.spark.source.query import SpoolQuery

        with contextlib.ExitStack() as stack:
            self._query = SpoolQuery.open(self._settings, LossPolicy(is_strict=True))
            stack.callback(self._query.close)
            self.load()  # refuses what Spark cannot read before anything is taken from nsqd
            if self._query.receiver is not None:
                if self._options.available_now:
                    self._query.drain()
                else:
                    self._query.receiver.start()
            stack.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        """Release what was committed since its own receiver looked last."""
        from nsqfast.spark.receiver.releasing import Releaser

        try:
            if self._query.receiver is not None:
                self._query.receiver.stop()
                assert self._settings.checkpoint is not None
                for name in self._query.listing.receivers():
                    Releaser(self._settings.spool / name, self._settings.checkpoint).run()
        finally:
            self._query.close()

    def load(self) -> "DataFrame":
        """As `FormatSource.load`."""
        options = self._options
        chosen: dict[str, Any] = {}
        if options.max_bytes_per_trigger:
            chosen["maxBytesPerTrigger"] = options.max_bytes_per_trigger
        if options.ignore_data_loss:
            chosen |= {"ignoreMissingFiles": True, "ignoreCorruptFiles": True}
        self._spark.conf.set(LISTING, LISTING_FILES)
        spool = self._settings.spool
        return nsqfast.spark.stream(self._spark, spool, deaths=options.deaths, **chosen)

    def measure_lag(self, _query: "StreamingQuery") -> Lag:
        """As `FormatSource.measure_lag`, with the batch that runs."""
        if self._query.receiver is not None:
            self._query.receiver.check()
        else:
            self._query.look_for_receiver()
        self._query.listing.refresh()
        return measure_lag(self._query.listing.live())


def make_source(job: Job[Options]) -> FormatSource | FileSource:
    """Return the one that was chosen, which is used within a `with`."""
    return FileSource(job) if job.options.segment_format == PARQUET else FormatSource(job)


# The query of `ingest`: it writes messages to files, with one action per batch.
#
# Every action on the frame of a batch reads the source again. So one action both writes the good rows and counts all of
# them; only a batch with bad bodies is read a second time, for the dead letters.


NS_PER_MS = 1_000_000
NS_PER_S = 1_000_000_000
QUERY_ID = "sql.streaming.queryId"
NAME_LENGTH_MAX = 200  # of a query, which each of its events repeats


class Ingestion:
    """One run, from a source that is entered once the checkpoint is known to be the right one."""

    def __init__(self, job: Job[Options], source: FormatSource | FileSource) -> None:
        self._job = job
        self._source = source
        options = job.options
        self._schema = read_json_schema(options.json_schema) if options.json_schema else None
        self._batches = Batches(job, self._schema)

    def run(self) -> int:
        """Return the exit status."""
        options = self._job.options
        layout.check_format(self._job.spark, options.format)
        binding = Binding(self._job.spark, options.output, options.checkpoint)
        binding.check(self._subject())
        with self._source:
            run_query(self._start, self._job.stop, options.restarts, self._is_over, self._watch)
        return self._sum_up()

    def _watch(self, query: "StreamingQuery") -> None:
        self._batches.lag = self._source.measure_lag(query)

    def _subject(self) -> Subject:
        options = self._job.options
        number = sha256(self._schema.json().encode()).hexdigest()[:16] if self._schema else ""
        return Subject(
            tuple(sorted(options.topic)),
            options.topic_pattern,
            options.channel,
            number,
            options.segment_format,
        )

    def _start(self) -> "StreamingQuery":
        options = self._job.options
        trigger: dict[str, Any] = {"availableNow": True}
        if not options.available_now:
            trigger = {"processingTime": f"{options.interval_ns // NS_PER_MS} milliseconds"}
        return (
            self._source.load()
            .writeStream.queryName(self._subject().words[:NAME_LENGTH_MAX])
            .foreachBatch(self._batches.write)
            .option("checkpointLocation", options.checkpoint)
            .trigger(**trigger)
            .start()
        )

    def _is_over(self) -> bool:
        """Whether the run has an end and reached it: an endless stream cannot be judged."""
        options = self._job.options
        return not options.available_now and options.is_too_bad(self._batches.bad)

    def _sum_up(self) -> int:
        batches, options = self._batches, self._job.options
        log.info(
            "%s messages of %s bytes written to %s, batch by batch (%s)",
            f"{batches.rows:,}",
            f"{batches.bytes:,}",
            options.output,
            f"{batches.count:,}",
        )
        if batches.bad:
            where = options.dead_letter or f"{options.output}, column `{ERROR}`"
            log.warning("%s bodies are not of --json-schema: %s", f"{batches.bad:,}", where)
        return EXIT_BAD if options.is_too_bad(batches.bad) else EXIT_OK


class Batches:
    """Writes one batch after the other, and counts them."""

    def __init__(self, job: Job[Options], schema: "StructType | None") -> None:
        self._reports = job.reports
        self._options = job.options
        self._schema = schema
        self._last = ""  # the last counted batch
        self.lag: Lag = {}  # empty: not known
        self.count = 0
        self.rows = 0
        self.bytes = 0
        self.bad = 0

    def write(self, messages: "DataFrame", number: int) -> None:
        """For foreachBatch. An exception ends the query, and the batch is repeated."""
        from pyspark.sql import Observation

        options = self._options
        begun_s = time.monotonic()
        query = messages.sparkSession.sparkContext.getLocalProperty(QUERY_ID)
        batch = f"{query}-{number}"
        rows = layout.with_partitions(messages, batch)
        if self._schema is not None:
            rows = parse_bodies(rows, self._schema)
        observation = Observation()
        observed = rows.observe(observation, *_figures(has_errors=self._schema is not None))
        if options.dead_letter:
            observed = observed.where(f"{ERROR} IS NULL").drop(ERROR)
        layout.write(observed, options.output, options.format)
        figures = observation.get
        if options.dead_letter and figures["bad"]:
            letters = rows.where(f"{ERROR} IS NOT NULL").drop(VALUE)
            layout.write(letters, options.dead_letter, options.format)
        self._note(query, number, figures, time.monotonic() - begun_s)

    def _note(self, query: str, number: int, figures: dict[str, Any], duration_s: float) -> None:
        rows, size, bad = figures["rows"], figures["bytes"] or 0, figures["bad"]
        batch = f"{query}-{number}"
        if not rows or batch == self._last:
            return
        self._last = batch
        self.count += 1
        self.rows += rows
        self.bytes += size
        self.bad += bad
        self._reports.note(
            query=query,
            batch=number,
            rows=rows,
            bytes=size,
            bad=bad,
            redelivered=figures["redelivered"],
            delay_s=round(time.time() - figures["oldest_ns"] / NS_PER_S, 3),
            duration_s=round(duration_s, 3),
            **{f"lag_{name}": self.lag.get(name) for name in ("rows", "bytes", "age_s")},
        )


def _figures(*, has_errors: bool) -> "list[Column]":
    """The counts of a batch, computed by the action that writes it."""
    from pyspark.sql import functions

    is_bad = functions.col(ERROR).isNotNull() if has_errors else functions.lit(False)
    return [
        functions.count(functions.lit(1)).alias("rows"),
        functions.sum(functions.octet_length("body")).alias("bytes"),
        functions.count_if(functions.col("attempts") > 1).alias("redelivered"),
        functions.count_if(is_bad).alias("bad"),
        functions.min("timestamp_ns").alias("oldest_ns"),
    ]


NAME = "ingest"


def main(argv: list[str] | None = None, spark: "SparkSession | None" = None) -> int:
    """Run the job; return the exit status."""
    words = sys.argv[1:] if argv is None else argv
    return run_job(NAME, parser(Options, NAME, words), live, spark)


def live(job: Job[Options]) -> int:
    """Return the exit status."""
    # Late, so that --help and a wrong flag answer at once.

    return Ingestion(job, make_source(job)).run()


if __name__ == "__main__":
    sys.exit(main())
