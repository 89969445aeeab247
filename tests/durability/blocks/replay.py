"""What a disk may hold after a power cut: all that was flushed, and of the rest what chance has kept.

A state is a prefix of the log. The writes up to its last flush are durable; of the later ones a disk
with a volatile cache may have stored all, none, some, or some of the sectors of one.
"""

from __future__ import annotations

import contextlib
import dataclasses
import enum
import os
import random
from typing import TYPE_CHECKING

from durability.blocks import machine
from durability.blocks.recording import Entry, Kind, Log

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from durability.blocks.recording import Disk

SECTOR_SIZES = (512, 4096)


class Loss(enum.Enum):
    """What becomes of the writes that no flush followed."""

    NONE = "kept"
    ALL = "lost"
    SOME = "some lost"
    TORN_512 = "torn at 512 bytes"
    TORN_4096 = "torn at 4,096 bytes"

    @property
    def sector_size(self) -> int:
        return {Loss.TORN_512: 512, Loss.TORN_4096: 4096}.get(self, 0)


@dataclasses.dataclass(frozen=True)
class State:
    """A power cut after the first `length` entries of the log, and before the next one."""

    length: int
    loss: Loss
    seed: int
    # Whatever a peer heard at or before this moment follows from these entries alone.
    time_ns: int

    def __str__(self) -> str:
        return f"after {self.length} entries, unflushed writes {self.loss.value}, seed {self.seed}"


def choose_states(log: Log, count: int, seed: int, since_ns: int, until_ns: int) -> list[State]:
    """Power cuts between two moments, spread evenly, each loss as often as any other."""
    source = random.Random(seed)
    entries = log.entries
    ends = [n for n, entry in enumerate(entries, 1) if since_ns <= entry.time_ns <= until_ns]
    # Right after a flush there is nothing to lose.
    risky = [n for n in ends if entries[n - 1].kind != Kind.FLUSH]
    assert risky, "nothing was written"
    states = []
    for number in range(count):
        loss = [*Loss][number % len(Loss)]
        choice = ends if loss == Loss.NONE else risky
        start, stop = (len(choice) * k // count for k in (number, number + 1))
        length = choice[source.randrange(start, max(stop, start + 1))]
        after_ns = entries[length].time_ns - 1 if length < len(entries) else until_ns
        states.append(State(length, loss, source.getrandbits(32), min(after_ns, until_ns)))
    return sorted(states, key=lambda state: state.length)


class Replay:
    """Rebuilds states in the order of their length; `lost` says whether the last one lost anything."""

    def __init__(self, disk: Disk, log: Log, place: Path) -> None:
        self._disk = disk
        self._log = log
        self._place = place
        self._durable = place / "durable"
        self._durable_length = 0
        _copy_sparse(disk.base, self._durable)
        self.lost = 0

    @contextlib.contextmanager
    def mounted(self, state: State) -> Iterator[Path]:
        """The file system as a boot after that power cut finds it; it may write, nobody sees it later."""
        image = self._place / "state"
        self._build(state, image)
        try:
            options = f"loop,{self._disk.file_system.options}"
            name = self._disk.file_system.name
            with machine.mounted(name, str(image), self._place / "after", options) as folder:
                yield folder
        finally:
            image.unlink()

    def _build(self, state: State, image: Path) -> None:
        flushed = self._last_flush(state.length)
        self._advance(flushed)
        _copy_sparse(self._durable, image)
        source = random.Random(state.seed)
        self.lost = 0
        with image.open("r+b", buffering=0) as file:
            for entry in self._log.entries[flushed : state.length]:
                data = self._log.data(entry)
                for start, stop in self._kept_parts(entry, state.loss, source):
                    os.pwrite(file.fileno(), data[start:stop], entry.offset + start)

    def _last_flush(self, length: int) -> int:
        """How many entries there are up to the last flush of the prefix, without the flush."""
        entries = self._log.entries
        return next((n for n in range(length - 1, -1, -1) if entries[n].kind == Kind.FLUSH), 0)

    def _advance(self, length: int) -> None:
        assert length >= self._durable_length, "states come in the order of their length"
        with self._durable.open("r+b", buffering=0) as file:
            for entry in self._log.entries[self._durable_length : length]:
                if entry.kind != Kind.FLUSH:
                    os.pwrite(file.fileno(), self._log.data(entry), entry.offset)
        self._durable_length = length

    def _kept_parts(
        self, entry: Entry, loss: Loss, source: random.Random
    ) -> Iterator[tuple[int, int]]:
        """(start, stop) within the write of what the disk has stored."""
        kept = [*self._choose_parts(entry, loss, source)]
        if sum(stop - start for start, stop in kept) < entry.size:
            self.lost += 1
        return iter(kept)

    def _choose_parts(
        self, entry: Entry, loss: Loss, source: random.Random
    ) -> Iterator[tuple[int, int]]:
        size = loss.sector_size
        fate = source.random()
        if size and fate < 0.5 and entry.size > size and not self._is_whole(entry):
            yield from _tear(entry.size, size, source)
        elif loss == Loss.NONE or (loss != Loss.ALL and source.random() < 0.5):
            yield 0, entry.size

    def _is_whole(self, entry: Entry) -> bool:
        return any(
            entry.offset < offset + size and offset < entry.offset + entry.size
            for offset, size in self._disk.file_system.whole
        )

    def close(self) -> None:
        self._durable.unlink()


def _tear(size: int, sector_size: int, source: random.Random) -> Iterator[tuple[int, int]]:
    """Of a write of several sectors the first ones, or any."""
    starts = range(0, size, sector_size)
    if source.random() < 0.5:
        yield 0, starts[source.randrange(1, len(starts))]
        return
    for start in starts:
        if source.random() < 0.5:
            yield start, min(start + sector_size, size)


def _copy_sparse(old: Path, new: Path) -> None:
    """The holes stay holes; far the most of an image is one."""
    with old.open("rb", buffering=0) as source, new.open("wb", buffering=0) as target:
        end = os.fstat(source.fileno()).st_size
        os.truncate(target.fileno(), end)
        for start, stop in _extents(source.fileno(), end):
            os.lseek(target.fileno(), start, os.SEEK_SET)
            place = start
            while place < stop:
                place += os.sendfile(target.fileno(), source.fileno(), place, stop - place)


def _extents(fd: int, end: int) -> Iterator[tuple[int, int]]:
    """(start, stop) of what is no hole."""
    stop = 0
    while stop < end:
        try:
            start = os.lseek(fd, stop, os.SEEK_DATA)
        except OSError:  # ENXIO: there is nothing but a hole
            return
        stop = os.lseek(fd, start, os.SEEK_HOLE)
        yield start, stop
