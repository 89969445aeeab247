"""The trailer behind the Arrow stream of a segment: where its batches are, and their checksums.

    per batch   offset (u64), size (u64), rows (u64), crc32 (u32), which of SCHEMAS (u32)
    number of batches (u64), crc32 of all before (u32), "nsqS"

All numbers are little-endian. The size is a multiple of 8, as everything in an Arrow stream.
"""

import struct
from dataclasses import astuple, dataclass

import pyarrow as pa
from zlib_ng import zlib_ng

_PART = struct.Struct("<QQQII")
_COUNT = struct.Struct("<Q")
_END = struct.Struct("<I4s")
_MAGIC = b"nsqS"


@dataclass(frozen=True, slots=True)
class SegmentPart:
    """One batch: its message begins at `offset` of the file and has `size` bytes."""

    offset: int
    size: int
    row_count: int
    crc: int
    schema: int = 0


def pack(parts: list[SegmentPart]) -> bytes:
    """Return the trailer."""
    data = b"".join(_PART.pack(*astuple(part)) for part in parts) + _COUNT.pack(len(parts))
    return data + _END.pack(zlib_ng.crc32(data), _MAGIC)


def unpack(data: pa.Buffer) -> list[SegmentPart] | None:
    """Return the parts of a file; None if the trailer is incomplete or inconsistent."""
    view = memoryview(data)
    fixed = _COUNT.size + _END.size
    if len(view) < fixed:
        return None
    crc, magic = _END.unpack(view[-_END.size :])
    (count,) = _COUNT.unpack(view[-fixed : -_END.size])
    begin = len(view) - fixed - count * _PART.size
    if magic != _MAGIC or begin < 0 or zlib_ng.crc32(view[begin : -_END.size]) != crc:
        return None
    return [SegmentPart(*fields) for fields in _PART.iter_unpack(view[begin:-fixed])]
