"""Sockets whose bytes are packed, for a client that knows nothing of it."""

import zlib

import cramjam

IDENTIFIER = b"\xff\x06\x00\x00sNaPpY"


class DeflateSocket:
    """Raw DEFLATE."""

    def __init__(self, raw, early):
        self.raw = raw
        self._early = early
        self._pack = zlib.compressobj(6, zlib.DEFLATED, -15)
        self._unpack = zlib.decompressobj(-15)

    def sendall(self, data):
        self.raw.sendall(self._pack.compress(data) + self._pack.flush(zlib.Z_SYNC_FLUSH))

    def recv(self, size):
        while data := self._early or self.raw.recv(size):
            self._early = b""
            if plain := self._unpack.decompress(data):
                return plain
        return b""

    def close(self):
        self.raw.close()


class SnappySocket:
    """Snappy's framing format."""

    def __init__(self, raw, early):
        self.raw = raw
        self._early = early
        self._waiting = b""
        self._is_first = True

    def sendall(self, data):
        framed = bytes(cramjam.snappy.compress(data))
        self.raw.sendall(framed if self._is_first else framed.removeprefix(IDENTIFIER))
        self._is_first = False

    def recv(self, size):
        plain = b""
        while not plain:
            data = self._early or self.raw.recv(size)
            self._early = b""
            if not data:
                return b""
            self._waiting += data
            plain = self._take_chunks()
        return plain

    def _take_chunks(self):
        plain = b""
        while len(self._waiting) >= 4:
            end = 4 + int.from_bytes(self._waiting[1:4], "little")
            if len(self._waiting) < end:
                break
            chunk, self._waiting = self._waiting[:end], self._waiting[end:]
            if chunk[0] != 0xFF:
                plain += bytes(cramjam.snappy.decompress(IDENTIFIER + chunk))
        return plain

    def close(self):
        self.raw.close()


PACKED = {"deflate": DeflateSocket, "snappy": SnappySocket}


def change_over(client, kind):
    """From here on everything is packed, and the OK that says so may have come already."""
    client.socket = PACKED[kind](client.socket, client.take_buffered())
    assert client.read_response() == b"OK"
