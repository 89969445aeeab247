"""The query of `ingest`: it writes messages to files, with one action per batch.

Every action on the frame of a batch reads the source again. So one action both writes the good rows and counts all of
them; only a batch with bad bodies is read a second time, for the dead letters.
"""

import time
from hashlib import sha256
from typing import TYPE_CHECKING, Any

from nsqfast.spark_jobs import layout
from nsqfast.spark_jobs.binding import Binding, Subject
from nsqfast.spark_jobs.ingest_options import Options
from nsqfast.spark_jobs.ingest_source import FileSource, FormatSource, Lag
from nsqfast.spark_jobs.job import EXIT_BAD, EXIT_OK, Job
from nsqfast.spark_jobs.json_bodies import ERROR, VALUE, parse_bodies
from nsqfast.spark_jobs.json_schema import read_json_schema
from nsqfast.spark_jobs.streams import run_query
from nsqfast.tools.shared.program import log

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame
    from pyspark.sql.streaming import StreamingQuery
    from pyspark.sql.types import StructType

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
