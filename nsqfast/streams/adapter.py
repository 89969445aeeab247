"""The two streams of one connection, packed for the socket and unpacked for the protocol."""

from abc import ABC, abstractmethod
from collections.abc import Iterator

from nsqfast.errors import NsqfastError

PIECE_SIZE_MAX = 65536


class StreamError(NsqfastError):
    """What came is not in the format that was agreed on."""


class Adapter(ABC):
    """One layer; the defaults are those of a layer that never speaks by itself."""

    is_ready = True  # False: the peers still agree on keys, nothing can be packed
    at_end = False  # the peer said that nothing more comes
    size = 0  # bytes that it holds as long as it lasts, about

    @abstractmethod
    def pack(self, data: bytes) -> bytes:
        """What to write so that the peer can read all of `data` now."""

    @abstractmethod
    def unpack(self, data: bytes) -> Iterator[bytes]:
        """What has arrived, in pieces of at most PIECE_SIZE_MAX bytes; StreamError ends the connection."""

    def reply(self) -> bytes:
        """What the layer itself has to say to the peer, on the socket as it is."""
        return b""

    def end(self) -> bytes:
        """What says that nothing more will be packed."""
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
