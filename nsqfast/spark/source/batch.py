"""spark.read.format("nsq"): everything that waits now, and then the end.

The planner of the query moves what waits in nsqd into the spool, and hands out its content. A failed job finds all of
it again, since reading releases nothing: `release` does that, once the job has succeeded.
"""

import json
import os
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSourceReader, InputPartition

from nsqfast.program.durable import open_private, sync_folder
from nsqfast.spark.failures import errors_as_lines
from nsqfast.spark.source.offsets import LossPolicy, Offset, find_waiting, segments_between
from nsqfast.spark.source.options import SourceOptions, check_schema
from nsqfast.spark.source.partition import SpoolPartition, make_partitions, read_partition
from nsqfast.spark.source.query import SpoolQuery, take_lock
from nsqfast.spark.spool.identity import SpoolError, read_identity
from nsqfast.spark.spool.release import release_segments
from nsqfast.spark.spool.segments import Segment, list_segments
from nsqfast.wire.gotext import os_error

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType

FILE = "BATCH.json"
VERSION = 1
HANDOUTS_MAX = 16  # so many are remembered


@dataclass(frozen=True, slots=True)
class Handout:
    """What one load() was given: by receiver, the segments behind `first`, to `last` inclusive."""

    load: str
    epoch: str
    first: dict[str, int]
    last: dict[str, int]


class NsqBatchReader(DataSourceReader):
    """`load` is the same for all readers of one load(), which are given the same messages."""

    def __init__(self, options: Mapping[str, str], schema: "StructType", load: str) -> None:
        self._options = SourceOptions.parse(options)
        self._schema = check_schema(schema, self._options.columns)
        self._load = load

    @errors_as_lines()
    def partitions(self) -> list[InputPartition]:
        """SpoolError: another query reads the spool, or the messages cannot be read."""
        loss = LossPolicy(is_strict=self._options.fail_on_data_loss)
        query = SpoolQuery.open(self._options, loss)
        try:
            known = self._find(query) or self._record(query)
            first = Offset(query.identity, known.first)
            last = Offset(query.identity, known.last)
            segments = segments_between(self._options.spool, query.listing, first, last, loss)
        finally:
            query.close()
        return [*make_partitions(self._options, segments)]

    def _find(self, query: SpoolQuery) -> Handout | None:
        """Return what this load() was given before. Spark 4.0 plans again for each action."""
        for handout in read_handouts(self._options.spool):
            if (handout.load, handout.epoch) == (self._load, query.identity.epoch):
                return handout
        return None

    def _record(self, query: SpoolQuery) -> Handout:
        """Receive what waits, and record what is there."""
        if query.receiver is not None:
            query.drain()
        query.remove_done()
        spool = self._options.spool
        _, waiting = find_waiting(spool, query.listing, Offset(query.identity, {}), query.loss)
        filled = {receiver: segments for receiver, segments in waiting.items() if segments}
        handout = Handout(
            self._load,
            query.identity.epoch,
            {receiver: query.listing.released(receiver) for receiver in filled},
            {receiver: segments[-1].number for receiver, segments in filled.items()},
        )
        _write_handouts(spool, [*read_handouts(spool), handout][-HANDOUTS_MAX:])
        return handout

    def read(self, partition: InputPartition) -> Iterator["pa.RecordBatch"]:
        """Runs in a task, on any machine."""
        if not isinstance(partition, SpoolPartition):  # Spark creates one if there is none
            partition = SpoolPartition(self._options.spool, (), is_strict=True)
        return read_partition(partition, self._schema)


def release(spool_dir: str | os.PathLike[str]) -> int:
    """Release what the last batch read of that spool was given; return the number of messages, 0 if there is nothing to
    do.

    SpoolError: a query reads the spool, or it is not one. Without this the next batch read is given the same again.
    """
    spool = Path(spool_dir)
    if read_identity(spool) is None:
        raise SpoolError(f"there is no spool in {spool}")
    lock = take_lock(spool)
    try:
        identity, handouts = read_identity(spool), read_handouts(spool)
        if identity is None or not handouts or handouts[-1].epoch != identity.epoch:
            return 0
        handout = handouts[-1]
        count = sum(segment.row_count for segment in _waiting_of(spool, handout))
        for receiver, number in handout.last.items():
            if (spool / receiver).is_dir():
                release_segments(spool / receiver, number)
    except OSError as error:
        raise SpoolError(f"spool {spool}: {os_error(error)}") from None
    finally:
        lock.release()
    return count


def _waiting_of(spool: Path, handout: Handout) -> Iterator[Segment]:
    for receiver, last in handout.last.items():
        for segment in list_segments(spool / receiver):
            if handout.first[receiver] < segment.number <= last:
                yield segment


def read_handouts(spool: Path) -> list[Handout]:
    """Return what the last batch reads were given, released or not; the newest comes last."""
    path = spool / FILE
    try:
        fields = json.loads(path.read_bytes())
        if fields.pop("version") != VERSION:
            raise SpoolError(f"{path} is of another version of nsqfast; remove it")
        return [Handout(**handout) for handout in fields["handouts"]]
    except FileNotFoundError:
        return []
    except OSError as error:
        raise SpoolError(f"{path}: {os_error(error)}") from None
    except (ValueError, KeyError, TypeError, AttributeError):
        raise SpoolError(f"{path} cannot be read; remove it") from None


def _write_handouts(spool: Path, handouts: list[Handout]) -> None:
    draft = spool / f".{FILE}"
    try:
        with open(draft, "w", opener=open_private) as file:
            json.dump({"version": VERSION, "handouts": [*map(asdict, handouts)]}, file)
            file.flush()
            os.fsync(file.fileno())
        draft.rename(spool / FILE)
        sync_folder(spool)
    except OSError as error:
        raise SpoolError(f"spool {spool}: {os_error(error)}") from None
