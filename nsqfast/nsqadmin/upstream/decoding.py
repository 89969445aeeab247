"""Decode answers of nsqd and nsqlookupd without blocking the loop: large ones piece by piece.

The decoder holds the interpreter's lock, so a thread would not help. The pieces of a list are found first, which is ten
times faster than decoding them, and are then decoded in slices of a few milliseconds.
"""

import asyncio
import time
from collections.abc import Iterable
from functools import lru_cache
from typing import TypeVar

import msgspec

from nsqfast.nsqadmin.upstream.errors import UpstreamError
from nsqfast.nsqadmin.upstream.messages import NsqdStats, TopicStats

T = TypeVar("T")

WHOLE_SIZE_MAX = 512 << 10  # decoded in one go: about 2 ms
SLICE_S = 0.002
LISTS_KEPT = 16  # of sorted names; 50 kB each with 500


class _RawStats(msgspec.Struct):
    version: str = ""
    health: str = ""
    start_time: int = 0
    topics: list[msgspec.Raw] | None = None


class Slicer:
    """Lets others run whenever a slice of time has been used."""

    def __init__(self) -> None:
        self._until = time.perf_counter() + SLICE_S

    async def rest(self) -> None:
        """Call this between two pieces of work."""
        if time.perf_counter() > self._until:
            await asyncio.sleep(0)
            self._until = time.perf_counter() + SLICE_S


def decode(body: bytes | bytearray | msgspec.Raw, kind: type[T]) -> T:
    """In one go; bytes that are not UTF-8 become U+FFFD, as in Go. UpstreamError for invalid answers."""
    try:
        return msgspec.json.decode(body, type=kind)
    except UnicodeDecodeError:
        body = bytes(body).decode("utf-8", "replace").encode()
    except (ValueError, RecursionError) as error:
        raise UpstreamError(_decoder_text(bytes(body)[:64], error)) from None
    try:
        return msgspec.json.decode(body, type=kind)
    except (ValueError, RecursionError) as error:
        raise UpstreamError(_decoder_text(body[:64], error)) from None


async def decode_in_slices(body: bytes | bytearray, kind: type[T]) -> T:
    """Like `decode`; the topics of a large answer to /stats one after the other."""
    if kind is not NsqdStats or len(body) <= WHOLE_SIZE_MAX:
        return decode(body, kind)
    raw = decode(body, _RawStats)
    slicer, topics = Slicer(), []
    for piece in raw.topics or ():
        topics.append(decode(piece, TopicStats))
        await slicer.rest()
    return NsqdStats(raw.version, raw.health, raw.start_time, topics)  # type: ignore[return-value]


def _decoder_text(start: bytes, error: Exception) -> str:
    """Go's text for invalid JSON, ours for the rest."""
    text = start.lstrip(b" \t\r\n").decode("utf-8", "replace")
    if not text:
        return "unexpected end of JSON input"
    if text[0] not in '{["-0123456789tfn':
        return f"invalid character {quote_character(text[0])} looking for beginning of value"
    return str(error)


def quote_character(character: str) -> str:
    """The character as Go's decoder names it."""
    shown = {"'": r"'\''", '"': "'\"'", "\n": r"'\n'", "\t": r"'\t'", "\r": r"'\r'"}
    return shown.get(character) or (
        f"'{character}'" if character.isprintable() else f"'\\x{ord(character):02x}'"
    )


def join_sorted(lists: Iterable[Iterable[str]]) -> tuple[str, ...]:
    """Every string once, sorted."""
    return sort_names(frozenset[str]().union(*lists))


@lru_cache(maxsize=LISTS_KEPT)
def sort_names(names: frozenset[str]) -> tuple[str, ...]:
    """Most nodes of a cluster have the same topics, and recognising that takes half the time of sorting them."""
    return tuple(sorted(names))
