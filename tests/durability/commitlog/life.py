"""One seed, one life of a folder with a ring: a user who is as careless as dice, crashes, starts, damage.

The ring and its recovery are the real ones, stepped; the disk is simulated (`disk`), and `models.commit_log` judges.
"""

from __future__ import annotations

import random
from contextlib import suppress
from typing import TYPE_CHECKING

from nsqfast._ext.dev.commit_files import SimulatedFiles
from nsqfast._ext.dev.commit_rings import OpenRing

from durability.commitlog import disk as faults_of
from durability.commitlog.disk import Disk, Faults
from models.commit_log import CommitLog, Record, Recovered, ViolationError, check
from nsqfast.errors import OptionsError

if TYPE_CHECKING:
    from collections import Counter

    from durability.commitlog.disk import File

SIZES = (64 * 1024, 128 * 1024, 256 * 1024)
FILLER = random.Random(1).randbytes(1 << 16)
SIZE_MIN, SIZE_MAX = 1, 20_000
QUARTERS = 4
# A start overwrites what it has just read: nothing goes astray meanwhile.
SILENT = (faults_of.MISDIRECTED, faults_of.LOST)
DAMAGES_MAX = 3  # between two starts
KEPT, DROPPED = 1, 2  # kinds of records

DAMAGED_HEAD = "damaged head"
FAILED, FULL, DELAYED = "failed ring", "full ring", "delayed step"
CRASHED_START, CRASHED_MAKING = "crash in a start", "crash in making"
WRITTEN = "batches written to the cache"
LAPS, RECORDS, BATCHES, STARTS = "quarters begun", "records", "batches", "starts"


