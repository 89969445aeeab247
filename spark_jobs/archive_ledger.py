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
import uuid
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from nsqfast.errors import OptionsError
from nsqfast.spark_jobs.folders import Folder
from nsqfast.spark_jobs.partitions import delete_batches, has_batches
from nsqfast.tools.shared.durable import open_private
from nsqfast.wire.gotext import os_error

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from nsqfast.spark_jobs.archive_inspection import Inspection

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
