"""The two streams of one connection, encoded for the socket and decoded for the protocol."""

from abc import ABC, abstractmethod
from collections.abc import Iterator

from nsqfast.errors import NsqfastError

PIECE_SIZE_MAX = 65536


class StreamError(NsqfastError):
    """The input is not in the agreed format."""


class Adapter(ABC):
    """One layer; the defaults are those of a layer that never sends anything by itself."""

    is_ready = True  # False: the handshake is not finished, and nothing can be encoded
    at_end = False  # the peer has announced the end of its data
    size = 0  # approximate number of bytes that it holds for its lifetime

    @abstractmethod
    def pack(self, data: bytes) -> bytes:
        """The bytes to write so that the peer can read all of `data` now."""

    @abstractmethod
    def unpack(self, data: bytes) -> Iterator[bytes]:
        """The decoded input, in pieces of at most PIECE_SIZE_MAX bytes; StreamError ends the connection."""

    def reply(self) -> bytes:
        """The layer's own messages to the peer, to be written directly to the socket."""
        return b""

    def end(self) -> bytes:
        """The bytes that announce the end of our data."""
        return b""


class Stacked(Adapter):
    """One layer within another: `outer` is the one nearer to the socket."""

    def __init__(self, outer: Adapter, inner: Adapter) -> None:
        self._outer = outer
        self._inner = inner

    @property
    def at_end(self) -> bool:  # type: ignore[override]
        return self._outer.at_end

    def pack(self, data: bytes) -> bytes:
        return self._outer.pack(self._inner.pack(data))

    def unpack(self, data: bytes) -> Iterator[bytes]:
        for piece in self._outer.unpack(data):
            yield from self._inner.unpack(piece)

    def reply(self) -> bytes:
        return self._outer.reply()

    def end(self) -> bytes:
        return self._outer.end()
