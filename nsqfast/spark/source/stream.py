"""spark.readStream.format("nsq").

One process of Spark, the runner of the query, calls everything except `read`, from the start of the query to its end.
Other processes create a reader only to pass `read` on to the tasks.
"""

import signal
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSourceStreamReader

from nsqfast.errors import OptionsError
from nsqfast.program import logs
from nsqfast.spark.failures import errors_as_lines, is_spark_process
from nsqfast.spark.source.listing import measure_lag
from nsqfast.spark.source.offsets import (
    Limit,
    LossPolicy,
    Offset,
    admit,
    find_waiting,
    segments_between,
)
from nsqfast.spark.source.options import SourceOptions, check_schema
from nsqfast.spark.source.partition import SpoolPartition, make_partitions, read_partition
from nsqfast.spark.source.query import SpoolQuery, check_epoch
from nsqfast.spark.spool.identity import SpoolError
from nsqfast.spark.spool.segments import Segment

try:
    from pyspark.sql.streaming.datasource import (
        ReadAllAvailable,
        ReadLimit,
        ReadMaxBytes,
        ReadMaxRows,
        SupportsTriggerAvailableNow,
    )

    HAS_ADMISSION = True
except ImportError:  # PySpark 4.0 and 4.1 request everything, without saying what for
    HAS_ADMISSION = False

    class SupportsTriggerAvailableNow:  # type: ignore[no-redef]
        pass


if TYPE_CHECKING:
    from types import FrameType

    import pyarrow as pa
    from pyspark.sql.types import StructType

PROGRAM = "nsq_source"
log = logs.logger("nsqfast.spark.source")


class NsqStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """It is pickled before any of its methods is called."""

    def __init__(self, options: Mapping[str, str], schema: "StructType") -> None:
        self._refusal: OptionsError | None = None
        try:
            self._options = SourceOptions.parse(options)
            self._schema = check_schema(schema, self._options.columns)
            self._loss = LossPolicy(is_strict=self._options.fail_on_data_loss)
        except OptionsError as error:
            # Spark's runner does not show exceptions from here; the first call comes soon.
            self._refusal = error
        # From here on: used by the runner only.
        self._query: SpoolQuery | None = None
        self._target: dict[str, int] | None = None
        self._is_drain_due = False  # by the first call that has the checkpoint
        self._was_drained = False
        self._given: Offset | None = None  # the end of what Spark was offered last
        self._waiting: Mapping[str, Sequence[Segment]] = {}  # at the time of that offer

    # -- offsets

    @errors_as_lines()
    def initialOffset(self) -> dict[str, Any]:  # noqa: N802 - Spark's name, as all below
        """Always the same: Spark asks again when the first batch has to be repeated."""
        query = self._open()
        self._given = self._given or Offset(query.identity, {})
        return Offset(query.identity, {}).to_json()

    @errors_as_lines()
    def latestOffset(  # noqa: N802
        self, start: dict[str, Any] | None = None, limit: "ReadLimit | None" = None
    ) -> dict[str, Any]:
        """Return where the next batch ends; `start` itself if nothing waits. Before PySpark 4.2 it is not passed."""
        begin = None if start is None else Offset.from_json(start)
        query = self._open(begin)
        if begin is not None:
            self._check_checkpoint(query, begin)
        self._take_in(query)
        begin = Offset(query.identity, {}) if begin is None else self._adopted(query, begin)
        if begin is None:
            assert start is not None
            return start
        try:
            begin, waiting = find_waiting(query.options.spool, query.listing, begin, self._loss)
        except SpoolError:
            if query.is_intact():
                raise
            return begin.to_json()  # the spool is being deleted, and that is accepted
        self._waiting = waiting
        if self._target is not None:
            waiting = {name: self._to_target(name, found) for name, found in waiting.items()}
        taken = admit(waiting, self._limit(limit))
        self._given = Offset(begin.identity, {**begin.numbers, **taken})
        return self._given.to_json()

    @errors_as_lines()
    def getDefaultReadLimit(self) -> "ReadLimit":  # noqa: N802
        """Return the limit of the options. Spark takes only one; `latestOffset` adds the other."""
        self._check()
        options = self._options
        if options.max_rows is not None:
            return ReadMaxRows(options.max_rows)
        if options.max_bytes is not None:
            return ReadMaxBytes(options.max_bytes)
        return ReadAllAvailable()

    @errors_as_lines()
    def reportLatestOffset(self) -> dict[str, Any] | None:  # noqa: N802
        """For the query's progress: the last segments, and how much waits behind Spark's last offer."""
        if self._given is None:
            return None
        given = self._given.numbers
        segments = [
            segment
            for name, found in self._waiting.items()
            for segment in found
            if segment.number > given.get(name, 0)
        ]
        last = {name: found[-1].number for name, found in self._waiting.items() if found}
        return Offset(self._given.identity, {**given, **last}).to_json() | {
            "waiting": measure_lag(segments)
        }

    @errors_as_lines()
    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        """Take what waits now, also in nsqd; what comes later is left to the next run."""
        query = self._open()
        self._is_drain_due = query.receiver is not None
        if not self._is_drain_due:
            self._set_target(query)

    # -- batches

    @errors_as_lines()
    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[SpoolPartition]:
        """Return the segments between the two, divided by bytes; none if they are equal."""
        if start == end:
            return []
        first, last = Offset.from_json(start), Offset.from_json(end)
        query = self._open(last)
        if last.identity != query.identity:
            return []  # they are gone, and that was accepted
        if first.identity != query.identity:
            # Before PySpark 4.2 the position of the checkpoint is not known earlier.
            first.check_subscription(query.identity.subscription, query.identity.channel)
            check_epoch(query.options.spool, query.identity, first, self._loss)
            first = Offset(query.identity, {})
        segments = segments_between(query.options.spool, query.listing, first, last, self._loss)
        return make_partitions(self._options, segments)

    def read(self, partition: SpoolPartition) -> Iterator["pa.RecordBatch"]:
        """Runs in a task, on any machine."""
        return read_partition(partition, self._schema)

    @errors_as_lines()
    def commit(self, end: dict[str, Any]) -> None:
        """Spark has processed everything up to there."""
        offset = Offset.from_json(end)
        query = self._open(offset)
        if offset.identity == query.identity:
            query.release(offset)

    def stop(self) -> None:
        """Seal and finish what the receiver has; then another query may read the spool."""
        if self._query is not None:
            _heed_sigterm(signal.SIG_IGN)
            query, self._query = self._query, None
            query.close()

    # -- the runner

    def _check(self) -> None:
        if self._refusal is not None:
            raise self._refusal

    def _open(self, checkpoint: Offset | None = None) -> SpoolQuery:
        """Return the query, opened by the runner's first call, and again if its spool was replaced."""
        self._check()
        if self._query is not None and not self._query.is_intact():
            self._query.close()
            self._query = None
        if self._query is None:
            _set_up_runner()
            if not HAS_ADMISSION and (self._options.max_rows or self._options.max_bytes):
                log.warning(
                    "maxRowsPerTrigger and maxBytesPerTrigger need PySpark 4.2 or newer: a batch takes all there is"
                )
            self._query = SpoolQuery.open(self._options, self._loss, checkpoint)
        return self._query

    def _check_checkpoint(self, query: SpoolQuery, begin: Offset) -> None:
        """Before anything is taken from nsqd: a query that is refused leaves it there."""
        begin.check_subscription(query.identity.subscription, query.identity.channel)
        if begin.identity != query.identity:
            check_epoch(query.options.spool, query.identity, begin, self._loss)

    def _adopted(self, query: SpoolQuery, begin: Offset) -> Offset | None:
        """Return `begin` as an offset of this spool. None: it is another's, and nothing waits in this one yet."""
        if begin.identity == query.identity:
            return begin
        own = Offset(query.identity, {})
        _, waiting = find_waiting(query.options.spool, query.listing, own, self._loss)
        return own if any(waiting.values()) else None

    def _take_in(self, query: SpoolQuery) -> None:
        """Run the receiver, if this query has one and does not end with what was there."""
        if self._target is not None:
            return
        if query.receiver is None:
            query.look_for_receiver()
            return
        if self._is_drain_due:
            query.drain()
            self._set_target(query)
            return
        if not HAS_ADMISSION and not self._was_drained:
            # The query may take only what is there and end: then it asks just once.
            query.drain()
            self._was_drained = True
        query.receiver.start()
        query.receiver.check()

    def _set_target(self, query: SpoolQuery) -> None:
        query.listing.refresh()
        self._target = {name: query.listing.last(name) for name in query.listing.receivers()}

    def _to_target(self, receiver: str, segments: Sequence[Segment]) -> Sequence[Segment]:
        assert self._target is not None
        last = self._target.get(receiver, 0)
        return [segment for segment in segments if segment.number <= last]

    def _limit(self, given: "ReadLimit | None") -> Limit:
        """Return Spark's limit, which is one of the two, and the other one from the options."""
        if given is None or isinstance(given, ReadAllAvailable):
            return Limit()
        row_count, size = self._options.max_rows, self._options.max_bytes
        if isinstance(given, ReadMaxRows):
            row_count = given.max_rows
        elif isinstance(given, ReadMaxBytes):
            size = given.max_bytes
        return Limit(row_count, size)


def _set_up_runner() -> None:
    """Send its log to the driver's. Spark ends the process with a signal, which must end it in order."""
    if is_spark_process():
        logs.set_up(PROGRAM, f"[{PROGRAM}] ", logs.LEVELS["info"])
    _heed_sigterm(_leave)


def _heed_sigterm(handler: "signal.Handlers | Callable[[int, FrameType | None], None]") -> None:
    if is_spark_process() and threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGTERM, handler)


def _leave(_number: int, _frame: object) -> None:
    sys.exit(0)
