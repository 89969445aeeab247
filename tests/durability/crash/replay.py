"""From a recorded run to judged crash states, at every boundary between two calls or at as many as are asked for."""

from __future__ import annotations

import os
import random
import shutil
import signal
import tempfile
import time
from collections import Counter
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Self

from durability.crash import log, workloads
from durability.crash.boots import make_boot
from durability.crash.disk import Disk
from durability.crash.ledger import Ledger
from durability.crash.log import library, read_calls, watch
from durability.crash.modes import ALWAYS
from durability.crash.opening import Opener, clear, judge, open_with_program
from durability.crash.owed import log_owed
from durability.crash.states import ALL, DATA, KILL, NONE, RANDOM, SIDE, START, State, make_state
from nsqfast.nsqd.options import REDRIVES_NAME
from support.server import start_nsqd

if TYPE_CHECKING:
    from collections.abc import Iterator

    from durability.crash.found import Found
    from durability.crash.log import Call
    from durability.crash.modes import Mode
    from durability.crash.opening import Verdict
    from support.server import Server

KINDS = (KILL, ALL, NONE, SIDE, DATA, START, RANDOM, RANDOM)
# Where a power cut is only to be survived.
KINDS_WITHOUT_POWER = (KILL, START, RANDOM)
# No multiple of the number of kinds: each has its turn.
PROGRAM_EVERY = 51


@dataclass(slots=True)
class Recording:
    """A workload that was run: what its clients know, and its calls."""

    name: str
    ledger: Ledger
    calls: list[Call]
    end_ns: int
    mode: Mode = ALWAYS
    flags: tuple[str, ...] = ALWAYS.flags
    # The calls between which crashes are looked at; None: all.
    only: range | None = None

    def opening_flags(self) -> tuple[str, ...]:
        """Of the broker that opens its states: a log's queues are as long in memory, and as small in files, again."""
        return self.flags if self.mode.has_log else self.mode.flags


def record(name: str, place: Path, seed: int, mode: Mode = ALWAYS) -> Recording:
    """Run the workload under the recorder."""
    folder, log_path = clear(place / "data"), place / "calls.log"
    log_path.unlink(missing_ok=True)
    ledger = Ledger()
    flags = workloads.flags_of(name, mode)

    def start() -> Server:
        return start_nsqd("nsqfast", folder, *flags, prepare=watch(folder, log_path))

    workloads.run(name, start, ledger, seed, signal.SIGPWR, mode)
    title = f"{name} {mode.name}" if mode.has_log else name
    calls = list(read_calls(log_path))
    recording = Recording(title, ledger, calls, time.monotonic_ns(), mode, flags)
    check_calls(recording, folder)
    return recording


def is_checkpoint(call: Call) -> bool:
    """Whether it ends one of a commit log."""
    return call.kind == log.RENAMED and call.other.endswith("/carried")


def check_calls(recording: Recording, folder: Path, unfinished_max: int = 0) -> None:
    """What the calls come to is what the broker left behind, but for as many calls as the kill may have cut short."""
    disk = Disk()
    for call in recording.calls:
        disk.apply(call)
    paths = [path for path in folder.rglob("*") if path.is_file()]
    real = {str(path.relative_to(folder)): path.read_bytes() for path in paths}
    replayed = {name: bytes(file.content) for name, file in disk.files_now().items()}
    different = sorted(n for n in real.keys() | replayed.keys() if real.get(n) != replayed.get(n))
    different = [n for n in different if not _is_under_way(disk, n, real.get(n))]
    # A mapping's last stores are in no call's record.
    different = [n for n in different if not n.endswith(".acks.dat")]
    assert len(different) <= unfinished_max, f"the recorder missed calls that changed {different}"


def _is_under_way(disk: Disk, name: str, real: bytes | None) -> bool:
    """Whether the kill came in the middle of writes past the kernel's cache, and all the rest is as it should be."""
    file = disk.files_now().get(name)
    writes = disk.under_way(file) if file else []
    if file is None or real is None or not writes:
        return False
    mended = bytearray(real)
    for write in writes:
        write.apply(mended)
    return mended == file.content


@dataclass(slots=True)
class Moment:
    """After a call: `happened_ns` when it ended, `until_ns` when the next one did."""

    number: int
    happened_ns: int
    until_ns: int
    disk: Disk


