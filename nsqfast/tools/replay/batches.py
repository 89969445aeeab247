"""From archives to batches: select records and combine them into MPUBs, in a thread that reads ahead.

A batch is the unit of publishing: consecutive records of one file. If they have several topics, there is an MPUB for
each.
"""

import asyncio
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Generic, TypeVar

import numpy as np
from numpy.typing import NDArray

from nsqfast._ext.core.hash_set import Seen
from nsqfast._ext.protocol.publish_command import Encoded
from nsqfast._ext.protocol.records import encode
from nsqfast.archives import Archive, Column, Damage, Records, open_archive
from nsqfast.archives.records import NO_TIME, Ints, OnDamage, join_texts
from nsqfast.tools.replay.options import ID, NONE, PUBLISH, Options
from nsqfast.tools.shared.program import log
from nsqfast.wire.gotext import os_error
from nsqfast.wire.protocol import LENGTH_SIZE

Mask = NDArray[np.uint8]

COUNT_MAX = 1 << 31
PACE_HZ = 10  # batches per second, at least, with --rate


@dataclass(slots=True)
class Limits:
    """nsqd's limits, as far as they are known: it reports them only when it refuses."""

    batch_size: int  # our limit for an MPUB
    count_max: int = COUNT_MAX  # our limit with --rate
    body_size_max: int = COUNT_MAX
    message_size_max: int = COUNT_MAX

    @property
    def size_max(self) -> int:
        """The largest size of an MPUB with more than one message."""
        return min(self.batch_size, self.body_size_max)

    @property
    def record_size_max(self) -> int:
        """A message has to fit into an MPUB of its own, too."""
        return min(self.message_size_max, self.body_size_max - 2 * LENGTH_SIZE)


@dataclass(frozen=True, slots=True, eq=False)
class Publish:
    """One MPUB."""

    topic: str
    bodies: Encoded
    positions: Ints  # of its records in their file
    record_size_max: int

    @property
    def size(self) -> int:
        """Size of the bodies alone."""
        return len(self.bodies.data) - LENGTH_SIZE * (1 + self.bodies.count)


@dataclass(slots=True)
class Batch:
    """`end` is where reading its file continues after it was published; a batch without publishes only moves that."""

    archive: Archive
    publishes: list[Publish]
    end: int
    unit: str
    damaged: int  # records of its file left out so far
    read_size: int  # of its file
    is_last: bool = False  # it is the last of its file

    @property
    def count(self) -> int:
        """Number of messages."""
        return sum(publish.bodies.count for publish in self.publishes)


@dataclass(slots=True)
class Skipped:
    """The numbers of records not selected, by reason."""

    outside: int = 0
    duplicates: int = 0
    damaged: int = 0


