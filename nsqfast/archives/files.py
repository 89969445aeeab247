"""From the operator's arguments (files, folders, globs, `-`) to archives: which file, in which format."""

import contextlib
import fcntl
import glob
import os
import stat
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from nsqfast.archives.names import FileNames, NameFacts
from nsqfast.errors import OptionsError
from nsqfast.wire.gotext import os_error

# Files that nsq_to_file has not finished: those that it writes, and those that killed runs left. Who writes a file has
# a shared lock on it.

WORK = ".work"  # what docs/BACKUP.md puts behind the name of the folder of finished files


def list_files(folder: Path) -> Iterator[Path]:
    """Yield the files in it and below it, but what is no folder, is removed meanwhile or may not be read.

    OptionsError names a folder that cannot be listed for another reason.
    """

    def judge(error: OSError) -> None:
        if not isinstance(error, (FileNotFoundError, NotADirectoryError, PermissionError)):
            _refuse(error)

    for place, _, names in os.walk(folder, onerror=judge):
        for path in (Path(place, name) for name in names):
            if path.is_file():
                yield path


def _refuse(error: OSError) -> None:
    raise OptionsError(f"{error.filename}: {os_error(error)}")


def lock_writer(fd: int) -> None:
    """As long as it is open, others know that somebody writes it; a file system without locks has none."""
    with contextlib.suppress(OSError):
        fcntl.flock(fd, fcntl.LOCK_SH)


def is_written(fd: int) -> bool:
    """Whether another process writes it. If none does, none that asks first will as long as this is open."""
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:
        pass
    # Go's nsq_to_file locks nothing, but nobody gets a lease on a file that others have open.
    try:
        fcntl.fcntl(fd, fcntl.F_SETLEASE, fcntl.F_WRLCK)
    except BlockingIOError:
        return True
    except (OSError, AttributeError):  # not on every system, nor on every file system
        return False
    fcntl.fcntl(fd, fcntl.F_SETLEASE, fcntl.F_UNLCK)
    return False


def is_written_at(path: Path) -> bool:
    """The same; of a file that this user may not read nobody knows. FileNotFoundError: it got its name meanwhile."""
    try:
        with path.open("rb") as file:
            return is_written(file.fileno())
    except PermissionError:
        return False


STDIN = "-"
LINES, JSONL, PARQUET, ARROW = "lines", "jsonl", "parquet", "arrow"
FORMATS = (LINES, JSONL, PARQUET, ARROW)
GZIP, ZSTD, NONE = "gzip", "zstd", ""
MAGIC_SIZE = 6
# Leftovers of nsq_to_file for a Parquet or Arrow file that was not completed, perhaps because the machine was lost:
# NAME.rows has all finished messages, NAME.part is unreliable.
ROWS, PART = ".rows", ".part"
_FAR_NS = 1 << 63

_PACKERS = {".gz": GZIP, ".zst": ZSTD, ".zstd": ZSTD}
_PACKED_MAGIC = {b"\x1f\x8b": GZIP, b"\x28\xb5\x2f\xfd": ZSTD}
_FORMATS = {
    ".log": LINES,
    ".txt": LINES,
    ".lines": LINES,
    ".jsonl": JSONL,
    ".ndjson": JSONL,
    ".json": JSONL,
    ".parquet": PARQUET,
    ".arrow": ARROW,
    ".feather": ARROW,
    ".ipc": ARROW,
    ROWS: ARROW,
}
_FORMAT_MAGIC = {b"PAR1": PARQUET, b"ARROW1": ARROW}


@dataclass(frozen=True, slots=True)
class Archive:
    """One file."""

    path: str  # as given, or found
    format: str  # one of FORMATS
    packer: str  # GZIP, ZSTD or NONE
    size: int  # on disk; 0 if it has none
    facts: NameFacts

    @property
    def is_stdin(self) -> bool:
        """Whether it is standard input."""
        return self.path == STDIN


