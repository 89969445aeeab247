"""Records what load-archives has loaded, in OUTPUT/_load_archives, so that a killed run loses and duplicates nothing.

    <batch>.plan.json   before the first row is written: the files of the batch
    <batch>.done.json   after the last: the same, with size, end and a digest of the bytes before that
    <batch>.lost.json   what --salvage could not read of them

A batch that has a plan but is not done is loaded again from its first file, after the content of its folders is
deleted.
"""

import contextlib
import fcntl
import os
import time
import uuid
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from nsqfast.archives import Archive, Damage, FileFinder, FileNames
from nsqfast.archives.files import JSONL, LINES, PART, ROWS
from nsqfast.errors import OptionsError
from nsqfast.program.durable import open_private
from nsqfast.spark_jobs.archive_inspection import digest
from nsqfast.spark_jobs.archive_options import KEEP
from nsqfast.spark_jobs.archive_rows import ArchiveFile
from nsqfast.spark_jobs.folders import Folder, delete_batches, has_batches
from nsqfast.tools.shared.program import log
from nsqfast.wire.gotext import os_error

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from nsqfast.spark_jobs.archive_inspection import Inspection
    from nsqfast.spark_jobs.archive_options import Options


FOLDER = "_load_archives"
PLAN, DONE, LOST = ".plan.json", ".done.json", ".lost.json"
BATCH = "archives-"


@dataclass(frozen=True, slots=True)
class Loaded:
    """A file as it was when it was loaded."""

    path: str
    size: int
    modified_ns: int
    end: int
    tail: str


class Ledger:
    """The ledger of one output; call `open` first."""

    def __init__(self, spark: "SparkSession", output: str) -> None:
        self._spark = spark
        self._output = Folder(spark, output)
        self._folder = Folder(spark, f"{self._output.path}/{FOLDER}")
        self._run = f"{datetime.now(UTC):%Y%m%dT%H%M%S}-{uuid.uuid4().hex[:6]}"
        self._count = 0
        self.loaded: dict[str, Loaded] = {}
        # By batch: the paths of its files.
        self.unfinished: dict[str, list[str]] = {}

    @contextlib.contextmanager
    def open(self) -> Iterator[None]:
        """OptionsError: it is unreadable or unwritable, another run has it, or missing while its batches exist."""
        with self._lock():
            names = self._folder.names()
            done = {name.removesuffix(DONE) for name in names if name.endswith(DONE)}
            planned = {name.removesuffix(PLAN) for name in names if name.endswith(PLAN)}
            if not planned and has_batches(self._spark, self._output.path, f"{BATCH}*"):
                raise OptionsError(
                    f"{self._output.path}: it has batches of load-archives, but not {FOLDER}, which says what was "
                    f"loaded; put that back, or give another --output"
                )
            for batch in sorted(done):
                self._note(self._read(batch + DONE))
            for batch in sorted(planned - done):
                self.unfinished[batch] = [str(one["path"]) for one in self._read(batch + PLAN)]
            yield

    def _read(self, name: str) -> list[dict[str, Any]]:
        content = self._folder.read_json(name)
        files = content.get("files") if content else None
        if not isinstance(files, list):
            raise OptionsError(f"{self._folder.path}/{name}: damaged; load-archives wrote it")
        return files

    def _note(self, files: Sequence[dict[str, Any]]) -> None:
        for one in files:
            loaded = Loaded(one["path"], one["size"], one["modified_ns"], one["end"], one["tail"])
            before = self.loaded.get(loaded.path)
            # More was loaded of a file that grew than at first.
            if before is None or before.end <= loaded.end:
                self.loaded[loaded.path] = loaded

    def next_batch(self) -> str:
        """Return a name that no other batch has."""
        self._count += 1
        return f"{BATCH}{self._run}-{self._count:04d}"

    def begin(self, batch: str, paths: Sequence[str]) -> None:
        """Call it before anything is written; it deletes what an earlier attempt wrote."""
        delete_batches(self._spark, self._output.path, batch)
        self._folder.write_json(batch + PLAN, {"files": [{"path": path} for path in paths]})

    def note_lost(self, batch: str, found: Sequence["Inspection"]) -> str:
        """Report what could not be read; return the path of the report."""
        lost = [
            {
                "file": one.file.path,
                "rows_loaded": one.rows,
                "damages": one.damage_count,
                "lost": [{"place": each.place, "reason": each.reason} for each in one.damages],
            }
            for one in found
            if one.damage_count
        ]
        self._folder.write_json(batch + LOST, {"files": lost})
        return f"{self._folder.path}/{batch}{LOST}"

    def finish(self, batch: str, found: Sequence["Inspection"]) -> None:
        """Everything was written."""
        files = [
            {
                **asdict(
                    Loaded(one.file.path, one.file.size, one.file.modified_ns, one.end, one.tail)
                ),
                "rows": one.rows,
            }
            for one in found
        ]
        self._folder.write_json(batch + DONE, {"files": files})
        self._note(files)
        self.unfinished.pop(batch, None)

    @contextlib.contextmanager
    def _lock(self) -> Iterator[None]:
        """Lock it if the output is a folder of this machine."""
        if not self._folder.path.startswith("file:"):
            yield
            return
        folder = "/" + self._folder.path.removeprefix("file:").lstrip("/")
        self._folder.make()
        try:
            fd = open_private(f"{folder}/LOCK", os.O_RDWR | os.O_CREAT)
        except OSError as error:
            raise OptionsError(f"{folder}: {os_error(error)}") from None
        try:
            try:
                fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise OptionsError(
                    f"{folder}: another load-archives writes to this --output; wait for its end"
                ) from None
            yield
        finally:
            os.close(fd)


