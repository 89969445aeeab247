"""A real run of a ring, call by call: at each of them the power may go, and the folder is opened as that leaves it."""

from __future__ import annotations

import copy
import os
import random
from typing import Any

from nsqfast._ext.dev.commit_files import RecordingFiles

from durability.commitlog.disk import Disk, Faults
from durability.commitlog.life import FULL, Life
from models.commit_log import CommitLog

# What reaches a model, in a recording.
NOTES = ("append", "acknowledge")


class Notes(CommitLog):
    """What a user is told, among the calls."""

    def __init__(self, calls: list[tuple[str, tuple[Any, ...], int]]) -> None:
        super().__init__()
        self._calls = calls

    def append(self, *arguments: Any) -> None:
        self._calls.append(("append", arguments, 0))

    def acknowledge(self, *arguments: Any) -> None:
        self._calls.append(("acknowledge", arguments, 0))

    def acknowledge_written(self, *arguments: Any) -> None:
        """What a power cut leaves is judged."""


class RecordedLife(Life):
    """One start and its work, on a real folder."""

    def __init__(self, seed: int, folder: str, *, is_interval: bool) -> None:
        super().__init__(seed, folder)
        self.size = 64 * 1024
        self.files = RecordingFiles()
        self.model = Notes(self.files.calls)
        self.model.is_interval = self.is_interval = is_interval

    def record(self, turns: int) -> list[tuple[str, tuple[Any, ...], int]]:
        ring = self._open()
        while not self.counts[FULL]:  # it went round
            self._work(ring, turns)
        ring.close()
        return self.files.calls

    def _raise_errors(self) -> None:
        """The real disk has none."""


class Replay:
    """A simulated disk that follows a recording, and what its user knows by then."""

    def __init__(self, folder: str, seed: int, *, is_interval: bool) -> None:
        self.folder, self.dice = folder, random.Random(seed)
        self.model = CommitLog()
        self.model.is_interval = is_interval
        self.disk = Disk(Faults(self.dice), self.model)
        self.disk.make_parents(folder)
        self.states = 0
        self._fds: dict[int, int] = {}

    def play(self, calls: list[tuple[str, tuple[Any, ...], int]], align: int) -> None:
        for call in calls:
            if call[0] not in NOTES:
                self._cut_power_in(call, align)
            self._apply(self.disk, self.model, call)
            for keeps in (0, 1, None):
                self._cut_power(copy.deepcopy((self.disk, self.model)), keeps, align)

    def _apply(self, disk: Disk, model: CommitLog, call: tuple[str, tuple[Any, ...], int]) -> None:
        name, arguments, result = call
        if name in NOTES:
            model.is_opening = False
            getattr(model, name)(*arguments)
        elif result >= 0 and name == "open":
            self._fds[result] = disk.open(arguments[0], arguments[1] & ~os.O_CLOEXEC, arguments[2])
        elif result >= 0:
            if name in {"close", "pwrite", "fdatasync", "fsync"}:
                arguments = (self._fds[arguments[0]], *arguments[1:])
            if name == "pwrite":
                arguments = (*arguments, True)
            getattr(disk, name)(*arguments)

    def _cut_power_in(self, call: tuple[str, tuple[Any, ...], int], align: int) -> None:
        """The call did not return; any part of it may have happened."""
        disk, model = copy.deepcopy((self.disk, self.model))
        disk.faults.dice.seed(self.dice.random())
        disk.faults.calls_left = 1
        fds = dict(self._fds)
        try:
            self._apply(disk, model, call)
        except OSError:
            pass
        finally:
            self._fds = fds
        self._cut_power((disk, model), None, align)

    def _cut_power(self, state: tuple[Disk, CommitLog], keeps: int | None, align: int) -> None:
        """keeps: 1 all that is not durable, 0 nothing, None any of it."""
        disk, model = state
        disk.faults.dice.seed(self.dice.random())
        disk.cut_power(keeps)
        life = Life(0, self.folder)
        life.disk, life.model, life.faults = disk, model, disk.faults
        life.dice, life.align, life.size = disk.faults.dice, align, 64 * 1024
        ring = life.start({})
        assert ring is not None
        life.finish(ring)
        self.states += 1
