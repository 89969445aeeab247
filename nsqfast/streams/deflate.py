"""deflate (spec nsqd-tcp §8).

A peer cannot make us hold more than a piece: deflate is asked for no more at a time, whatever a few bytes of it would
unfold to.
"""

import zlib
from collections.abc import Iterator

from nsqfast.streams.adapter import PIECE_SIZE_MAX, Adapter, StreamError

RAW_DEFLATE = -15
# Measured: resident bytes of 500 streams in use, divided. zlib itself says 256 KiB to pack and 40 KiB to unpack.
DEFLATE_SIZE = 310_000


class Deflate(Adapter):
    """Raw DEFLATE without a zlib header; each piece ends with a sync flush."""

    size = DEFLATE_SIZE

    def __init__(self, level: int) -> None:
        self._compressor = zlib.compressobj(level, zlib.DEFLATED, RAW_DEFLATE)
        self._decompressor = zlib.decompressobj(RAW_DEFLATE)

    def pack(self, data: bytes) -> bytes:
        return self._compressor.compress(data) + self._compressor.flush(zlib.Z_SYNC_FLUSH)

    def unpack(self, data: bytes) -> Iterator[bytes]:
        piece = b""
        # A full piece may have left some in zlib, even where all of the input was read.
        while data or len(piece) == PIECE_SIZE_MAX:
            if data and self._decompressor.eof:
                raise StreamError("deflate: data behind the end of the stream")
            try:
                piece = self._decompressor.decompress(data, PIECE_SIZE_MAX)
            except zlib.error as error:
                raise StreamError(f"deflate: {error}") from None
            data = self._decompressor.unconsumed_tail or self._decompressor.unused_data
            if piece:
                yield piece
