"""What is published: in the database of --state, and in counts by file and topic for the summary."""

import json
import os
import sqlite3
from dataclasses import dataclass, field
from typing import Self

from nsqfast.archives import Archive
from nsqfast.errors import OptionsError
from nsqfast.tools.replay.batches import Batch, Skipped
from nsqfast.tools.replay.options import Options
from nsqfast.tools.shared.program import ToolError

# --state is an SQLite database with a row for each file. Every note is a transaction that is on disk on return, and the
# next batch is sent only after that: a run that is killed in between leaves at most one batch that was published and
# not noted.

FORMAT = 1
_TABLES = """
    CREATE TABLE IF NOT EXISTS run (format INTEGER NOT NULL, options TEXT NOT NULL);
    CREATE TABLE IF NOT EXISTS files (
        path TEXT PRIMARY KEY, size INTEGER NOT NULL, position INTEGER NOT NULL,
        damaged INTEGER NOT NULL, is_done INTEGER NOT NULL
    ) WITHOUT ROWID;
"""
# The settings that decide which messages go where; others may differ from run to run.
_BINDING = ("topic", "topic_map", "since", "until", "dedupe", "format", "unterminated",
            "filename_format", "datetime_format", "datetime_zone")  # fmt: skip


@dataclass(frozen=True, slots=True)
class Progress:
    """Progress in one file. `damaged`: records left out before `position`."""

    size: int = 0
    position: int = 0
    damaged: int = 0
    is_done: bool = False


class State:
    """One run at a time has it."""

    def __init__(self, path: str, options: Options) -> None:
        """OptionsError: it belongs to another run, or is not a state file."""
        self._path = path
        try:
            self._database = sqlite3.connect(path, isolation_level=None, timeout=0.0)
            try:
                self._open(json.dumps({name: getattr(options, name) for name in _BINDING}))
            except BaseException:
                self._database.close()
                raise
        except sqlite3.Error as error:
            if getattr(error, "sqlite_errorcode", 0) == sqlite3.SQLITE_BUSY:
                raise OptionsError(f"--state: {path}: another run uses it") from None
            raise OptionsError(f"--state: {path}: {error}") from None

    def _open(self, binding: str) -> None:
        database = self._database
        for pragma in ("locking_mode=EXCLUSIVE", "journal_mode=WAL", "synchronous=FULL"):
            database.execute(f"PRAGMA {pragma}")
        database.execute("BEGIN EXCLUSIVE")
        for statement in filter(str.strip, _TABLES.split(";")):
            database.execute(statement)
        row = database.execute("SELECT format, options FROM run").fetchone()
        if row is None:
            database.execute("INSERT INTO run VALUES (?, ?)", (FORMAT, binding))
        elif row[0] != FORMAT:
            raise OptionsError(
                f"--state: {self._path}: written by another release (format {row[0]})"
            )
        elif row[1] != binding:
            changed = _changed(json.loads(row[1]), json.loads(binding))
            raise OptionsError(f"--state: {self._path} is of a run with other flags: {changed}")
        database.execute("COMMIT")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._database.close()

    def read(self, archive: Archive) -> Progress:
        """The progress in this file; OptionsError: it is not the same file any more."""
        row = self._database.execute(
            "SELECT size, position, damaged, is_done FROM files WHERE path = ?", (_key(archive),)
        ).fetchone()
        if row is None:
            return Progress()
        progress = Progress(row[0], row[1], row[2], bool(row[3]))
        is_table = archive.format in {"parquet", "arrow"}
        if archive.size < progress.size or (is_table and archive.size != progress.size):
            raise OptionsError(
                f"{archive.path}: it had {progress.size} bytes when --state was written, and has {archive.size}"
            )
        # Data appended since then is still to be read.
        is_done = progress.is_done and archive.size == progress.size
        return Progress(progress.size, progress.position, progress.damaged, is_done)

    def note(self, archive: Archive, position: int, damaged: int, *, is_done: bool) -> None:
        """Return when it is on disk; ToolError: the disk does not take it."""
        row = (_key(archive), archive.size, position, damaged, is_done)
        try:
            self._database.execute("INSERT OR REPLACE INTO files VALUES (?, ?, ?, ?, ?)", row)
        except sqlite3.Error as error:
            raise ToolError(f"--state: {self._path}: {error}") from None


