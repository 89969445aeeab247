"""Plain lines, a body and a newline each, and JSON lines.

A body that contains newlines comes back as several plain lines; nobody can tell. A JSON line is an object with topic,
id, timestamp_ns, attempts, nsqd, and body or body_base64, of which only the body is required: files made by hand need
not have the rest.
"""

import binascii
from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
import orjson

from nsqfast._ext.protocol.records import split
from nsqfast.archives.records import NO_TIME, Column, Damage, Ints, OnDamage, Records, join_texts
from nsqfast.archives.unpack import Block
from nsqfast.wire.names import is_valid_name

NEWLINE = 10
# A file without newlines is not an archive of messages; nsqd takes 1 MiB by default.
RECORD_SIZE_MAX = 256 << 20


class LineCutter:
    """Cuts blocks into whole lines.

    `is_last_whole`: at the end of the file, text without a newline is a record, and not a torn one.
    """

    def __init__(self, path: str, on_damage: OnDamage, *, is_last_whole: bool) -> None:
        self._path = path
        self._on_damage = on_damage
        self._is_last_whole = is_last_whole
        self._parts: list[bytes] = []  # of a line whose end has not come yet
        self._size = 0
        self._is_dropping = False  # skipping the rest of a line that is too long
        self._position = 0  # of the next byte of a block

    def cut(self, blocks: Iterable[Block], position: int) -> Iterator[tuple[bytes, int]]:
        """Yield bytes that end with a newline, and their position; blocks begin at `position`."""
        self._position = position
        for block in blocks:
            if not block.is_joined:
                self._forget()  # the caller has reported the loss
            end = block.data.rfind(b"\n") + 1
            if end:
                begin = self._position - self._size
                whole = b"".join([*self._parts, block.data[:end]])
                if self._is_dropping:
                    cut = whole.index(b"\n") + 1
                    begin, whole, self._is_dropping = begin + cut, whole[cut:], False
                self._forget()
                yield whole, begin
            self._position += len(block.data)
            self._keep(block.data[end:])
        if self._size and not self._is_dropping:
            yield from self._end()

    def _forget(self) -> None:
        self._parts, self._size = [], 0

    def _keep(self, data: bytes) -> None:
        if self._is_dropping or not data:
            return
        self._parts.append(data)
        self._size += len(data)
        if self._size > RECORD_SIZE_MAX:
            self._tell(f"a line of more than {RECORD_SIZE_MAX} bytes")
            self._forget()
            self._is_dropping = True

    def _end(self) -> Iterator[tuple[bytes, int]]:
        if self._is_last_whole:
            yield b"".join([*self._parts, b"\n"]), self._position - self._size
        else:
            self._tell(f"torn: {self._size} bytes without a newline at the end of the file")

    def _tell(self, reason: str) -> None:
        self._on_damage(Damage(self._path, f"byte {self._position - self._size}", reason))


def read_lines(cutter: LineCutter, blocks: Iterable[Block], position: int) -> Iterator[Records]:
    """The records of a file of plain lines."""
    for data, begin in cutter.cut(blocks, position):
        bodies = cut_bodies(data)
        yield Records(bodies, bodies.starts + begin, begin + len(data), "byte")


def cut_bodies(data: bytes) -> Column:
    """The lines of a block, without the empty ones."""
    pieces = split(data, NEWLINE)
    return Column(data, _ints(pieces.starts), _ints(pieces.ends))


def _ints(data: bytes) -> Ints:
    return np.frombuffer(data, np.int64)


INT64_MAX = (1 << 63) - 1
ATTEMPTS_MAX = (1 << 16) - 1
SHOWN_SIZE = 40


def read_jsonl(
    path: str,
    on_damage: OnDamage,
    cutter: LineCutter,
    blocks: Iterable[Block],
    position: int,
    *,
    has_all: bool = False,
) -> Iterator[Records]:
    """The records of a file of JSON lines; `has_all`: including attempts and nsqd."""
    for data, begin in cutter.cut(blocks, position):
        lines = cut_bodies(data)
        view = memoryview(data)
        gathered = _Gathered(has_all=has_all)
        for start, end in zip(lines.starts.tolist(), lines.ends.tolist(), strict=True):
            try:
                gathered.add(orjson.loads(view[start:end]), begin + start)
            except ValueError as error:
                shown = bytes(view[start : min(end, start + SHOWN_SIZE)])
                on_damage(Damage(path, f"byte {begin + start}", f"{error}: {shown!r}"))
        yield gathered.records(begin + len(data))


class _Gathered:
    """The contents of the lines of one block."""

    def __init__(self, *, has_all: bool) -> None:
        self._has_all = has_all
        self._bodies: list[bytes] = []
        self._positions: list[int] = []
        self._topics: dict[str, int] = {}
        self._topic_numbers: list[int] = []
        self._timestamps_ns: list[int] = []
        self._ids: list[bytes] = []
        self._attempts: list[int] = []
        self._nsqd: list[bytes] = []

    def add(self, line: Any, position: int) -> None:
        """Add one line; a ValueError says what is wrong, and then nothing was added."""
        if not isinstance(line, dict):
            raise ValueError("not an object")  # noqa: TRY004 - the caller names the line
        body = _body(line)
        topic = _text(line, "topic")
        number = self._topics.get(topic)
        if number is None:
            if topic and not is_valid_name(topic):
                raise ValueError(f"topic {topic!r:.80} is not valid")
            number = len(self._topics)
        time_ns = line.get("timestamp_ns", NO_TIME)
        if type(time_ns) is not int or not NO_TIME <= time_ns <= INT64_MAX:
            raise ValueError("timestamp_ns is no integer of 64 bits")
        identity = _text(line, "id").encode()
        if self._has_all:
            attempts, nsqd = _attempts(line), _text(line, "nsqd").encode()
            self._attempts.append(attempts)
            self._nsqd.append(nsqd)
        self._topics.setdefault(topic, number)
        self._topic_numbers.append(number)
        self._bodies.append(body)
        self._positions.append(position)
        self._timestamps_ns.append(time_ns)
        self._ids.append(identity)

    def records(self, end: int) -> Records:
        """All records."""
        has_topics = any(self._topics)
        return Records(
            join_texts(self._bodies),
            np.array(self._positions, np.int64),
            end,
            "byte",
            list(self._topics) if has_topics else None,
            np.array(self._topic_numbers, np.int32) if has_topics else None,
            np.array(self._timestamps_ns, np.int64),
            join_texts(self._ids),
            np.array(self._attempts, np.int32) if self._has_all else None,
            join_texts(self._nsqd) if self._has_all else None,
        )


def _text(line: dict[str, Any], key: str) -> str:
    value = line.get(key, "")
    if not isinstance(value, str):
        raise ValueError(f"{key} is no text")  # noqa: TRY004 - the caller names the line
    return value


def _attempts(line: dict[str, Any]) -> int:
    value = line.get("attempts", 0)
    if type(value) is not int or not 0 <= value <= ATTEMPTS_MAX:
        raise ValueError(f"attempts is no number from 0 to {ATTEMPTS_MAX}")
    return value


def _body(line: dict[str, Any]) -> bytes:
    if "body_base64" in line:
        try:
            return binascii.a2b_base64(_text(line, "body_base64"), strict_mode=True)
        except binascii.Error as error:
            raise ValueError(f"body_base64: {error}") from None
    if "body" not in line:
        raise ValueError("neither body nor body_base64")
    return _text(line, "body").encode()
