"""/stats for programs: the result of nsqfast.nsqd.stats.collect as JSON in pieces."""

from collections.abc import Iterable, Iterator
from typing import Any

from nsqfast.net.http_reply import encode_json

# Lists that may be long, nested in this order.
NESTED = ("topics", "channels", "clients")


def json_pieces(found: dict[str, Any]) -> Iterator[bytes]:
    """The whole answer."""
    figures = {name: value for name, value in found.items() if name != "producers"}
    last = b""
    for piece in _object(figures, NESTED):
        yield last
        last = piece
    yield last[:-1] + b',"producers":'
    yield from _list(found["producers"], (), empty=b"null")
    yield b"}"


def _object(record: dict[str, Any], nested: tuple[str, ...]) -> Iterator[bytes]:
    """One object; the last piece ends with a brace."""
    name = nested[0] if nested else ""
    if isinstance(record.get(name), list | None):
        yield encode_json(record)
        return
    names = list(record)
    place = names.index(name)
    head = encode_json({name: record[name] for name in names[:place]})
    tail = encode_json({name: record[name] for name in names[place + 1 :]})
    yield b'%b%b"%b":' % (head[:-1], b"," if place else b"", name.encode())
    yield from _list(record[name], nested[1:])
    yield b"," + tail[1:] if len(tail) > 2 else b"}"


def _list(
    items: Iterable[dict[str, Any] | None] | None, nested: tuple[str, ...], empty: bytes = b"[]"
) -> Iterator[bytes]:
    before = b"["
    for item in items or ():
        if item is None:
            yield b""
            continue
        yield before
        yield from _object(item, nested)
        before = b","
    yield empty if before == b"[" else b"]"
