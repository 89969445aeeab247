"""How each format is written: blocks that are compressed, pieces of a batch, and the files that they go to."""

import os
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import orjson

from nsqfast._ext.client.columns import Taken
from nsqfast._ext.client.text_lines import JsonLines, Lines
from nsqfast.archives.files import lock_writer
from nsqfast.client.batch import ArrayBatch
from nsqfast.client.deaths import Deaths
from nsqfast.program import extras
from nsqfast.program.extras import needs
from nsqfast.tools.nsq_to_file.archive import (
    Archive,
    MakePieces,
    OpenAt,
    Pieces,
    Rules,
)
from nsqfast.tools.nsq_to_file.folders import append_file, check_folders, create_file, remove_file
from nsqfast.tools.nsq_to_file.naming import Naming
from nsqfast.tools.nsq_to_file.options import COLUMN_FORMATS, OUTPUT_DIR, Options
from nsqfast.tools.shared.program import log

if TYPE_CHECKING:
    from nsqfast.tools.nsq_to_file.column_file import Layout

# gzip members and zstd frames are independent, so that a file can be read up to the last complete one. gzip is
# zlib-ng's. At level 6 it is 1.6 times as fast as zlib (log lines of 200 bytes: 2.2 µs per message instead of 3.5), and
# the size is within 5 %, mostly smaller. isal is faster still (0.6 µs), but its strongest level compresses like zlib's
# second, so it could not honour a level of 6 or 9. Two of zlib-ng's own levels differ from zlib's: 1 compresses much
# worse than zlib's 1 (a third larger), and 9 worse than 8. Level 2, twice as fast as zlib's 1 where it matters and
# smaller, and level 8 stand in for them.

Pack = Callable[[bytes], bytes]

GZIP_WINDOW = 31  # 2^15 bytes, with gzip's header and trailer
GZIP_LEVELS = {1: 2, 9: 8}


def packer(compression: str, level: int) -> Pack | None:
    """A function that makes one member of a block; None to leave blocks unchanged."""
    if compression == "gzip":
        return _gzip(level)
    if compression == "zstd":
        return _zstd(level)
    return None


def _gzip(level: int) -> Pack:
    from zlib_ng import zlib_ng

    chosen = GZIP_LEVELS.get(level, level)

    def pack(block: bytes) -> bytes:
        member = zlib_ng.compressobj(chosen, zlib_ng.DEFLATED, GZIP_WINDOW)
        return member.compress(block) + member.flush()

    return pack


def _zstd(level: int) -> Pack:
    if sys.version_info >= (3, 14):
        from compression import zstd
    else:
        from backports import zstd

    # Without a checksum a reader cannot recognise a frame that was damaged on the disk.
    parameter = zstd.CompressionParameter
    options: dict[int, int] = {parameter.compression_level: level, parameter.checksum_flag: 1}
    return lambda block: zstd.compress(block, options=options)


def text_pieces(text_format: str, topic: str) -> MakePieces:
    """For `lines` or `jsonl`."""

    def lines(batch: ArrayBatch, _: Deaths | None = None) -> Pieces:
        return Lines(batch.taken.bodies, batch.taken.offsets)

    if text_format == "lines":
        return lines
    head = b'{"topic":' + orjson.dumps(topic) + b',"id":"'

    def json_lines(batch: ArrayBatch, deaths: Deaths | None = None) -> Pieces:
        tails = [b',"nsqd":' + orjson.dumps(address) + b"," for address in batch.nsqd]
        if deaths is None:
            return JsonLines(batch.taken, head, tails)
        taken, tails = _add_deaths(batch, tails, deaths)
        return JsonLines(taken, head, tails)

    return json_lines


def _add_deaths(batch: ArrayBatch, tails: list[bytes], deaths: Deaths) -> tuple[Taken, list[bytes]]:
    """The same, in which each row that is a dead letter has a tail of its own."""
    sources, found = batch.sources.copy(), [tail + b'"death":null,' for tail in tails]
    for row, death in enumerate(deaths):
        if death is not None:
            found.append(tails[sources[row]] + b'"death":' + orjson.dumps(death) + b",")
            sources[row] = len(found) - 1
    return batch.taken._replace(sources=sources.tobytes()), found


def is_json_record(line: bytes) -> bool:
    """Whether all of it is there."""
    try:
        return isinstance(orjson.loads(line), dict)
    except orjson.JSONDecodeError:
        return False


# A file of lines, plain or compressed, that always ends with a whole record as far as we can ensure it.


MEMBER_SIZE_MAX = 1 << 20  # bytes compressed at a time