class BatchMaker:
    """Makes the batches of one archive after the other. It may run in its own thread; `skipped` grows meanwhile."""

    def __init__(self, options: Options, limits: Limits, on_damage: OnDamage) -> None:
        self._options = options
        self._limits = limits
        self._tell = on_damage
        self.skipped = Skipped()
        self.seen = None if options.dedupe == NONE else Seen(options.dedupe_memory)
        if options.rate:
            limits.count_max = max(1, int(options.rate / PACE_HZ))
        self._damaged = 0  # of the file being read
        self._archive: Archive | None = None
        self._has_said = False  # reported that the file has no ids

    def batches(self, archive: Archive, position: int) -> Iterator[Batch]:
        """Yield batches from that position on; earlier records were published in an earlier run."""
        self._archive, self._damaged, self._has_said = archive, 0, False
        # Read records published before, to recognise duplicates of them.
        begin = 0 if self.seen is not None else position
        end, unit = position, "byte"
        try:
            with open_archive(
                archive,
                self._on_damage,
                position=begin,
                block_size=self._options.batch_bytes // 2,
                is_last_whole=self._options.unterminated == PUBLISH,
            ) as reader:
                for records in reader.records:
                    unit = records.unit
                    for batch in self._cut(records, position):
                        batch.read_size = reader.read_size
                        end = batch.end
                        yield batch
        except OSError as error:
            self._on_damage(Damage(archive.path, "all of it", os_error(error)))
        yield Batch(archive, [], end, unit, self._damaged, archive.size, is_last=True)

    def _on_damage(self, damage: Damage) -> None:
        self._damaged += 1
        self.skipped.damaged += 1
        self._tell(damage)

    # -- selecting

    def _cut(self, records: Records, position: int) -> Iterator[Batch]:
        """Yield selected records, at most as many at a time as one batch may have."""
        archive = self._archive
        assert archive is not None
        chosen = np.ones(len(records), np.uint8)
        topics, numbers = self._topics(records, chosen)
        self._drop_empty(records, chosen)
        self._drop_outside(records, chosen)
        self._drop_seen(records, chosen, topics, numbers)
        chosen[records.positions < position] = 0
        sizes = records.bodies.sizes
        first = 0
        while True:
            limit = next_cut(sizes, chosen, first, self._limits)
            part = slice(first, limit)
            publishes = [
                publish
                for number in np.unique(numbers[part][chosen[part] > 0])
                for publish in make_publishes(
                    topics[number],
                    part_of(records.bodies, part),
                    records.positions[part],
                    chosen[part] & (numbers[part] == number),
                    self._limits,
                )
            ]
            is_end = limit == len(records)
            end = records.end if is_end else int(records.positions[limit])
            if end > position:
                yield Batch(archive, publishes, end, records.unit, self._damaged, 0)
            if is_end:
                return
            first = limit

    def _topics(self, records: Records, chosen: Mask) -> tuple[list[str], NDArray[np.int32]]:
        """The destination topics, and each record's index in them; records without a topic are dropped."""
        assert self._archive is not None
        numbers = np.zeros(len(records), np.int32)
        if self._options.topic:
            return [self._options.topic], numbers
        names = records.topics or [""]
        if records.topic_numbers is not None:
            numbers = records.topic_numbers
        # Two old topics may map to one new one, which counts as one for --dedupe, too.
        merged: dict[str, int] = {}
        renumbered = []
        for name in names:
            old = name or self._archive.facts.topic or ""
            new = self._options.topics.get(old, old)
            renumbered.append(merged.setdefault(new, len(merged)))
        numbers = np.array(renumbered, np.int32)[numbers]
        if "" in merged:
            self._drop(
                records, chosen, numbers == merged[""], "it says no topic; --topic gives one"
            )
        return list(merged), numbers

    def _drop(self, records: Records, chosen: Mask, wrong: NDArray[np.bool_], reason: str) -> None:
        """Drop records as damaged."""
        assert self._archive is not None
        for index in np.flatnonzero(wrong & (chosen > 0)).tolist():
            self._on_damage(Damage(self._archive.path, records.place(index), reason))
        chosen[wrong] = 0

    def _drop_empty(self, records: Records, chosen: Mask) -> None:
        empty = records.bodies.sizes == 0
        if empty.any():
            self._drop(records, chosen, empty, "an empty body, which nsqd does not take")

    def _drop_outside(self, records: Records, chosen: Mask) -> None:
        """Drop records outside --since and --until; files of plain lines were selected by their names."""
        options, times_ns = self._options, records.timestamps_ns
        assert self._archive is not None
        if not options.is_bounded or self._archive.format == "lines":
            return
        if times_ns is None:
            times_ns = np.full(len(records), NO_TIME)
        reason = "it has no timestamp_ns, which --since and --until ask for"
        self._drop(records, chosen, times_ns == NO_TIME, reason)
        outside = (times_ns < options.since_ns) | (times_ns >= options.until_ns)
        self.skipped.outside += int(np.count_nonzero(outside & (chosen > 0)))
        chosen[outside] = 0

    def _drop_seen(
        self, records: Records, chosen: Mask, topics: list[str], numbers: NDArray[np.int32]
    ) -> None:
        """Drop duplicates within a topic: the same body, or the same id and timestamp."""
        if self.seen is None:
            return
        column: Column | None = records.bodies
        stamps: Ints | None = None
        if self._options.dedupe == ID:
            column, stamps = records.ids, records.timestamps_ns
        if column is None:
            self._say_no_ids()
            return
        # A record without an id cannot be compared, and is published.
        asked = chosen & (column.sizes > 0)
        for number, topic in enumerate(topics):
            mask = asked & (numbers == number)
            before = mask.copy()
            self.skipped.duplicates += self.seen.unmark_seen(
                column.data, column.starts, column.ends, mask, topic.encode(), stamps
            )
            chosen[(before > 0) & (mask == 0)] = 0

    def _say_no_ids(self) -> None:
        assert self._archive is not None
        if not self._has_said:
            self._has_said = True
            log.warning("%s: it has no ids; --dedupe=id leaves out none of it", self._archive.path)