class FileFinder:
    """`formats` is the format of all files, or "" to detect each one's from its name and first bytes."""

    def __init__(self, names: FileNames, formats: str = "") -> None:
        self._names = names
        self._format = formats
        self.skipped: list[str] = []  # in folders, because their format is unknown

    def find(self, words: Sequence[str]) -> list[Archive]:
        """Find archives in the order of the arguments; within a folder or glob by time, then by path. Each file once.

        OptionsError: an argument does not exist, or cannot be read.
        """
        found: dict[str, Archive] = {}
        for word in words:
            for archive in self._find_word(word):
                found.setdefault(os.path.realpath(archive.path), archive)
        return list(found.values())

    def find_unfinished(
        self, words: Sequence[str], work_dir: str = ""
    ) -> tuple[list[str], list[str]]:
        """What nsq_to_file has not finished: files that killed runs left, and files that it writes.

        They are in its work folder: that one, and the one that BACKUP.md puts beside each folder of the arguments.
        """
        named = {os.path.realpath(word) for word in words}
        beside = [word.rstrip("/") + WORK for word in words if Path(word).is_dir()]
        left: list[str] = []
        written: list[str] = []
        for folder in dict.fromkeys([*beside, *filter(None, [work_dir])]):
            if os.path.realpath(folder) not in named and Path(folder).is_dir():
                for path in sorted(list_files(Path(folder))):
                    if path.suffix != PART and self._is_archive(str(path)):
                        with contextlib.suppress(FileNotFoundError):
                            (written if is_written_at(path) else left).append(str(path))
        return left, written

    def _find_word(self, word: str) -> list[Archive]:
        if word == STDIN:
            return [self._stdin()]
        # If a file with this name exists, the name is not a glob.
        if os.path.lexists(word):
            if Path(word).is_dir():
                return self._sorted(self._walk(word))
            return [self._archive(word)]
        if not glob.has_magic(word):
            raise OptionsError(f"{word}: no such file or directory")
        paths = glob.glob(word, recursive=True)  # noqa: PTH207 - as it was named
        files = [path for path in paths if not Path(path).is_dir()]
        if not files:
            raise OptionsError(f"{word}: no file has such a name")
        return self._sorted(files)

    def _stdin(self) -> Archive:
        if self._format in {PARQUET, ARROW}:
            raise OptionsError(f"stdin may hold lines or jsonl; give {self._format} as a file")
        return Archive(STDIN, self._format or LINES, NONE, 0, NameFacts())

    def _walk(self, folder: str) -> Iterator[str]:
        """Files that look like archives, in this folder and all below it."""

        for place, folders, files in os.walk(folder, onerror=_refuse):
            folders[:] = sorted(name for name in folders if not name.startswith("."))
            for name in sorted(files):
                path = os.path.join(place, name)  # noqa: PTH118 - as it was named
                if (
                    name.startswith(".")
                    or self._is_superseded(path)
                    or not stat.S_ISREG(self._stat(path).st_mode)
                ):
                    continue
                if self._is_archive(path):
                    yield path
                else:
                    self.skipped.append(path)

    @staticmethod
    def _is_superseded(path: str) -> bool:
        """Whether another file has everything that is in this one."""
        stem, suffix = os.path.splitext(path)  # noqa: PTH122 - of the text
        return suffix == PART or (suffix == ROWS and os.path.lexists(stem))

    def _is_archive(self, path: str) -> bool:
        """Whether the name of a file found in a folder identifies it as an archive."""
        format_, _ = by_suffix(path)
        return bool(self._format or format_ or self._names.read(path).topic)

    def _sorted(self, paths: Iterator[str] | list[str]) -> list[Archive]:
        archives = [self._archive(path) for path in paths]
        return sorted(archives, key=lambda one: (_begin_ns(one.facts), one.path))

    def _archive(self, path: str) -> Archive:
        status = self._stat(path)
        is_file = stat.S_ISREG(status.st_mode)
        # A pipe is not opened here: it has one reader, which comes later.
        magic = self._first_bytes(path) if is_file else b""
        format_, packer = by_suffix(path)
        format_ = _by_magic(magic, _FORMAT_MAGIC) or format_ or LINES
        packer = _by_magic(magic, _PACKED_MAGIC) or packer
        return Archive(
            path, self._format or format_, packer, status.st_size, self._names.read(path)
        )

    @staticmethod
    def _first_bytes(path: str) -> bytes:
        try:
            with open(path, "rb") as file:  # noqa: PTH123 - as it was named
                return file.read(MAGIC_SIZE)
        except OSError as error:
            raise OptionsError(f"{path}: {os_error(error)}") from None

    @staticmethod
    def _stat(path: str) -> os.stat_result:
        try:
            return os.stat(path)  # noqa: PTH116 - as it was named
        except OSError as error:
            raise OptionsError(f"{path}: {os_error(error)}") from None


def _begin_ns(facts: NameFacts) -> int:
    return _FAR_NS if facts.begin_ns is None else facts.begin_ns


def by_suffix(path: str) -> tuple[str, str]:
    """Format and compression, "" if the name does not tell."""
    stem, suffix = os.path.splitext(path)  # noqa: PTH122 - of the text
    packer = _PACKERS.get(suffix.lower(), NONE)
    if packer:
        suffix = os.path.splitext(stem)[1]  # noqa: PTH122 - of the text
    return _FORMATS.get(suffix.lower(), ""), packer


def _by_magic(magic: bytes, known: dict[bytes, str]) -> str:
    return next((what for start, what in known.items() if magic.startswith(start)), "")
