"""What a commit ring owes its user, as plainly as it can be said; docs/DURABILITY.md has the format.

It is told what the user appends and is promised, and what reaches the files; after a restart it judges what came back.
It believes no header that it finds on the disk, only what it saw being written.
"""

import collections
import re
from dataclasses import dataclass, field
from typing import NamedTuple

from models.commit_ring import BATCH, HEAD, RECORD

QUARTER = re.compile(r"([0-3])\.ring")
SECTOR = 512
ATTEMPTS_MAX = 2


class ViolationError(AssertionError):
    """The ring broke a promise."""


class Record(NamedTuple):
    kind: int
    flags: int
    extra: int
    subject: int
    payload: bytes


@dataclass(eq=False)
class Place:
    """Where a batch was written to, and its bytes."""

    file: object
    at: int
    image: bytes
    is_durable: bool = False
    has_failed: bool = False

    def is_at(self, file, at, size):
        """Whether it has any of these bytes, its padding aside."""
        end = self.at + len(self.image.rstrip(b"\0"))
        return file is self.file and self.at < at + size and at < end

    def is_kept(self, parts):
        """Whether these (start, end) of it would survive a power cut."""
        at, there = self.at, self.file.durable
        return all(there[at + one : at + end] == self.image[one:end] for one, end in parts)

    def differs(self, start, end):
        """Whether other bytes are there now, or none that can be read."""
        at = self.at + start
        there = memoryview(self.file.seen)[at : self.at + end]
        return there != self.image[start:end] or not self.file.unreadable.isdisjoint(
            sectors(at, self.at + end)
        )

    def find_changed(self, start, end):
        """(start, end) in the file of the parts of sectors that a fault of the disk changed."""
        for sector in sectors(self.at + start, self.at + end):
            if sector in self.file.damaged:
                low = max(self.at + start, sector * SECTOR)
                high = min(self.at + end, (sector + 1) * SECTOR)
                if self.differs(low - self.at, high - self.at):
                    yield low, high

    def is_excused(self, start, end):
        return any(self.find_changed(start, end))


@dataclass(eq=False)
class Batch:
    records: list = field(default_factory=list)
    spans: list = field(default_factory=list)  # (start, end) of each record in the image
    places: list = field(default_factory=list)  # one for each attempt to write it
    needed_from: int = 0
    is_erased: bool = False  # a start cut it off, as nothing proved it
    is_told: bool = False  # a start has said that it is gone
    is_ignored: bool = False  # it stands where the head says that it, or one before it, failed
    unsynced: int = 0  # how many before it its header does not prove

    @property
    def parts(self):
        return [(0, BATCH.size), *self.spans]

    @property
    def has_failed(self):
        return self.places[-1].has_failed

    @property
    def is_believed(self):
        return not (self.is_erased or self.is_ignored or self.has_failed)

    @property
    def is_intact(self):
        """Whether it stands where it was last written."""
        return self.is_believed and self.stands_at(self.places[-1])

    @property
    def has_header(self):
        return self.is_believed and not self.places[-1].differs(0, BATCH.size)

    @property
    def is_there(self):
        """Whether it stands there, although its write may have failed."""
        return self.stands_at(self.places[-1])

    @property
    def is_excused(self):
        place = self.places[-1]
        return self.is_erased or any(place.is_excused(*part) for part in self.parts)

    def stands_at(self, place):
        return not any(place.differs(*part) for part in self.parts)


