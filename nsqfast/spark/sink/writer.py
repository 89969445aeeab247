"""What Spark calls: the driver creates a writer, each task runs `write`, and the driver runs `commit` or `abort`.

Spark pickles a writer in between, so it contains only the options.
"""

import itertools
import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pyspark import TaskContext
from pyspark.sql import datasource as spark_datasource
from pyspark.sql.datasource import (
    DataSourceArrowWriter,
    DataSourceStreamWriter,
    WriterCommitMessage,
)

from nsqfast.errors import OptionsError
from nsqfast.spark.failures import errors_as_lines
from nsqfast.spark.runtime import log, set_up_worker_log
from nsqfast.spark.sink.options import SinkOptions, parse_options
from nsqfast.spark.sink.publisher import Counts, SinkPublisher, borrow_connection, drop_connection
from nsqfast.spark.sink.rows import check_columns, cut_publishes, read_rows

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

ROWS_PER_BATCH = 10_000  # of PySpark 4.0, which passes single rows; the same as Spark's own batches


@dataclass(frozen=True, slots=True)
class NsqCommitMessage(WriterCommitMessage):
    """What a task has published. With `attempt` > 0 all of it may be duplicates, and `counts` says so."""

    partition: int
    attempt: int
    counts: Counts


class _Writer:
    """The common part of both kinds of jobs."""

    def __init__(self, given: Mapping[str, str], schema: "StructType") -> None:
        self._options = parse_options(given)
        check_columns(schema, self._options)

    def write(self, iterator: Iterator[Any]) -> NsqCommitMessage:
        """Runs in a worker; the iterator's items are Arrow batches."""
        return publish_partition(iterator, self._options)

    def _report(
        self, messages: Iterable[NsqCommitMessage | None], batch: str, *, is_whole: bool
    ) -> None:
        """Log on the driver what all tasks together have published."""
        set_up_worker_log()
        known = [message for message in messages if message is not None]
        counts = Counts.total(message.counts for message in known)
        if is_whole:
            log.info("%spublished %s, by %d tasks", batch, counts, len(known))
        else:
            log.warning(
                "%saborted; NSQ keeps what was published: %s, by %d tasks that ended, "
                "and what the log lines of the others say",
                batch,
                counts,
                len(known),
            )


class NsqBatchWriter(_Writer, DataSourceArrowWriter):
    """For df.write; the names of parameters are Spark's."""

    def __init__(self, given: Mapping[str, str], schema: "StructType", overwrite: bool) -> None:
        if overwrite:
            raise OptionsError(
                "mode overwrite: NSQ has nothing to overwrite, messages are added; say mode('append')"
            )
        super().__init__(given, schema)

    def commit(self, messages: list[NsqCommitMessage | None]) -> None:
        """Log what was published."""
        self._report(messages, "", is_whole=True)

    def abort(self, messages: list[NsqCommitMessage | None]) -> None:
        """Log what was published before the failure."""
        self._report(messages, "", is_whole=False)


class _StreamWriter(_Writer):
    def __init__(self, given: Mapping[str, str], schema: "StructType", overwrite: bool) -> None:
        if overwrite:
            raise OptionsError(
                "output mode complete publishes the whole result anew with each batch; say append or update"
            )
        super().__init__(given, schema)

    def commit(self, messages: list[NsqCommitMessage | None], batchId: int) -> None:  # noqa: N803 - Spark's name
        """Log what was published of this batch."""
        self._report(messages, f"batch {batchId}: ", is_whole=True)

    def abort(self, messages: list[NsqCommitMessage | None], batchId: int) -> None:  # noqa: N803 - Spark's name
        """Log what was published before the failure; the batch is repeated."""
        self._report(messages, f"batch {batchId}: ", is_whole=False)


class NsqStreamRowWriter(_StreamWriter, DataSourceStreamWriter):
    """For df.writeStream of PySpark 4.0, which passes rows."""

    def __init__(self, given: Mapping[str, str], schema: "StructType", overwrite: bool) -> None:
        super().__init__(given, schema, overwrite)
        self._schema = schema

    def write(self, iterator: Iterator[Any]) -> NsqCommitMessage:
        """Runs in a worker; the iterator's items are rows."""
        return publish_partition(gather_rows(iterator, self._schema), self._options)


_StreamArrowBase: Any = getattr(spark_datasource, "DataSourceStreamArrowWriter", None)

if _StreamArrowBase is not None:

    class NsqStreamWriter(_StreamWriter, _StreamArrowBase):
        """For df.writeStream since PySpark 4.1, which passes Arrow batches."""


def make_stream_writer(
    given: Mapping[str, str], schema: "StructType", overwrite: bool
) -> DataSourceStreamWriter:
    """Return the fastest writer that this PySpark supports."""
    if _StreamArrowBase is None:
        return NsqStreamRowWriter(given, schema, overwrite)
    return NsqStreamWriter(given, schema, overwrite)


def gather_rows(rows: Iterator[Any], schema: "StructType") -> Iterator[Any]:
    """Yield Arrow batches of so many rows."""
    import pyarrow as pa
    from pyspark.sql.pandas.types import to_arrow_schema

    arrow_schema = to_arrow_schema(schema)
    while part := list(itertools.islice(rows, ROWS_PER_BATCH)):
        columns = [
            pa.array(values, field.type)
            for values, field in zip(zip(*part, strict=True), arrow_schema, strict=True)
        ]
        yield pa.RecordBatch.from_arrays(columns, names=arrow_schema.names)


@errors_as_lines()
def publish_partition(batches: Iterable[Any], options: SinkOptions) -> NsqCommitMessage:
    """Publish all rows of a task, and log the result even after an error."""
    set_up_worker_log()
    context = TaskContext.get()
    partition, attempt = (context.partitionId(), context.attemptNumber()) if context else (0, 0)
    where = f"partition {partition}, attempt {attempt}"
    started_s = time.monotonic()
    counts = Counts()
    try:
        publisher = SinkPublisher(borrow_connection(options), options)
        counts = publisher.counts
        publish_batches(batches, publisher, options)
    except BaseException as error:
        drop_connection(options)
        log.error("%s: failed, with %s published: %s", where, counts, error)
        raise
    if attempt:
        counts.retried_rows = counts.rows
    log.info("%s: published %s in %.2f s", where, counts, time.monotonic() - started_s)
    return NsqCommitMessage(partition, attempt, counts)


def publish_batches(batches: Iterable[Any], publisher: SinkPublisher, options: SinkOptions) -> None:
    """Publish all of them; after an error still wait for earlier answers, so that the counts are right."""
    row = 0
    try:
        for batch in batches:
            for publish in cut_publishes(read_rows(batch, options, row), options):
                publisher.put(publish)
            row += len(batch)
    except Exception:
        publisher.wait_answers()
        raise
    publisher.finish()