def choose(boundaries: list[int], count_max: int, seed: int) -> set[int]:
    if len(boundaries) <= count_max:
        return set(boundaries)
    step = len(boundaries) / count_max
    first = random.Random(seed).random()
    return {boundaries[int((number + first) * step)] for number in range(count_max)}


def moments(
    recording: Recording, count_max: int, seed: int, *, ext4_names: bool = False
) -> Iterator[Moment]:
    """Boundaries, evenly chosen, others with each seed. The disk is the same object each time."""
    probe = Disk()
    boundaries = [n for n, call in enumerate(recording.calls) if probe.apply(call)]
    until = dict(pairwise(boundaries))
    if recording.only is not None:
        boundaries = [n for n in boundaries if n in recording.only]
    chosen = choose(boundaries, count_max, seed)
    if recording.mode.has_log:
        # Most calls write the log: those to all other files, as at a checkpoint, get as many of the moments.
        log_writes = {log.SYNC_WRITE_BEGAN, log.SYNC_WRITE_ENDED}
        others = [n for n in boundaries if recording.calls[n].kind not in log_writes]
        chosen = choose(others, count_max // 2, seed)
        # In interval mode the log is written like any other file, and all of them are the others.
        left = sorted(set(boundaries) - set(others)) or sorted(set(boundaries) - chosen)
        chosen |= choose(left, count_max - len(chosen), seed)
    disk = Disk(ext4_names=ext4_names)
    for number, call in enumerate(recording.calls):
        disk.apply(call)
        if number in chosen:
            after = until.get(number)
            end_ns = recording.end_ns if after is None else recording.calls[after].ended_ns - 1
            yield Moment(number, call.ended_ns, max(end_ns, call.ended_ns), disk)


@dataclass(slots=True)
class Tally:
    """`failures` holds a line for each state that is wrong, with what is needed to repeat it."""

    name: str
    boundaries: int = 0
    states: int = 0
    opened: int = 0
    programs: int = 0
    lost_states: Counter[str] = field(default_factory=Counter)
    lost_messages: int = 0
    lost_messages_max: int = 0
    returned_states: int = 0
    foreign_states: int = 0
    broken_states: int = 0
    other_states: int = 0
    failures: list[str] = field(default_factory=list)

    def add(self, state: State, moment: Moment, call: Call, verdict: Verdict) -> None:
        self.states += 1
        if not verdict:
            return
        if verdict.missing:
            self.lost_states[state.kind] += 1
            self.lost_messages += verdict.missing_count
            self.lost_messages_max = max(self.lost_messages_max, verdict.missing_count)
        self.returned_states += bool(verdict.returned)
        self.foreign_states += bool(verdict.foreign)
        self.broken_states += bool(verdict.broken)
        self.other_states += bool(verdict.error)
        self.failures.append(
            f"{self.name}: {state.kind} after call {moment.number} ({call}): {verdict}"
        )

    def __str__(self) -> str:
        kinds = ", ".join(f"{kind} {count}" for kind, count in self.lost_states.items())
        return (
            f"{self.name:24} {self.boundaries:5} boundaries {self.states:5} states "
            f"({self.opened} opened, {self.programs} by the program): "
            f"messages lost in {self.lost_states.total()}{f' ({kinds})' if kinds else ''}, "
            f"{self.lost_messages} in all, at most {self.lost_messages_max}; "
            f"finished came back in {self.returned_states}, never published in {self.foreign_states}, "
            f"other promises of a log broken in {self.broken_states}, other errors in {self.other_states}"
        )


class Judges:
    """What is owed at a moment. With a log the disk alone decides, so a kill may as well come right before the next
    call."""

    def __init__(self, recording: Recording, moment: Moment, sent: set[bytes]) -> None:
        self.mode = recording.mode
        self.sent = sent
        ledger = recording.ledger
        self.owed = ledger.must_have(moment.until_ns)
        self.owed_kill = ledger.must_have(moment.happened_ns)
        self.finished = ledger.must_not_have(moment.happened_ns)
        self.log_owed = log_owed(ledger, moment.until_ns) if self.mode.has_log else None

    def judge(self, kind: str, found: Found) -> Verdict:
        if kind == KILL and self.log_owed is None:
            return judge(found, self.owed_kill, self.finished, self.sent)
        if kind != KILL and not self.mode.keeps_power:
            return judge(found, {}, None, self.sent)
        verdict = judge(found, self.owed, None, self.sent)
        if self.log_owed is not None and not verdict.error:
            verdict.broken = self.log_owed.judge(found)
        return verdict


class Examiner:
    """Opens and judges states; `same` goes on in this boot, `other` in the next one."""

    kinds: tuple[str, ...] = KINDS

    def __init__(self, *, ext4_names: bool = False) -> None:
        self.ext4_names = ext4_names
        # Folders are opened where an fsync costs nothing, if there is such a place; workloads run on a disk.
        memory = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
        self.place = Path(tempfile.mkdtemp(prefix="nsqfast-crash-", dir=memory))
        self.start()

    def start(self) -> None:
        self.boot = make_boot(1)
        self.same = Opener(preload=library())
        self.other = Opener(self.boot, preload=library())

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()
        shutil.rmtree(self.place)

    def stop(self) -> None:
        self.same.close()
        self.other.close()
        self.boot.close()

    def examine(self, recording: Recording, states_max: int, seed: int) -> Tally:
        tally = Tally(recording.name)
        sent = recording.ledger.all_sent()
        known: dict[bytes, Found] = {}
        kinds = self.kinds if recording.mode.keeps_power else KINDS_WITHOUT_POWER
        moment_count = max(1, states_max // len(kinds))
        for moment in moments(recording, moment_count, seed, ext4_names=self.ext4_names):
            tally.boundaries += 1
            judges = Judges(recording, moment, sent)
            for number, kind in enumerate(kinds):
                dice = random.Random(f"{seed} {recording.name} {moment.number} {number}")
                state = make_state(moment.disk, kind, dice)
                digest = state.digest()
                if digest not in known:
                    known[digest] = self.open(state, recording)
                    tally.opened += 1
                verdict = judges.judge(kind, known[digest])
                tally.add(state, moment, recording.calls[moment.number], verdict)
                if tally.states % PROGRAM_EVERY == 0 and not state.die_at:
                    tally.programs += 1
                    self.compare(state, recording, known[digest], tally)
        return tally

    def open(self, state: State, recording: Recording) -> Found:
        folder = clear(self.place / "opened")
        state.build(folder)
        opener = self.same if state.kind == KILL else self.other
        flags = recording.opening_flags()
        if state.die_at:
            # How it ends does not matter: killed, refused to start, or up before it got that far.
            opener.open(folder, flags, die_at=state.die_at, start_only=True)
        return opener.open(folder, flags, is_timed=recording.mode.has_log)

    def compare(self, state: State, recording: Recording, found: Found, tally: Tally) -> None:
        """The fast way of opening and the program agree."""
        folder = clear(self.place / "program")
        state.build(folder)
        # The program would go on with it.
        (folder / REDRIVES_NAME).unlink(missing_ok=True)
        prepare = None if state.kind == KILL else self.boot.enter
        real = open_with_program("nsqfast", folder, recording.opening_flags(), prepare)
        if real.is_started != found.is_started:
            tally.failures.append(
                f"{tally.name}: the program started: {real.is_started}, {real.error[-300:]}"
            )
        for target in real.bodies:
            fast, slow = set(found.bodies.get(target, [])), set(real.bodies[target])
            if len(fast ^ slow) > real.deferred.get(target, 0):
                tally.failures.append(
                    f"{tally.name}: {target} has {len(fast)} messages, by the program {len(slow)}"
                )


class GoExaminer(Examiner):
    """By Go's nsqd, which does not know what a boot is: the control."""

    kinds = (KILL, NONE, DATA, RANDOM)

    def start(self) -> None:
        """Each folder has a program of its own."""

    def stop(self) -> None:
        """The same."""

    def open(self, state: State, recording: Recording) -> Found:
        folder = clear(self.place / "opened")
        state.build(folder)
        return open_with_program("go", folder, recording.opening_flags())

    def compare(self, state: State, recording: Recording, found: Found, tally: Tally) -> None:
        """It is the program already."""
        tally.programs = tally.opened