class Life:
    """`play()` raises a ViolationError with the seed in it."""

    def __init__(self, seed: int, folder: str = "/data/ring") -> None:
        self.seed, self.folder = seed, folder
        self.dice = dice = random.Random(seed)
        self.faults = Faults(dice)
        self.model = CommitLog()
        self.disk = Disk(self.faults, self.model, refuses_direct=dice.random() < 0.35)
        self.disk.make_parents(folder)
        self.rates = choose_rates(dice)
        self.align = dice.choice((512, 4096))
        self.size = dice.choice(SIZES)
        self.sync_share = dice.choice((0.03, 0.1, 0.5))
        self.interval_share = dice.choice((0, 0, 0.5, 1, 1))
        self.is_interval = False
        self.live: dict[int, tuple[int, Record]] = {}  # least sequence and record, by number
        self.next_number = 1
        self.checkpoint: tuple[int, int] | None = None  # (needed from, once this is committed)
        self.is_made = self.is_head_damaged = self.is_harmed = False
        self.is_unreadable = False
        self.damaged: dict[str, set[int]] = {}
        self.removed: dict[str, bytes] = {}  # the files of an earlier ring

    @property
    def counts(self) -> Counter[str]:
        return self.faults.counts

    def play(self) -> Counter[str]:
        try:
            for _ in range(self.dice.randint(2, 6)):
                ring = self.start(self.rates)
                if ring:
                    self._work(ring, self.dice.randint(1, 120))
                    self._leave(ring)
                self._crash()
            if ring := self.start({}):
                self.finish(ring)
        except ViolationError as error:
            raise ViolationError(f"seed {self.seed}: {error}") from error
        return self.counts

    # -- starts ------------------------------------------------------------------------------------

    def start(self, rates: dict[str, float]) -> OpenRing | None:
        self.faults.rates = {one: rate for one, rate in rates.items() if one not in SILENT}
        self.model.is_interval = self.is_interval = self.dice.random() < self.interval_share
        if rates:
            chance = self.dice.random()
            calls = 60 if chance < 0.2 else 1000
            self.faults.calls_left = self.dice.randint(1, calls) if chance < 0.7 else 0
        self.counts[STARTS] += 1
        self.disk.seen_errors = 0
        self.model.open()
        # A start heals what it overwrites.
        files = self.disk.files(self.folder)
        self.damaged = {name: set(file.damaged) for name, file in files.items()}
        self.is_harmed = self.is_harmed or any(self.damaged.values())
        # A page that cannot be read cannot be erased in part: its quarter is bad then.
        self.is_unreadable |= any(file.unreadable for file in files.values())
        self.is_head_damaged = "head" in files and bool(self.damaged["head"])
        self.model.is_head_damaged = self.is_head_damaged
        if self.is_head_damaged and self.model.ever_bad:
            # The other block may not know which write failed, so that what it left may be believed: a known limit.
            self.counts[DAMAGED_HEAD] += 1
            return None
        self.files = SimulatedFiles(self.disk)
        try:
            ring = self._open()
            records = ring.read()
        except (OSError, OptionsError) as error:
            self._check_refusal(error)
            return None
        self._raise_errors()
        if self.disk.is_off:
            self.counts[CRASHED_START if self.is_made else CRASHED_MAKING] += 1
            return None
        self._recover(ring, [(one[0], Record(*one[1:])) for one in records])
        return ring

    def _open(self) -> OpenRing:
        align = self.dice.choice((self.align, 512)) if self.is_interval else self.align
        return OpenRing(
            self.folder, self.size, self.files, align, True, is_interval=self.is_interval
        )

    def _raise_errors(self) -> None:
        """What was found within a call of the ring."""
        if self.files.errors:
            raise self.files.errors[0]

    def _check_refusal(self, error: Exception) -> None:
        self._raise_errors()
        if self.disk.is_off:
            self.counts[CRASHED_START if self.is_made else CRASHED_MAKING] += 1
            return
        is_explained = (
            self.disk.seen_errors
            or self.is_head_damaged
            or len(self.model.ever_bad) == QUARTERS
            or self.is_unreadable
        )
        check(is_explained, f"the ring does not open: {error}")
        self.counts[DAMAGED_HEAD] += self.is_head_damaged

    def _recover(self, ring: OpenRing, records: list[tuple[int, Record]]) -> None:
        files = self.disk.files(self.folder)
        damaged = {
            name: file.damaged | self.damaged.get(name, set()) for name, file in files.items()
        }
        found = Recovered(ring.first, ring.last, ring.is_torn, ring.damaged, records, damaged)
        acknowledged = {
            number for number, (least, _) in self.live.items() if least <= self.model.written
        }
        self.model.recover(found)
        if self.is_unreadable:
            self.model.ever_bad.update(ring.bad())
        check(ring.committed == ring.last, f"committed is {ring.committed}, not {ring.last}")
        check(ring.filling == ring.last + 1, f"filling is {ring.filling} after {ring.last}")
        check(ring.needed_from == ring.first, f"needed from {ring.needed_from}, not {ring.first}")
        self.live = {}
        for sequence, record in records:
            number = record.subject
            if record.kind == KEPT:
                self.live[number] = sequence, record
            else:
                self.live.pop(number, None)
        lost = acknowledged - self.live.keys() - {one.subject for _, one in records}
        self.is_harmed = self.is_harmed or any(damaged.values())
        check(not lost or self.is_harmed, f"lost: {sorted(lost)[:5]}")
        self.checkpoint = None
        self.is_harmed = False
        self.is_made = True

    # -- work --------------------------------------------------------------------------------------

    def _work(self, ring: OpenRing, turns: int) -> None:
        self.faults.rates = self.rates
        for _ in range(turns):
            self._append(ring)
            self._end_turn(ring)
            if not self._note(ring):
                return
            if self.dice.random() < 0.3:
                self.counts[DELAYED] += 1
                continue
            if not self._write(ring):
                return
            if self.dice.random() < 0.25 or ring.is_full():
                self._move_checkpoint(ring)

    def _end_turn(self, ring: OpenRing) -> None:
        wall_ns = self.dice.getrandbits(40)
        if not self.is_interval:
            ring.commit(wall_ns)
            return
        self.counts[WRITTEN] += ring.write(wall_ns)
        if self.dice.random() < self.sync_share:
            ring.sync()

    def _append(self, ring: OpenRing) -> None:
        for _ in range(self.dice.randint(0, 4)):
            number = self.next_number
            if self.live and self.dice.random() < 0.3:
                number = self.dice.choice(list(self.live))
                if self._put(ring, Record(DROPPED, 0, 0, number, b"-")):
                    del self.live[number]
                continue
            record = self._make_record(number)
            if self._put(ring, record):
                self.next_number += 1
                self.live[number] = ring.filling, record

    def _make_record(self, number: int) -> Record:
        dice = self.dice
        size = int(SIZE_MIN * (SIZE_MAX / SIZE_MIN) ** dice.random())
        start = dice.randrange(len(FILLER) - size)
        payload = FILLER[start : start + size]
        return Record(KEPT, number & 0xFF, number & 0xFFFF, number, payload)

    def _put(self, ring: OpenRing, record: Record) -> bool:
        if len(record.payload) > ring.room():
            return False
        sequence = ring.append(
            record.payload, record.kind, record.flags, record.extra, record.subject
        )
        check(sequence == ring.filling, f"appended to {sequence} while {ring.filling} fills")
        self.model.append(sequence, record)
        self.counts[RECORDS] += 1
        return True

    def _write(self, ring: OpenRing) -> bool:
        """Run what is in flight, and what follows from it; return whether the ring goes on."""
        while ring.step():
            if not self._note(ring):
                return False
            ring.end_write()
            self.counts[BATCHES] += 1
            if not self._note(ring):
                return False
        check(not self.model.has_to_fail, "two errors, and it has not failed")
        return True

    def _note(self, ring: OpenRing) -> bool:
        """Believe what it says, unless the machine is off."""
        self._raise_errors()
        if self.disk.is_off:
            return False
        self.model.acknowledge(ring.committed)
        self.model.acknowledge_written(ring.written)
        if ring.failed:
            self._check_failed(ring)
            return False
        return True

    def _check_failed(self, ring: OpenRing) -> None:
        self.counts[FAILED] += 1
        check(self.disk.seen_errors or self.model.ever_bad, f"it failed by itself: {ring.failed}")
        with suppress(OSError):
            ring.append(b"1", KEPT, 0, 0, 0)
            raise ViolationError("a ring that failed takes a record")
        is_going = ring.write(1) if self.is_interval else ring.commit(1)
        check(not is_going and not ring.step(), "a ring that failed goes on writing")
        ring.end_write()
        self.model.acknowledge(ring.committed)

    def _move_checkpoint(self, ring: OpenRing) -> None:
        if ring.is_full():
            self.counts[FULL] += 1
            self.checkpoint = None
        if self.checkpoint:
            needed_from, once = self.checkpoint
            if ring.committed >= once:
                ring.checkpoint(needed_from)
                self.checkpoint = None
            return
        if ring.needed_from > ring.committed:
            return
        needed_from = self.dice.randint(ring.needed_from, ring.committed + 1)
        is_carrying = not ring.is_full() and self.dice.random() < 0.6
        for number, (sequence, record) in list(self.live.items()):
            if sequence < needed_from:
                if is_carrying and self._put(ring, record):
                    self.live[number] = ring.filling, record
                else:
                    del self.live[number]
        if is_carrying:
            self.checkpoint = needed_from, ring.filling
        else:
            ring.checkpoint(needed_from)
        self._raise_errors()

    def _leave(self, ring: OpenRing) -> None:
        """What it does from now on does not count: the process is gone."""
        self.disk.is_off = True
        ring.close()

    # -- crashes -----------------------------------------------------------------------------------

    def _crash(self) -> None:
        self.faults.rates = {}
        if self.dice.random() < 0.7:
            self.disk.cut_power()
            self.model.lose_power()
        else:
            self.disk.kill()
        for _ in range(DAMAGES_MAX):
            if self.dice.random() < self.rates.get(faults_of.FLIPPED, 0):
                self._damage()
        files = self.disk.files(self.folder)
        if self.removed and files:
            self._bring_back(files)
        elif self.is_made and not self.removed and self.dice.random() < 0.1:
            self._begin_anew(files)

    def _begin_anew(self, files: dict[str, File]) -> None:
        """An operator removes the ring; the next start makes another one."""
        self.removed = {name: bytes(file.durable) for name, file in files.items()}
        self.disk.remove_all(self.folder)
        self.model.forget()
        self.live.clear()
        self.is_made = False

    def _bring_back(self, files: dict[str, File]) -> None:
        name = f"{self.dice.randrange(QUARTERS)}.ring"
        old = self.removed[name]
        at = self.dice.randrange(len(old) // faults_of.SECTOR) * faults_of.SECTOR
        if name in files and not files[name].pending:
            self.disk.bring_back(files[name], at, old[at : at + self.dice.choice((4096, 65536))])

    def _damage(self) -> None:
        files = self.disk.files(self.folder)
        batches = list(self.model.batches.values())
        if batches and self.dice.random() < 0.8:
            place = self.dice.choice(batches).places[-1]
            file, at = place.file, place.at + self.dice.randrange(len(place.image))
        elif files:
            file = self.dice.choice(list(files.values()))
            at = self.dice.randrange(max(1, len(file.durable)))
        else:
            return
        if at < len(file.durable) and not file.pending:
            way = self.disk.flip if self.dice.random() < 0.7 else self.disk.make_unreadable
            way(file, at)

    def finish(self, ring: OpenRing) -> None:
        """On a disk without faults it goes on, whatever was before; then all is there once more."""
        for _ in range(8):
            self.live.clear()
            ring.checkpoint(ring.committed + 1)
            wanted = ring.filling
            self._put(ring, Record(DROPPED, 0, 0, 0, b"-"))
            for _ in range(3):
                if self.is_interval:
                    ring.write(1)
                    ring.sync()
                else:
                    ring.commit(1)
                if not self._note(ring) or not self._write(ring):
                    return
            check(ring.committed >= wanted, f"{wanted} is not committed: full {ring.is_full()}")
        self._leave(ring)
        self.disk.cut_power()
        self.model.lose_power()
        self.start({})


def choose_rates(dice: random.Random) -> dict[str, float]:
    """A third of all lives has crashes alone; of the others each has some of the faults."""
    if dice.random() < 0.33:
        return {faults_of.FLIPPED: 0.0}
    seen = (faults_of.EIO, faults_of.ENOSPC, faults_of.SHORT, faults_of.SYNC_EIO)
    rates = {one: dice.choice((0, 0, 0.01, 0.03)) for one in seen}
    rates[faults_of.NAME_EIO] = dice.choice((0, 0, 0.05))
    rates[faults_of.MISDIRECTED] = dice.choice((0, 0, 0.02, 0.05))
    rates[faults_of.LOST] = dice.choice((0, 0, 0.02))
    rates[faults_of.FLIPPED] = dice.choice((0, 0.4, 0.7))
    return rates
