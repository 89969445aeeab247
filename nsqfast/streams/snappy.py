"""snappy (spec nsqd-tcp §8). It alone needs cramjam: `nsqfast.streams.load_snappy` imports it for those who ask.

A peer cannot make us hold more than a piece: a whole chunk is at most 64 KiB.
"""

from collections.abc import Iterator

import cramjam

from nsqfast.streams.adapter import PIECE_SIZE_MAX, Adapter, StreamError

# The framing format of snappy: a type byte, three bytes of length, then a checksum and the data.
STREAM_IDENTIFIER = b"\xff\x06\x00\x00sNaPpY"
CHUNK_HEAD_SIZE = 4
COMPRESSED, UNCOMPRESSED, IDENTIFIER = 0x00, 0x01, 0xFF
SKIPPABLE_FROM = 0x80
# The largest size of 64 KiB after snappy, plus the checksum.
CHUNK_SIZE_MAX = 4 + 32 + PIECE_SIZE_MAX + PIECE_SIZE_MAX // 6


class Snappy(Adapter):
    """The framing format; each chunk is independent."""

    def __init__(self) -> None:
        self._is_identified = False  # our identifier was sent
        self._is_open = False  # the peer's identifier was read
        self._waiting = b""
        self._skip_size = 0  # remaining bytes of a chunk that is skipped

    @property
    def incomplete_size(self) -> int:
        """Bytes of an incomplete chunk."""
        return len(self._waiting)

    def pack(self, data: bytes) -> bytes:
        framed = bytes(cramjam.snappy.compress(data))
        if self._is_identified:
            return framed.removeprefix(STREAM_IDENTIFIER)
        # For empty input cramjam returns nothing, not even an identifier.
        self._is_identified = bool(framed)
        return framed

    def unpack(self, data: bytes) -> Iterator[bytes]:
        data = self._waiting + data
        start = min(self._skip_size, len(data))
        self._skip_size -= start
        while len(data) - start >= CHUNK_HEAD_SIZE:
            kind = data[start]
            end = start + CHUNK_HEAD_SIZE + int.from_bytes(data[start + 1 : start + 4], "little")
            if self._may_skip(kind):
                start, self._skip_size = min(end, len(data)), max(0, end - len(data))
                continue
            if end - start > CHUNK_HEAD_SIZE + CHUNK_SIZE_MAX:
                raise StreamError("snappy: a chunk that is too large")
            if end > len(data):
                break
            piece = self._chunk(kind, data[start:end])
            start = end
            if piece:
                yield piece
        self._waiting = data[start:]

    def _may_skip(self, kind: int) -> bool:
        return self._is_open and SKIPPABLE_FROM <= kind < IDENTIFIER

    def _chunk(self, kind: int, chunk: bytes) -> bytes:
        if kind == IDENTIFIER:
            if chunk != STREAM_IDENTIFIER:
                raise StreamError("snappy: not a stream identifier")
            self._is_open = True
            return b""
        if not self._is_open:
            raise StreamError("snappy: no stream identifier")
        if kind not in {COMPRESSED, UNCOMPRESSED}:
            raise StreamError(f"snappy: a chunk of the unknown type {kind}")
        try:
            # With an identifier before it a chunk is a whole stream: its checksum is verified, its size bounded.
            return bytes(cramjam.snappy.decompress(STREAM_IDENTIFIER + chunk))
        except cramjam.DecompressionError as error:
            raise StreamError(f"snappy: {error}") from None
