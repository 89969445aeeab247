"""Remembers which messages the segments of a spool contain, so that a redelivered one is not sealed again.

nsqd delivers a message again if it did not get the FIN: `attempts` is then more than 1, or 1 again if nsqd itself was
killed. The same message has the same topic, id and timestamp; two nsqds on one host may use equal ids, but at different
times.

Nothing is read until a message comes again. From then on each new segment is read once, and what a receiver seals
itself is remembered as it is sealed. The memory is limited; the newest segments count.
"""

import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from nsqfast._ext.core.hash_set import Seen
from nsqfast.spark.spool.reading import read_batches
from nsqfast.spark.spool.segments import (
    DONE,
    Segment,
    list_done,
    list_receivers,
    list_segments,
)
from nsqfast.tools.shared.program import log

KEYS = ["topic", "id", "timestamp_ns"]
LISTING_REST = 10.0  # the pause before the next listing, in multiples of the last one's duration
MTIME_TICK_NS = 100_000_000  # a folder's modification time may lag by so much


@dataclass(slots=True)
class _Folder:
    """The folder of one receiver: what is known about it."""

    path: Path
    last_number: int = 0  # no segment up to this one is new
    times_ns: tuple[int, ...] = ()  # modification times at the last listing; empty: not reliable
    listed_s: float = 0.0
    cost_s: float = 0.0  # of that listing

    def list_new(self) -> list[Segment]:
        """Return the segments sealed since the last call."""
        began_s = time.monotonic()
        if began_s - self.listed_s < self.cost_s * LISTING_REST:
            return []
        now_ns = time.time_ns()
        times_ns = tuple(_mtime_ns(self.path / name) for name in ("", *DONE.values()))
        if times_ns == self.times_ns:
            return []
        is_sure = now_ns - max(times_ns) > MTIME_TICK_NS
        # In this order: a segment moves from the first to the second.
        found = list_segments(self.path) + list_done(self.path)
        new = {segment.number: segment for segment in found if segment.number > self.last_number}
        self.last_number = max(new, default=self.last_number)
        self.times_ns = times_ns if is_sure else ()
        self.listed_s = time.monotonic()
        self.cost_s = self.listed_s - began_s
        return [new[number] for number in sorted(new)]


def _mtime_ns(folder: Path) -> int:
    try:
        return folder.stat().st_mtime_ns
    except FileNotFoundError:
        return 0


