"""Where the messages of `ingest` come from: format("nsq"), or Spark's own file source on Parquet segments."""

import contextlib
import json
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import nsqfast.spark
from nsqfast.spark.source.listing import measure_lag
from nsqfast.spark.spool.segments import PARQUET
from nsqfast.spark_jobs.ingest_options import Options
from nsqfast.spark_jobs.job import Job

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming import StreamingQuery

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
        from nsqfast.spark.source.loss import LossPolicy
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
        return nsqfast.spark.stream(self._spark, self._settings.spool, **chosen)

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