def sectors(start, end):
    return range(start // SECTOR, -(-end // SECTOR))


class CommitLog:
    """Sequences start at 1."""

    def __init__(self):
        self.forget()

    def forget(self):
        """The ring is another one from now on."""
        self.is_opening = True
        self.waiting = collections.deque()  # (least sequence, Record) of what is in no batch yet
        self.batches = {}
        self.newest = 0  # the last sequence that a write began of
        self.committed = 0
        self.written = 0  # a kill keeps it
        self.is_interval = self.is_head_damaged = False
        self.head_proves = 0  # all batches up to this one, whatever their headers say
        self.needed_from = 0  # as the newest durable batch or the head says
        self.bad = set()  # quarters that may not be written any more
        self.ever_bad = set()  # those that a restart may remember, too
        self._noted = set()  # those of them that a restart may not forget
        self._first = 1  # as the last start said
        self._heads = []  # what was written to the head since the last start
        self._may_be_torn = False
        self.has_to_fail = False

    # -- what the user does and is told ------------------------------------------------------------

    def append(self, sequence, record):
        """It goes to this batch or, where an empty one takes the number, to the one after it."""
        is_open = sequence > self.newest or (self.is_interval and self.batches[sequence].has_failed)
        check(is_open, f"a record goes to {sequence}, which was written already")
        self.waiting.append((sequence, record))

    def acknowledge(self, committed):
        check(committed >= self.committed, f"{committed} committed after {self.committed}")
        if committed == self.committed:
            return
        check(not self.has_to_fail, f"{committed} is committed after two errors")
        check(committed <= self.newest, f"{committed} is committed before it is written")
        for sequence in range(self.committed + 1, committed + 1):
            check(self._is_durable(sequence), f"{sequence} is committed, but not durable")
        self._check_whole(committed)
        self.committed = committed
        self.written = max(self.written, committed)
        self._may_be_torn = committed < self.newest

    def acknowledge_written(self, written):
        check(written >= self.written, f"{written} written after {self.written}")
        check(written <= self.newest, f"{written} is written before it is")
        for sequence in range(self.written + 1, written + 1):
            batch = self.batches[sequence]
            check(batch.is_intact or batch.is_excused, f"{sequence} is written, but not there")
        self._check_whole(written)
        if not self.has_to_fail:
            self.written = written

    def _check_whole(self, sequence):
        if self.waiting:
            check(self.waiting[0][0] > sequence, f"{sequence} is done without its records")

    def _is_durable(self, sequence):
        batch = self.batches.get(sequence)
        return batch is None or batch.places[-1].is_durable

    # -- what reaches the files --------------------------------------------------------------------

    def writing(self, file, at, data):
        """A write begins."""
        if file.name == "head":
            self._heads.append(Place(file, at, data))
        number = QUARTER.fullmatch(file.name)
        if not number:
            return
        if self.is_opening:
            self._open(file, at, data)
            return
        quarter = int(number[1])
        fields = BATCH.unpack_from(data)
        _, _, sequence, needed_from, where, length, count, *_, unsynced = fields
        check(quarter not in self.bad, f"{sequence} is written to quarter {quarter}, which is bad")
        check(where == quarter << 48 | at, f"{sequence} is at {quarter}:{at}, and says {where:x}")
        self._read_heads()
        self._check_unneeded(sequence, file, at, len(data))
        if sequence not in self.batches:
            self._begin(sequence)
        batch = self.batches[sequence]
        self._fill(sequence, count - len(batch.records))
        check(sequence == self.newest, f"{sequence} is written after {self.newest}")
        check(len(batch.places) < ATTEMPTS_MAX, f"{sequence} is written a third time")
        for proven in range(self.committed + 1, sequence - unsynced):
            check(self._is_durable(proven), f"{sequence} proves {proven}, which is not durable")
        batch.needed_from, batch.unsynced = needed_from, unsynced
        batch.spans = list(read_spans(sequence, batch.records, data, length))
        batch.places.append(Place(file, at, data))
        self._may_be_torn = True

    def _read_heads(self):
        """The needed_from of what is durable, whether or not its write returned."""
        for head in self._heads:
            if head.is_kept([(0, len(head.image))]):
                self.needed_from = max(self.needed_from, read_needed_from(head.image))
        for sequence in range(self.committed + 1, self.newest + 1):
            batch = self.batches[sequence]
            if not any(place.is_kept(batch.parts) for place in batch.places):
                break
            self.needed_from = max(self.needed_from, batch.needed_from)

    def _open(self, file, at, data):
        """A start writes what is there once more, or zeros: over what is torn, or lost at the end."""
        self._read_heads()
        if data.count(0) == len(data):
            self._erase(file, at, len(data))
            return
        for start in range(0, len(data), SECTOR):
            part = data[start : start + SECTOR]
            if part != file.seen[at + start : at + start + SECTOR]:
                check(not any(part), f"{file.name} {at + start} becomes what it never was")
                self._erase(file, at + start, len(part))

    def _erase(self, file, at, size):
        for batch in self.batches.values():
            if batch.is_excused and batch.places[-1].is_at(file, at, size):
                batch.is_erased = True
        self._check_unneeded("zeros", file, at, size)

    def _is_there(self, sequence, batch):
        """What a kill would keep counts, too, unless a start found that it is behind a hole."""
        if self.is_opening:
            end = self._find_end(self._find_proven()[1], lambda one: one.is_intact)
            return batch.places[-1].is_durable and sequence <= end
        return batch.places[-1].is_durable or self.is_interval

    def _check_unneeded(self, sequence, file, at, size):
        for other, batch in self.batches.items():
            if other < self.needed_from or batch.is_erased:
                continue
            is_left = any(not place.is_at(file, at, size) for place in batch.places)
            is_so = is_left or not self._is_there(other, batch)
            check(is_so, f"{sequence} overwrites {other}, which is needed")

    def _begin(self, sequence):
        check(sequence == self.newest + 1, f"{sequence} is written after {self.newest}")
        is_so = self.is_interval or self._is_durable(self.newest)
        check(is_so, f"{sequence} is written before {self.newest} is there")
        self.batches[sequence] = Batch()
        self.newest = sequence

    def _fill(self, sequence, count):
        """More may come before a second attempt, in interval mode."""
        is_so = not count or self.is_interval or not self.batches[sequence].places
        check(0 <= count <= len(self.waiting) and is_so, f"{sequence} has {count} records more")
        taken = [self.waiting.popleft() for _ in range(count)]
        check(all(least <= sequence for least, _ in taken), f"{sequence} has records of the next")
        self.batches[sequence].records += [record for _, record in taken]

    def wrote(self, file, at, data):
        """It is durable."""
        if file.name == "head":
            self.needed_from = max(self.needed_from, read_needed_from(data))
            self.head_proves = read_proven(data)
            self._noted |= {quarter for quarter, one in enumerate(read_failed(data)) if one}
            return
        for sequence in range(self.committed + 1, self.newest + 1):
            batch = self.batches[sequence]
            place = batch.places[-1]
            if place.file is file and place.at == at and place.image == data:
                place.is_durable = True
            if not place.is_durable:
                break
            self.needed_from = max(self.needed_from, batch.needed_from)

    def failed(self, file, *, is_sync=False):
        if number := QUARTER.fullmatch(file.name):
            if is_sync:
                self.written = self.committed  # the kernel may drop it now
            if is_sync and self.is_interval and not self.is_opening:
                self.has_to_fail = True
                return
            self.bad.add(int(number[1]))
            self.ever_bad.add(int(number[1]))
            batch = None if self.is_opening else self.batches.get(self.newest)
            if batch:
                batch.places[-1].has_failed = True
            self.has_to_fail = bool(batch and len(batch.places) >= ATTEMPTS_MAX)

    # -- what comes back ---------------------------------------------------------------------------

    def open(self):
        """A start begins. Whatever it finds where the head says that a write failed it ignores, proofs, too."""
        self.is_opening = True
        heads = [head for head in self._heads if not head.differs(0, len(head.image))]
        failed = read_failed(heads[-1].image) if heads else (0,) * 4
        for sequence, batch in self.batches.items():
            quarter = int(QUARTER.fullmatch(batch.places[-1].file.name)[1])
            batch.is_ignored = 0 < failed[quarter] <= sequence

    def lose_power(self):
        self.written = self.committed

    def recover(self, found):
        """Judge it (a `Recovered`), and go on from there."""
        self.is_opening = False
        self._check_last(found)
        self._check_records(found)
        self._check_damage(found)
        self._forget_lost(found.last)
        self.needed_from = max(self.needed_from, found.first)
        self._heads = self._heads[-2:]
        self._first = found.first
        self._drop(found.last)
        for sequence, batch in self.batches.items():
            # The head notes an attempt that failed before the next one begins: a start believes no other but that.
            place = batch.places[-1]
            is_so = batch.is_excused or place.is_kept(batch.parts)
            check(is_so, f"{sequence} is handed out, and would not survive a power cut")
            place.is_durable, place.has_failed = True, False
            self.needed_from = max(self.needed_from, batch.needed_from)
        self.newest = self.committed = self.written = found.last
        self.bad = set() if self.is_head_damaged else set(self._noted)
        self._noted = set(self.bad)
        self._may_be_torn = found.is_torn
        self.has_to_fail = False

    def _forget_lost(self, last):
        """Of what is missing at the end a start erases what is left."""
        left = max((one for one, batch in self.batches.items() if batch.has_header), default=0)
        for sequence, batch in self.batches.items():
            batch.is_erased |= left < sequence <= last

    def _drop(self, last):
        """What was in flight or lost, and what nobody needs."""
        self.waiting.clear()
        self.batches = {
            one: batch for one, batch in self.batches.items() if self.needed_from <= one <= last
        }

    def _find_proven(self):
        """(the last that a header proves, the last that anything does)."""
        headers = [(one, batch) for one, batch in self.batches.items() if batch.has_header]
        claims = max((one - 1 - batch.unsynced for one, batch in headers), default=0)
        return claims, claims if self.is_head_damaged else max(claims, self.head_proves)

    def _check_last(self, found):
        """The last one that is proven, or whole behind those."""
        headers = [one for one, batch in self.batches.items() if batch.has_header]
        claims, proven = self._find_proven()
        least = max((one for one in headers if one <= proven), default=0)
        # A header that is cut off proves that there were others.
        least = max(least, claims)
        if least == proven or not proven:
            least = self._find_end(proven, lambda batch: batch.is_intact)
        for sequence in range(max(least + 1, self.needed_from), self.written + 1):
            is_so = self._is_cut(proven, sequence)
            check(is_so, f"{sequence} was answered, and is not on the disk")
        # No number is used again, and what proved the last one may still be there.
        most = self._find_end(max(proven, self.written), lambda batch: batch.is_there)
        most = max(most, found.first - 1, self._find_end(self.committed, is_durable))
        if self.is_head_damaged:
            # Whichever block is left may prove it.
            most = max([most, *(read_proven(one.image) for one in self._heads)])
        is_so = least <= found.last <= most or not self.batches
        check(is_so, f"the last one is {found.last}, on the disk is {least}")
        if found.is_torn:
            behind = [batch for one, batch in self.batches.items() if one >= found.last]
            # A batch that nobody needs may be damaged, too.
            is_unneeded = found.last < self.needed_from
            is_so = self._may_be_torn or is_unneeded or any(batch.is_excused for batch in behind)
            check(is_so, f"nothing is torn behind {found.last}")

    def _is_cut(self, proven, sequence):
        """Whether a fault hit it, or one before it that nothing proves."""
        rest = range(min(proven + 1, sequence), sequence + 1)
        return any(one in self.batches and self.batches[one].is_excused for one in rest)

    def _find_end(self, sequence, is_there):
        """The last one from there on before the first that is not."""
        while sequence + 1 in self.batches and is_there(self.batches[sequence + 1]):
            sequence += 1
        return sequence

    def _check_records(self, found):
        newest = self.batches.get(found.last)
        if newest and newest.is_intact:
            check(found.first >= newest.needed_from, f"the first one is {found.first}, too early")
        most = max((one.needed_from for one in self.batches.values()), default=0)
        most = max([self._first, most, *(read_needed_from(one.image) for one in self._heads)])
        check(found.first <= most, f"the first one is {found.first}")
        came, previous = {}, found.first
        for sequence, record in found.records:
            check(previous <= sequence <= found.last, f"{sequence} came after {previous}")
            check(sequence in self.batches or sequence < self.needed_from, f"{sequence} is foreign")
            came.setdefault(sequence, []).append(record)
            previous = sequence
        for sequence, batch in self.batches.items():
            if max(found.first, self.needed_from) <= sequence <= found.last:
                compare(sequence, batch, came.get(sequence, []))

    def _check_damage(self, found):
        for path, start, end, (first, last) in found.damaged:
            hit = found.hit[path.rpartition("/")[2]]
            is_here = not hit.isdisjoint(sectors(start, end))
            # Nobody knows where the batch was, only that it is missing. Unneeded ones may be gone.
            is_so = is_here or first < self.needed_from
            is_so = is_so or any(
                batch.is_excused for one, batch in self.batches.items() if first <= one <= last
            )
            check(is_so, f"{path} {start}..{end}, of {first}..{last}, is called damaged")
        for sequence, batch in self.batches.items():
            is_needed = max(found.first, self.needed_from) <= sequence <= found.last
            if not is_needed or not batch.is_excused or batch.is_there:
                continue
            if not batch.is_erased:
                check_reported(sequence, batch, found.damaged)
            elif not batch.is_told:
                # Another one may stand there from now on.
                batch.is_told = any(
                    first <= sequence <= last for *_, (first, last) in found.damaged
                )
                check(batch.is_told, f"{sequence} was erased, which is not told")


def is_durable(batch):
    return any(place.is_durable for place in batch.places)


class Recovered(NamedTuple):
    """What a ring says that it found; `hit` has the sectors that faults changed, by the name of their file."""

    first: int
    last: int
    is_torn: bool
    damaged: list  # (path, start, end, (first sequence, last sequence))
    records: list  # (sequence, Record)
    hit: dict


def check(is_true, what):
    if not is_true:
        raise ViolationError(what)


def read_needed_from(head):
    return HEAD.unpack_from(head)[7]


def read_proven(head):
    """The last batch that it says was synced, or -1."""
    return HEAD.unpack_from(head)[-1] - 1


def read_failed(head):
    """The batch whose write failed in each quarter, or 0."""
    return HEAD.unpack_from(head)[8:12]


def read_spans(sequence, records, data, length):
    """Where each record stands, as the format says."""
    at = BATCH.size
    for record in records:
        _, size, *rest = RECORD.unpack_from(data, at)
        payload = data[at + RECORD.size : at + size]
        check(
            Record(*rest, payload) == record, f"a record of {sequence} at {at} is not what it was"
        )
        yield at, at + size
        at += -(-size // 8) * 8
    check(at == length, f"{sequence} is {length} long, its records end at {at}")


def compare(sequence, batch, came):
    """Each record once, in order, unless a fault hit it."""
    rest = iter(came)
    record = next(rest, None)
    for expected, span in zip(batch.records, batch.spans, strict=True):
        if record == expected:
            record = next(rest, None)
        else:
            is_excused = batch.is_erased or batch.places[-1].is_excused(*span)
            check(is_excused, f"a record of {sequence} at {span} is missing")
    check(record is None, f"{sequence} has a record that it never had: {str(record)[:80]}")


def check_reported(sequence, batch, damaged):
    """Every changed byte of its header and its records is in a range that names it."""
    place = batch.places[-1]
    for start, end in batch.parts:
        for low, high in place.find_changed(start, end):
            is_covered = any(
                path.endswith(f"/{place.file.name}")
                and begin <= low
                and high <= limit
                and (first <= sequence <= last or last == 0)  # nobody can say whose they were
                for path, begin, limit, (first, last) in damaged
            )
            where = f"{place.file.name} {low}..{high}"
            check(is_covered, f"{sequence} is damaged at {where}, which is not told")