class KnownMessages:
    """For the spool of the receiver `own`, which reports what it seals. Used by one thread at a time."""

    def __init__(self, spool: Path, own: str, memory_size: int) -> None:
        self._spool = spool
        self._own = own
        self._memory_size = memory_size
        self._folders: dict[str, _Folder] = {}
        self._seen: Seen | None = None
        self._own_new: list[Segment] = []  # sealed since, and not remembered
        self.segments_read = 0

    def forget(self) -> None:
        """What was remembered is not on disk: start again, from what is."""
        self._seen = None
        self._own_new.clear()
        self._folders.clear()

    def note_sealed(self, segment: Segment, *, is_remembered: bool) -> None:
        """This receiver sealed it; `is_remembered` if its messages went through `drop_known`."""
        if self._seen is None:
            return
        folder = self._folders.get(self._own)
        if folder is not None:
            folder.last_number = segment.number
        if not is_remembered:
            self._own_new.append(segment)

    def refresh(self) -> None:
        """Read what was sealed since; call it before `drop_known`."""
        if self._seen is None:
            self._seen = Seen(self._memory_size)
            new = self._list_all()
        else:
            new = self._own_new + self._list_others()
            self._own_new = []
        for segment in self._newest(new):
            self._remember_segment(segment)

    def drop_known(self, rows: pa.RecordBatch, unsure_before_ns: int) -> pa.RecordBatch:
        """Return the rows without those that came before; remember the others.

        Only those with more than one attempt, or published before that time, are looked up.
        """
        assert self._seen is not None
        attempts = rows.column("attempts").to_numpy()
        times_ns = rows.column("timestamp_ns").to_numpy()
        chosen = self._unmark(rows.select(KEYS))
        kept = (chosen > 0) | ((attempts <= 1) & (times_ns >= unsure_before_ns))
        return rows if kept.all() else rows.filter(pa.array(kept))

    # -- segments

    def _folder(self, receiver: str) -> _Folder:
        if receiver not in self._folders:
            self._folders[receiver] = _Folder(self._spool / receiver)
        return self._folders[receiver]

    def _list_all(self) -> list[Segment]:
        receivers = list_receivers(self._spool)
        return [segment for name in receivers for segment in self._folder(name).list_new()]

    def _list_others(self) -> list[Segment]:
        others = [name for name in list_receivers(self._spool) if name != self._own]
        return [segment for name in others for segment in self._folder(name).list_new()]

    def _newest(self, segments: list[Segment]) -> Iterable[Segment]:
        """Yield those of the latest messages that fit into memory, oldest first."""
        assert self._seen is not None
        if sum(segment.row_count for segment in segments) <= self._seen.count_sure:
            return segments
        left = self._seen.count_sure
        newest: list[Segment] = []
        for segment in sorted(segments, key=_sealed_ns, reverse=True):
            left -= segment.row_count
            if left < 0:
                break
            newest.append(segment)
        return reversed(newest)

    def _remember_segment(self, segment: Segment) -> None:
        self.segments_read += 1
        for rows in read_batches(segment, log.warning, KEYS):
            self._unmark(rows)

    # -- messages

    def _unmark(self, rows: pa.RecordBatch) -> NDArray[np.uint8]:
        """Return a byte for each row of KEYS: 0 if it was there before. All are remembered from here on."""
        assert self._seen is not None
        chosen = np.ones(rows.num_rows, np.uint8)
        ids = rows.column("id")
        _, offsets, data = ids.buffers()
        ends = np.frombuffer(offsets, np.int32)[ids.offset : ids.offset + len(ids) + 1]
        ends = ends.astype(np.int64)
        stamps = rows.column("timestamp_ns").to_numpy()
        block = np.frombuffer(data, np.uint8) if data is not None else np.empty(0, np.uint8)
        for topic, part in _by_topic(rows.column("topic")):
            own = np.ascontiguousarray(chosen[part])
            self._seen.unmark_seen(
                block,
                np.ascontiguousarray(ends[:-1][part]),
                np.ascontiguousarray(ends[1:][part]),
                own,
                topic.encode(),
                np.ascontiguousarray(stamps[part]),
            )
            chosen[part] = own
        return chosen


def _sealed_ns(segment: Segment) -> int:
    path = segment.find()
    try:
        return 0 if path is None else path.stat().st_mtime_ns
    except FileNotFoundError:  # removed or moved meanwhile; it is old
        return 0


def last_sealed_ns(spool: Path) -> int:
    """When a receiver of that spool last sealed; 0: never."""
    last: list[Segment] = []
    for name in list_receivers(spool):
        last += list_segments(spool / name)[-1:] + list_done(spool / name)[-1:]
    return max(map(_sealed_ns, last), default=0)


def _by_topic(topics: pa.Array) -> "Iterator[tuple[str, slice | NDArray[np.int64]]]":
    """Yield each topic with its rows."""
    if len(topics) == 0:
        return
    first = topics[0].as_py()
    if pc.all(pc.equal(topics, topics[0])).as_py():
        yield first, slice(None)
        return
    coded = topics.dictionary_encode()
    codes = coded.indices.to_numpy()
    order = np.argsort(codes, kind="stable")
    limits = np.searchsorted(codes[order], np.arange(len(coded.dictionary) + 1))
    for number, topic in enumerate(coded.dictionary.to_pylist()):
        yield topic, order[limits[number] : limits[number + 1]]