def _key(archive: Archive) -> str:
    return os.path.realpath(archive.path)


def _changed(old: dict[str, object], new: dict[str, object]) -> str:
    return ", ".join(
        f"--{name.replace('_', '-')} was {old.get(name)!r}"
        for name in new
        if old.get(name) != new[name]
    )


HEAD = f"{'MESSAGES':>12} {'BYTES':>15}  TOPIC"


@dataclass(slots=True)
class Count:
    """Numbers of messages and bytes."""

    messages: int = 0
    size: int = 0


@dataclass(slots=True)
class Tally:
    """Counts by file and topic, in order of appearance."""

    counts: dict[tuple[str, str], Count] = field(default_factory=dict)
    messages: int = 0
    size: int = 0

    def add(self, batch: Batch) -> None:
        """Count published messages, or those of a dry run."""
        for publish in batch.publishes:
            count = self.counts.setdefault((batch.archive.path, publish.topic), Count())
            count.messages += publish.bodies.count
            count.size += publish.size
            self.messages += publish.bodies.count
            self.size += publish.size

    def table(self) -> list[str]:
        """One line per file and topic, and the total."""
        width = max((len(topic) for _, topic in self.counts), default=0)
        width = max(width, len("TOPIC"))
        lines = [f"{HEAD:<{28 + width}}  FILE"]
        for (path, topic), count in self.counts.items():
            lines.append(f"{count.messages:>12} {count.size:>15}  {topic:<{width}}  {path}")
        lines.append(f"{self.messages:>12} {self.size:>15}  {'':<{width}}  total")
        return lines


@dataclass(frozen=True, slots=True)
class Outcome:
    """The contents of a summary."""

    tally: Tally
    skipped: Skipped
    damaged_before: int = 0  # in earlier runs of the same --state
    files: int = 0
    done_before: int = 0  # files
    outside: int = 0  # files
    unfinished: int = 0  # files
    resent: int = 0  # batches
    forgotten: int = 0  # messages, by --dedupe
    count_sure: int = 0
    seconds: float = 0.0

    @property
    def is_damaged(self) -> bool:
        """Whether records that should be there were left out."""
        return bool(self.skipped.damaged or self.damaged_before or self.unfinished)

    def lines(self, verb: str) -> list[str]:
        """Lines for stdout; `verb` says what happened to the messages."""
        rate = self.tally.messages / self.seconds if self.seconds else 0.0
        speed = f" in {self.seconds:.1f} s ({rate:,.0f}/s)" if self.seconds else ""
        what = f"{self.tally.messages:,} messages of {self.tally.size:,} bytes"
        said = [f"{what} from {_plural(self.files, 'file')} {verb}{speed}"]
        skipped = self.skipped
        for number, text in (
            (self.done_before, "files were published before, as --state says"),
            (self.outside, "files are outside --since and --until"),
            (self.unfinished, "files are unfinished and were left out, each named on stderr"),
            (skipped.outside, "messages are outside --since and --until"),
            (skipped.duplicates, "duplicates were left out"),
            (skipped.damaged, "damaged or refused records were left out, each named on stderr"),
            (self.damaged_before, "were left out in earlier runs"),
            (
                self.resent,
                "batches were sent again after a broken connection and may be there twice",
            ),
        ):
            if number:
                said.append(f"{number:,} {text}")
        if self.forgotten:
            said.append(
                f"--dedupe-memory was too small for all: a duplicate may be there if more than "
                f"{self.count_sure:,} other messages came between"
            )
        return said


def _plural(count: int, word: str) -> str:
    return f"{count:,} {word}" if count == 1 else f"{count:,} {word}s"
