"""The files of one topic, one at a time: when to open, rotate and move one, and its name (spec tools §1).

Everything here blocks on the disk, so it is called in a thread, one call at a time. If a call raises OSError, nothing
was synced since the last successful one.
"""

import errno
import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from nsqfast.client.batch import ArrayBatch
from nsqfast.client.deaths import Deaths
from nsqfast.tools.nsq_to_file.folders import check_folders, link_file, make_folders
from nsqfast.tools.nsq_to_file.naming import Naming, join_path, put_revision
from nsqfast.tools.shared.program import log

SIZE_MAX = 1 << 62


class Pieces(Protocol):
    """The rows of one batch on its way into a file, in order; each piece as large as fits before the file is full."""

    @property
    def count(self) -> int:
        """Number of rows in the batch."""

    @property
    def next(self) -> int:
        """Index of the first row not taken yet."""

    def take(self, size_max: int) -> Any:
        """Take the next rows, up to the one that exceeds this size."""


# With `deaths`, one of each row, the rows have them.
MakePieces = Callable[[ArrayBatch, Deaths | None], Pieces]


class OpenFile(Protocol):
    """A file open for writing."""

    @property
    def path(self) -> Path:
        """Its current path."""

    @property
    def size(self) -> int:
        """Bytes for --rotate-size."""

    @property
    def stored_size(self) -> int:
        """Bytes written to disk."""

    def write(self, piece: Any) -> None:
        """Write the next records."""

    def sync(self) -> None:
        """Return when they are on disk."""

    def close(self) -> None:
        """Return when they are on disk, and the file at `path` is complete."""

    def forget(self) -> None:
        """It has its final name; remove `path` if that is another one."""

    def abandon(self) -> None:
        """Give up after an error."""


OpenAt = Callable[[Path], OpenFile]


@dataclass(frozen=True, slots=True)
class Rules:
    """When to switch to another file, and where it goes; sizes in bytes, 0 = no limit."""

    output_dir: str
    work_dir: str
    rotate_size: int = 0
    rotate_interval_s: float = 0.0
    skip_empty_files: bool = False


@dataclass(slots=True)
class Figures:
    """Counts since the start."""

    messages: int = 0
    size: int = 0  # bytes, before compression
    stored_size: int = 0  # bytes, after compression
    files: int = 0
    syncs: int = 0
    sync_s: float = 0.0


