"""Inspects an archive before any of it is loaded: how many records it has, and what is damaged.

Spark's text reader ends the whole job at a truncated gzip file, or silently skips the rest of it; and it makes a record
of a line that was never finished. So every file is read once before, in Spark's Python workers; what is loaded
afterwards is compared with these counts.
"""

import hashlib
import os
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute

from nsqfast.archives import Damage
from nsqfast.archives.files import GZIP, JSONL, LINES, NONE
from nsqfast.archives.records import OnDamage
from nsqfast.spark_jobs.archive_rows import (
    ArchiveFile,
    placeable,
    read_archive_records,
    read_batches,
    share_out,
    slots,
)

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

TAIL_SIZE = 4096
DAMAGES_MAX = 1000  # of one file that are listed; the rest are counted
# Spark's text reader drops it from a file's first line.
BYTE_ORDER_MARK = b"\xef\xbb\xbf"
# Any other name may be a pattern or unreadable for Spark; it skips names that begin with _ or .
_PLAIN_NAME = re.compile(r"[\w./+=@,~-]+", re.ASCII)
_HIDDEN = ("_", ".")
# Spark chooses a decompressor by these endings, whatever the file contains.
_PACKED_ENDINGS = (
    ".gz",
    ".bz2",
    ".deflate",
    ".snappy",
    ".lz4",
    ".zst",
    ".zstd",
    ".lzo",
    ".lzo_deflate",
    ".passthrough",
)


@dataclass(frozen=True, slots=True)
class Inspection:
    """The result for one file."""

    file: ArchiveFile
    rows: int
    size: int  # of their bodies
    end: int  # the byte behind the last record, for files that may grow
    tail: str  # a digest of the bytes before `end`
    damages: list[Damage]  # at most DAMAGES_MAX
    damage_count: int
    has_mark: bool = False

    @property
    def is_text(self) -> bool:
        """Whether Spark's text reader returns exactly the same records."""
        file = self.file
        ending = os.path.splitext(file.path)[1].lower()  # noqa: PTH122 - of the text
        is_packer_seen = (
            file.path.endswith(".gz") if file.packer == GZIP else ending not in _PACKED_ENDINGS
        )
        return (
            file.format == LINES
            and file.packer in {NONE, GZIP}
            and is_packer_seen
            and not (file.position or self.damage_count or self.has_mark)
            and _PLAIN_NAME.fullmatch(file.path) is not None
            and not os.path.basename(file.path).startswith(_HIDDEN)  # noqa: PTH119 - of the text
        )


def inspect_all(spark: "SparkSession", files: Sequence[ArchiveFile]) -> list[Inspection]:
    """Inspect all of them; the results are in the same order."""
    if not files:
        return []
    parts = share_out(files, slots(spark))
    found = (
        spark.sparkContext.parallelize(parts, len(parts))
        .flatMap(lambda part: [inspect(file) for file in part])
        .collect()
    )
    by_path = {one.file.path: one for one in found}
    return [by_path[file.path] for file in files]


def inspect(file: ArchiveFile) -> Inspection:
    """Read it to its end."""
    damages: list[Damage] = []
    count = 0

    def note(damage: Damage) -> None:
        nonlocal count
        count += 1
        if len(damages) < DAMAGES_MAX:
            damages.append(damage)

    has_mark = False
    if file.format == LINES:
        rows, size, has_mark = _inspect_lines(file, note)
    else:
        rows = size = 0
        for batch in read_batches(file, note):
            rows += batch.num_rows
            size += pa.compute.sum(pa.compute.binary_length(batch.column("body"))).as_py() or 0
    end = find_end(file)
    return Inspection(file, rows, size, end, digest(file.path, end), damages, count, has_mark)


def _inspect_lines(file: ArchiveFile, on_damage: OnDamage) -> tuple[int, int, bool]:
    """Return the number of rows, the size of their bodies, and whether a byte order mark precedes the first."""
    rows = size = 0
    has_mark = None
    for records in read_archive_records(file, on_damage):
        sizes = records.bodies.sizes
        chosen = placeable(file, records, on_damage)
        rows += len(sizes) if chosen is None else int(chosen.sum())
        size += int(sizes.sum() if chosen is None else sizes[chosen].sum())
        if has_mark is None:
            has_mark = bytes(memoryview(records.bodies.data)[:3]) == BYTE_ORDER_MARK
    return rows, size, bool(has_mark)


def find_end(file: ArchiveFile) -> int:
    """Return the position behind its last record: in plain text, behind the last newline; otherwise, its size."""
    is_text = file.format in {LINES, JSONL} and not file.packer
    if not is_text or file.is_last_whole:
        return file.size
    end = file.size
    try:
        with open(file.path, "rb") as opened:  # noqa: PTH123 - as it was named
            while end > file.position:
                begin = max(file.position, end - TAIL_SIZE)
                opened.seek(begin)
                found = opened.read(end - begin).rfind(b"\n")
                if found >= 0:
                    return begin + found + 1
                end = begin
    except OSError:
        pass  # whoever reads it reports it as damage
    return file.position


def digest(path: str, end: int) -> str:
    """Return the digest of the bytes before `end`; "" if they are unreadable."""
    try:
        with open(path, "rb") as file:  # noqa: PTH123 - as it was named
            begin = max(0, end - TAIL_SIZE)
            file.seek(begin)
            return hashlib.blake2b(file.read(end - begin), digest_size=16).hexdigest()
    except OSError:
        return ""
