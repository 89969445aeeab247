"""Prints the batches of a ring and their records, a piece at a time. Bodies are shown only where that is asked for."""

import base64
import json
import sys
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, NamedTuple

from nsqfast._ext.commitlog.view import RingView
from nsqfast.program.logs import escape_controls
from nsqfast.program.stdout import print_text
from nsqfast.tools.commitlog.check import CHANGED, IN_USE, to_json
from nsqfast.tools.commitlog.options import JSONL, PROGRAM, Options
from nsqfast.tools.commitlog.ring import (
    DAMAGED,
    Damage,
    describe_damage,
    is_in_use,
    open_ring,
    stamps,
)

PIECE_RECORDS, PIECE_BYTES = 1000, 1 << 20
BYTES_SHOWN = 64
ALL = 1 << 62  # records
PAYLOAD_MAX = 1 << 32  # longer than a quarter
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
NS_MAX = 253_402_300_799 * 10**9  # the end of the year 9999


class Record(NamedTuple):
    """As RingView.read() has it."""

    kind: int
    flags: int
    extra: int
    subject: int
    size: int
    payload: bytes


class Header(NamedTuple):
    """Of a batch that is whole."""

    path: str
    start: int
    length: int
    records: int
    wall_ns: int
    unsynced: int
    needed_from: int


class TextLines:
    """For people; what a record holds cannot steer a terminal."""

    payload_most = BYTES_SHOWN

    def batch(self, number: int, header: Header | None) -> str:
        """Its header, if that is to be believed."""
        if header is None:
            return f"batch {number}  damaged"
        where = f"{Path(header.path).name} {header.start}-{header.start + header.length}"
        unsynced = f"  unsynced {header.unsynced}" if header.unsynced else ""
        return (
            f"batch {number}  {where}  records {header.records}  needed from {header.needed_from}"
            f"{unsynced}  {show_time(header.wall_ns)}"
        )

    def record(self, _number: int, record: Record, *, has_payload: bool) -> str:
        """As Python writes bytes, where they are asked for."""
        text = (
            f"  kind {record.kind}  flags {record.flags:#04x}  extra {record.extra}"
            f"  subject {record.subject}  size {record.size}"
        )
        if not has_payload:
            return text
        more = "..." if record.size > len(record.payload) else ""
        return f"{text}  {repr(record.payload)[1:]}{more}"

    def damage(self, damage: Damage) -> str:
        """What is missing here."""
        return f"damage  {describe_damage(damage)}"


class JsonLines:
    """For programs: an object for each batch, record and damage, as its `type` says."""

    payload_most = PAYLOAD_MAX

    def batch(self, number: int, header: Header | None) -> str:
        """A batch that is damaged has its number alone."""
        fields = {} if header is None else header._asdict()
        if fields:
            fields["file"] = Path(fields.pop("path")).name
        return json.dumps(
            {"type": "batch", "batch": number, "is_whole": header is not None, **fields}
        )

    def record(self, number: int, record: Record, *, has_payload: bool) -> str:
        """The payload is in base64."""
        fields: dict[str, Any] = {"type": "record", "batch": number, **record._asdict()}
        payload = fields.pop("payload")
        if has_payload:
            fields["payload"] = base64.b64encode(payload).decode()
        return json.dumps(fields)

    def damage(self, damage: Damage) -> str:
        """As in the report of a check."""
        return json.dumps({"type": "damage", **to_json(damage)})


def show_time(wall_ns: int) -> str:
    """In UTC; a number where that is no date."""
    if not 0 <= wall_ns <= NS_MAX:
        return f"{wall_ns} ns"
    return (EPOCH + timedelta(microseconds=wall_ns // 1000)).isoformat()


def dump(options: Options) -> int:
    """Return the exit status; RingError."""
    view = open_ring(options.folder)
    try:
        before = stamps(options.folder)
        if options.from_batch:
            view.seek(options.from_batch)
        for lines in read_pieces(view, options):
            if lines:
                print_text("\n".join(lines))
        if is_in_use(options.folder):
            _note(f"{options.folder}: {IN_USE}")
        elif stamps(options.folder) != before:
            _note(f"{options.folder}: {CHANGED}")
        return DAMAGED if view.damaged else 0
    finally:
        view.close()


def _note(text: str) -> None:
    print(f"{PROGRAM}: {escape_controls(text)}", file=sys.stderr)


def read_pieces(view: RingView, options: Options) -> Iterator[list[str]]:
    """The lines of one piece after the other; damage stands where it was met."""
    show = JsonLines() if options.format == JSONL else TextLines()
    payload_most = show.payload_most if options.bodies else 0
    left, batch, damage_count = options.limit or ALL, 0, len(view.damaged)
    yield [show.damage(each) for each in view.damaged]
    while left and (piece := view.read(min(left, PIECE_RECORDS), PIECE_BYTES, payload_most)):
        number, header, records = piece
        lines = []
        if number != batch:
            lines.append(show.batch(number, None if header is None else Header(*header)))
            batch = number
        lines += [
            show.record(number, Record(*each), has_payload=options.bodies) for each in records
        ]
        left -= len(records)
        # The next batch was looked at as well.
        lines += [show.damage(each) for each in view.damaged[damage_count:]]
        damage_count = len(view.damaged)
        yield lines
    yield [show.damage(each) for each in view.damaged[damage_count:]]