class Archive:
    """`open_at` opens a path for writing; FileExistsError if a file is there that cannot be continued."""

    def __init__(
        self,
        name: str,
        naming: Naming,
        rules: Rules,
        open_at: OpenAt,
        now_s: Callable[[], float] = time.time,
        age_s: Callable[[], float] = time.monotonic,
    ) -> None:
        self.figures = Figures()
        self.is_sync_due = False  # a file was begun since the last sync
        self._name = name
        self._naming = naming
        self._rules = rules
        self._output_dir = self._work_dir = rules.output_dir
        if os.path.realpath(rules.work_dir) != os.path.realpath(rules.output_dir):
            self._work_dir = rules.work_dir
        self._open_at = open_at
        self._now_s, self._age_s = now_s, age_s
        self._file: OpenFile | None = None
        self._file_name = ""  # without the revision
        self._revision = 0
        self._opened_s = 0.0
        self._stored_size = 0  # of the open file, as far as it is counted

    # -- calls for messages, time and signals

    def write(self, pieces: Pieces) -> None:
        """Write all of a batch, in as many files as needed."""
        before = pieces.count - pieces.next
        while pieces.next < pieces.count:
            if self._file is None or self._is_over():
                self._begin_file()
            file = self._open_file
            limit = self._rules.rotate_size
            size = file.size
            self._try(file.write, pieces.take(limit - size if limit > 0 else SIZE_MAX))
            self.figures.size += file.size - size
        self.figures.messages += before
        self._count_stored()

    def tick(self) -> None:
        """Call this at each --sync-interval."""
        if self._file is None or self._is_over():
            if self._rules.skip_empty_files:
                self.close()
            else:
                self._begin_file()
        self.sync()

    def sync(self) -> None:
        """Return when everything written is on disk."""
        self.is_sync_due = False
        if self._file is not None:
            self._timed(self._file.sync)
            self._count_stored()

    def close(self) -> None:
        """The same, and the file has its final name."""
        if self._file is None:
            return
        file = self._file
        self._timed(file.close)
        self._count_stored()
        self._file = None
        if file.path != self._target:
            self._move(file)

    def recover(self, file: OpenFile, name: str) -> None:
        """Give a file of a killed run its name, or its next free revision."""
        self._file = file
        self._file_name, self._revision = self._naming.split(name)
        self._prepare_folders()
        self.close()
        self._file_name = ""

    # -- switching files

    @property
    def _open_file(self) -> OpenFile:
        assert self._file is not None
        return self._file

    def _is_over(self) -> bool:
        rules, file = self._rules, self._open_file
        name, age_s = self._naming.at(self._now_s()), self._age_s() - self._opened_s
        if name != self._file_name:
            self._say_rotating(f"new filename {name}")
        elif 0 < rules.rotate_interval_s < age_s:
            self._say_rotating(f"{age_s:.3f}s since last open")
        elif 0 < rules.rotate_size < file.size:
            self._say_rotating(f"{file.path} currently {file.size} bytes (> {rules.rotate_size})")
        else:
            return False
        return True

    def _say_rotating(self, why: str) -> None:
        log.info("[%s] %s, rotating...", self._name, why)

    def _begin_file(self) -> None:
        self.close()
        name = self._naming.at(self._now_s())
        self._revision = self._revision + 1 if name == self._file_name else 0
        self._file_name = name
        self._opened_s = self._age_s()
        self._file = self._open()
        self._stored_size = 0
        self.figures.files += 1
        self.is_sync_due = True

    @property
    def _target(self) -> Path:
        """The final place of the file."""
        return join_path(self._output_dir, put_revision(self._file_name, self._revision))

    def _open(self) -> OpenFile:
        """Open the first revision whose name is free, or whose file can be continued."""
        self._prepare_folders()
        while True:
            path = join_path(self._work_dir, put_revision(self._file_name, self._revision))
            if path != self._target and os.path.lexists(self._target):
                log.warning("[%s] output file already exists: %s", self._name, self._target)
            else:
                try:
                    file = self._open_at(path)
                except FileExistsError:
                    log.warning("[%s] working file already exists: %s", self._name, path)
                else:
                    log.info("[%s] opening %s", self._name, path)
                    limit = self._rules.rotate_size
                    if not 0 < limit < file.size:
                        return file
                    self._say_rotating(f"{path} currently {file.size} bytes (> {limit})")
                    file.abandon()
            self._revision += 1

    def _prepare_folders(self) -> None:
        folders = [
            join_path(folder, self._file_name).parent
            for folder in (self._work_dir, self._output_dir)
        ]
        for root, folder in zip((self._work_dir, self._output_dir), folders, strict=True):
            make_folders(folder)
            check_folders(root, folder)
        if len({folder.stat().st_dev for folder in folders}) > 1:
            raise OSError(
                errno.EXDEV,
                "work-dir and output-dir have to be on the same file system",
                str(folders[0]),
            )

    def _move(self, file: OpenFile) -> None:
        """Move it to its final place, under the next free revision."""
        log.info("[%s] moving finished file %s to %s", self._name, file.path, self._target)
        while True:
            try:
                link_file(file.path, self._target)
            except FileExistsError:
                log.warning("[%s] destination file already exists: %s", self._name, self._target)
                self._revision += 1
            else:
                file.forget()
                return

    # -- disk errors

    def _try(self, step: Callable[..., None], *arguments: Any) -> None:
        """After an error the file is not touched again."""
        try:
            step(*arguments)
        except OSError as error:
            file, self._file = self._open_file, None
            error.filename = error.filename or str(file.path)
            file.abandon()
            raise

    def _timed(self, step: Callable[[], None]) -> None:
        begun_s = time.monotonic()
        self._try(step)
        self.figures.syncs += 1
        self.figures.sync_s += time.monotonic() - begun_s

    def _count_stored(self) -> None:
        if self._file is not None:
            self.figures.stored_size += self._file.stored_size - self._stored_size
            self._stored_size = self._file.stored_size