# Chooses the files that a run of load-archives takes: those named, not loaded yet, and not written to any more.


FILES_NAMED_MAX = 5  # in one log line
UNFINISHED = "not finished; start nsqfast-nsq-to-file again to finish it"


@dataclass(slots=True)
class Choice:
    """The choice of one run."""

    batches: list[tuple[str, list[ArchiveFile]]] = field(default_factory=list)
    known: int = 0  # files loaded before
    growing: list[str] = field(default_factory=list)
    damages: list[Damage] = field(default_factory=list)  # of files that cannot be loaded at all


class Chooser:
    """OptionsError: a named file is missing or unreadable."""

    def __init__(self, options: "Options", ledger: "Ledger") -> None:
        self._options = options
        self._ledger = ledger
        self._names = FileNames(
            options.filename_format, options.datetime_format, options.datetime_zone
        )
        self._choice = Choice()
        self._now_ns = time.time_ns()

    def choose(self) -> Choice:
        """Return the batches that an earlier run did not finish, then all new files."""
        taken = set(self._choose_unfinished())
        finder = FileFinder(self._names)
        chosen = []
        for archive in finder.find(self._options.input):
            path = os.path.realpath(archive.path)
            if path not in taken and (file := self._take(archive, path)) is not None:
                chosen.append(file)
        left, written = finder.find_unfinished(self._options.input, self._options.work_dir)
        self._choice.damages += [Damage(path, "all of it", UNFINISHED) for path in left]
        self._choice.growing += written
        if finder.skipped:
            log.warning(
                "%d files are no archives by their names, and are left out: %s%s",
                len(finder.skipped),
                ", ".join(finder.skipped[:FILES_NAMED_MAX]),
                ", ..." if len(finder.skipped) > FILES_NAMED_MAX else "",
            )
        for part in cut_batches(chosen, self._options.batch_files, self._options.batch_bytes):
            self._choice.batches.append((self._ledger.next_batch(), part))
        return self._choice

    def _choose_unfinished(self) -> Iterator[str]:
        for batch, paths in self._ledger.unfinished.items():
            files = []
            for path in paths:
                yield path
                if not Path(path).exists():
                    self._miss(batch, path)
                    continue
                (archive,) = FileFinder(self._names).find([path])
                if (file := self._file(archive, path)) is not None:
                    files.append(file)
            self._choice.batches.append((batch, files))

    def _miss(self, batch: str, path: str) -> None:
        """A file is gone whose loading was not finished: what was loaded of it is lost, too."""
        if not self._options.salvage:
            raise OptionsError(
                f"{path}: gone, and it was not yet loaded whole ({batch}); put it back, "
                f"or give --salvage to go on without it"
            )
        self._choice.damages.append(Damage(path, "all of it", "gone before it was loaded whole"))

    def _take(self, archive: Archive, path: str) -> ArchiveFile | None:
        """None: it is not for this run."""
        if not self._is_asked_for(archive):
            return None
        if archive.path.endswith(PART):
            return None
        if archive.path.endswith(ROWS) and not self._options.salvage:
            reason = f"{UNFINISHED}, or give --salvage"
            self._choice.damages.append(Damage(path, "all of it", reason))
            return None
        if path not in self._ledger.loaded and self._is_growing(archive):
            self._choice.growing.append(path)
            return None
        return self._file(archive, path)

    def _is_asked_for(self, archive: Archive) -> bool:
        """Check --topic and --topic-pattern against the name: nsq_to_file writes one topic to a file."""
        return self._options.is_topic(self._topic(archive))

    def _topic(self, archive: Archive) -> str:
        return archive.facts.topic or self._options.assume_topic

    def _is_growing(self, archive: Archive) -> bool:
        """Whether it was written to a moment ago, or may still be, because its hour is not over."""
        settle_ns = self._options.settle_ns
        if not settle_ns:
            return False
        end_ns = max(_status(archive.path).st_mtime_ns, archive.facts.end_ns or 0)
        return end_ns + settle_ns > self._now_ns

    def _file(self, archive: Archive, path: str) -> ArchiveFile | None:
        """Return the file with the position to load from; None: it was loaded, or cannot be."""
        status = _status(path)
        before = self._ledger.loaded.get(path)
        position = 0
        if before is not None:
            is_same = status.st_size == before.size and (
                status.st_mtime_ns == before.modified_ns or digest(path, before.end) == before.tail
            )
            if is_same:
                self._choice.known += 1
                return None
            if not _is_continued(archive, status.st_size, before):
                reason = "it is not what was loaded before; its name was used again"
                self._choice.damages.append(Damage(path, "all of it", reason))
                return None
            if self._is_growing(archive):
                self._choice.growing.append(path)
                return None
            position = before.end
        begin_ns = archive.facts.begin_ns
        return ArchiveFile(
            path,
            archive.format,
            archive.packer,
            status.st_size,
            status.st_mtime_ns,
            self._topic(archive),
            self._options.assume_time_ns if begin_ns is None else begin_ns,
            position,
            self._options.unterminated == KEEP,
        )


def _is_continued(archive: Archive, size: int, before: "Loaded") -> bool:
    """Whether data was only appended to what was loaded; packed files and columns cannot be loaded in part."""
    is_text = archive.format in {LINES, JSONL} and not archive.packer
    return is_text and size > before.size and digest(archive.path, before.end) == before.tail


def _status(path: str) -> os.stat_result:
    try:
        return Path(path).stat()
    except OSError as error:
        raise OptionsError(f"{path}: {os_error(error)}") from None


def cut_batches(
    files: Sequence[ArchiveFile], files_max: int, bytes_max: int
) -> Iterator[list[ArchiveFile]]:
    """Keep their order; each batch has at least one file."""
    part: list[ArchiveFile] = []
    size = 0
    for file in files:
        if part and (len(part) >= files_max or size + file.size > bytes_max):
            yield part
            part, size = [], 0
        part.append(file)
        size += file.size
    if part:
        yield part