class TextFile:
    """`size` is the previous size plus everything written since, before compression."""

    def __init__(self, path: Path, fd: int, pack: Pack | None) -> None:
        self.path = path
        self._fd = fd
        lock_writer(fd)
        self._pack = pack
        self._end = os.fstat(fd).st_size  # of the last whole record, or member
        self.size = self._end
        self.stored_size = 0  # bytes written by us, compressed
        self._gathered: list[bytes] = []
        self._gathered_size = 0

    def write(self, block: bytes) -> None:
        """Write whole records; a plain file has them at once."""
        self.size += len(block)
        if self._pack is None:
            self._store(block)
            return
        self._gathered.append(block)
        self._gathered_size += len(block)
        if self._gathered_size >= MEMBER_SIZE_MAX:
            self._end_member(self._pack)

    def sync(self) -> None:
        """Return when everything written is on disk and readable."""
        if self._pack is not None and self._gathered:
            self._end_member(self._pack)
        os.fdatasync(self._fd)

    def close(self) -> None:
        """The same, and close the file. A compressed file without records is one empty member."""
        if self._pack is not None and self._end == 0 and not self._gathered:
            self._end_member(self._pack)
        self.sync()
        os.close(self._fd)

    def forget(self) -> None:
        """It has another name by now."""
        remove_file(self.path)

    def abandon(self) -> None:
        """Give up after an error, without another attempt at unsynced data."""
        os.close(self._fd)

    def _end_member(self, pack: Pack) -> None:
        member = pack(b"".join(self._gathered))
        self._gathered.clear()
        self._gathered_size = 0
        self._store(member)

    def _store(self, data: bytes) -> None:
        rest = memoryview(data)
        try:
            while rest:
                rest = rest[os.write(self._fd, rest) :]
        except OSError:
            self._cut(len(data) - len(rest))
            raise
        self._end += len(data)
        self.stored_size += len(data)

    def _cut(self, torn_size: int) -> None:
        """Remove a partially written record, unless somebody else writes to this file as well."""
        try:
            if torn_size and os.fstat(self._fd).st_size == self._end + torn_size:
                os.ftruncate(self._fd, self._end)
        except OSError as error:
            log.warning("%s: %s; its last record is torn", self.path, error.strerror)


# Apply the flags to a topic: how to write its batches, and how to open its files.


NS = 1_000_000_000


def make_archive(options: Options, topic: str, host: str = "") -> tuple[Archive, MakePieces]:
    """OptionsError if this topic cannot be archived; `host` is that of the names, if not our own."""
    rules = Rules(
        options.output_dir,
        options.work_dir,
        options.rotate_size,
        options.rotate_interval_ns / NS,
        options.skip_empty_files,
    )
    name, naming = f"{topic}/{options.channel}", Naming(options, topic, host)
    if options.format not in COLUMN_FORMATS:
        archive = Archive(name, naming, rules, _open_text(options))
        return archive, text_pieces(options.format, topic)
    with needs(f"--format={options.format}", "arrow"):
        from nsqfast.tools.nsq_to_file.column_file import ColumnFile, column_pieces

    open_columns = partial(ColumnFile, layout=make_layout(options))
    return Archive(name, naming, rules, open_columns), column_pieces(topic)


def make_layout(options: Options) -> "Layout":
    """PackageMissingError if what the format needs is not installed."""
    with needs(f"--format={options.format}", "arrow"):
        from nsqfast.tools.nsq_to_file.column_file import SCHEMA, SCHEMA_WITH_DEATHS, Layout
    schema = SCHEMA_WITH_DEATHS if options.deaths else SCHEMA
    return Layout(options.format, options.compression, options.level, schema)


def _open_text(options: Options) -> OpenAt:
    pack = packer(options.compression, options.level)
    # A compressed file is never continued: its last member may be torn.
    is_continued = pack is None and options.rotate_interval_ns <= 0
    # Whether a line is a whole message, nobody can tell.
    is_whole = is_json_record if options.format == "jsonl" else None
    open_file = partial(append_file, is_whole=is_whole) if is_continued else create_file
    return lambda path: TextFile(path, open_file(path), pack)


def check_places(options: Options) -> None:
    """ToolError if a folder belongs to another user, before a message is taken."""
    for root in {options.output_dir, options.work_dir}:
        if Path(root).exists():
            check_folders(root, Path(root))
    if Path(options.output_dir).resolve() == Path(OUTPUT_DIR):
        log.warning(
            "--output-dir is %s, which the system may empty and where every user may write: no place to keep files; "
            "give a folder of your own",
            OUTPUT_DIR,
        )


def check_format(options: Options) -> None:
    """PackageMissingError if what the format needs is not installed."""
    if options.format in COLUMN_FORMATS:
        extras.check(f"--format={options.format}", "arrow")