def part_of(column: Column, part: slice) -> Column:
    """A selection of its strings; the block stays."""
    return Column(column.data, column.starts[part], column.ends[part])


def next_cut(sizes: Ints, chosen: Mask, first: int, limits: Limits) -> int:
    """The end of the batch that begins at `first`; a record too large for any batch gets its own."""
    costs = np.where(chosen[first:] > 0, sizes[first:] + LENGTH_SIZE, 0).cumsum()
    limit = int(costs.searchsorted(limits.size_max - LENGTH_SIZE, "right"))
    if limits.count_max < COUNT_MAX:
        counts = chosen[first:].cumsum(dtype=np.int64)
        limit = min(limit, int(counts.searchsorted(limits.count_max, "right")))
    if limit < len(costs) and not chosen[first : first + limit].any():
        limit += 1  # a record that is too large gets its own batch
    return first + limit


def make_publishes(
    topic: str, bodies: Column, positions: Ints, chosen: Mask, limits: Limits
) -> Iterator[Publish]:
    """Make as few MPUBs as possible; a record too large for one goes alone."""
    first = 0
    while True:
        encoded, limit = encode(
            bodies.data,
            bodies.starts,
            bodies.ends,
            np.ascontiguousarray(chosen),
            first,
            COUNT_MAX,
            limits.size_max,
        )
        if encoded is None:
            return
        taken = chosen[first:limit] > 0
        sizes = bodies.sizes[first:limit][taken]
        yield Publish(topic, encoded, positions[first:limit][taken], int(sizes.max()))
        first = limit


def split_publish(publish: Publish, limits: Limits) -> tuple[list[Publish], list[tuple[int, int]]]:
    """Split by nsqd's limits; also returns position and size of each record that is too large."""
    bodies = join_texts(publish.bodies.bodies())
    sizes = bodies.sizes
    fits = sizes <= limits.record_size_max
    left = [(int(publish.positions[index]), int(sizes[index])) for index in np.flatnonzero(~fits)]
    kept = make_publishes(publish.topic, bodies, publish.positions, fits.astype(np.uint8), limits)
    return list(kept), left


T = TypeVar("T")

DEPTH = 4
JOIN_TIMEOUT_S = 1.0  # for the item being read


class Feeder(Generic[T]):
    """Passes on the items of an iterator, read in a thread while the loop publishes; a few wait in between.

    The thread may hang in a read for ever; it dies with the process.
    """

    def __init__(self, items: Iterator[T]) -> None:
        self._items = items
        self._loop = asyncio.get_running_loop()
        self._room = threading.Semaphore(DEPTH)
        self._is_closed = False
        self._queue: asyncio.Queue[T | BaseException | None] = asyncio.Queue()
        self._thread = threading.Thread(target=self._read, name="nsqfast: reader", daemon=True)

    def start(self) -> None:
        """Start reading."""
        self._thread.start()

    def _read(self) -> None:
        try:
            for item in self._items:
                self._room.acquire()
                if self._is_closed:
                    return
                self._hand_over(item)
        except BaseException as error:
            self._hand_over(error)
        else:
            self._hand_over(None)

    def _hand_over(self, item: T | BaseException | None) -> None:
        try:
            self._loop.call_soon_threadsafe(self._queue.put_nowait, item)
        except RuntimeError:  # the loop has ended, so the item is not needed
            if not self._is_closed:
                raise

    async def next(self) -> T | None:
        """The next item, None at the end. Errors of reading are raised here."""
        item = await self._queue.get()
        if isinstance(item, BaseException):
            raise item
        self._room.release()
        return item

    def close(self) -> None:
        """Stop asking for items."""
        self._is_closed = True
        self._room.release()
        self._thread.join(JOIN_TIMEOUT_S)
