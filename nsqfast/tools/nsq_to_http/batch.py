"""Several messages in the body of one POST request: --batch, --batch-format.

json-lines       Each body is one unchanged line, followed by a newline: JSON bodies give JSON lines. A newline inside
JSON is white space, and becomes a space. Any other body with a newline is sent alone, as without --batch. Splitting at
newlines restores the bodies. length-prefixed  Before each body stands its size, as 4 bytes big-endian. It is exact for
any bytes.

X-Nsq-Message-Count says how many messages there are; a request without it is one message, as without --batch.
"""

import struct
from collections.abc import Iterator
from typing import NamedTuple

import orjson

from nsqfast.client import Batch, Message

JSON_LINES = "json-lines"
LENGTH_PREFIXED = "length-prefixed"
FORMATS = (JSON_LINES, LENGTH_PREFIXED)
CONTENT_TYPES = {JSON_LINES: "application/x-ndjson", LENGTH_PREFIXED: "application/octet-stream"}

SIZE_MAX = 8 * 1024 * 1024  # of the bodies in one request; a single one may be larger

_SIZE = struct.Struct(">I")


class Piece(NamedTuple):
    """One request; `size` is its number of messages as a batch, 0 if the body is that of one message."""

    messages: Batch
    body: bytes
    size: int


def pieces(messages: list[Message], layout: str) -> Iterator[Piece]:
    """The requests that carry these messages; usually one."""
    for some in _cut(messages):
        if layout == LENGTH_PREFIXED:
            yield Piece(Batch(some), prefix([message.body for message in some]), len(some))
        else:
            yield from _line_pieces(some)


def _cut(messages: list[Message]) -> Iterator[list[Message]]:
    if not messages:
        return
    start = size = 0
    for number, message in enumerate(messages):
        if number > start and size + len(message.body) > SIZE_MAX:
            yield messages[start:number]
            start, size = number, 0
        size += len(message.body)
    yield messages[start:]


def prefix(bodies: list[bytes]) -> bytes:
    """Each body after its size."""
    pack = _SIZE.pack
    return b"".join([part for body in bodies for part in (pack(len(body)), body)])


def _line_pieces(messages: list[Message]) -> Iterator[Piece]:
    bodies = [message.body for message in messages]
    text = b"\n".join([*bodies, b""])
    if text.count(b"\n") == len(bodies):
        yield Piece(Batch(messages), text, len(bodies))
        return
    alone = []
    together = []
    lines = []
    for message in messages:
        line = as_line(message.body)
        if line is None:
            alone.append(message)
        else:
            together.append(message)
            lines.append(line)
    if together:
        yield Piece(Batch(together), b"\n".join([*lines, b""]), len(together))
    for message in alone:
        yield Piece(Batch([message]), message.body, 0)


def as_line(body: bytes) -> bytes | None:
    """The body without newlines; None if that would change its meaning."""
    if b"\n" not in body:
        return body
    try:
        orjson.loads(body)
    except ValueError:
        return None
    return body.replace(b"\n", b" ")
