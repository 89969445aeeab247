"""Says whether a ring is whole, and what is in it. All that a start would read is read, and nothing is written."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from nsqfast._ext.commitlog.view import RingView
from nsqfast.program.logs import escape_controls, escape_json_controls
from nsqfast.program.stdout import print_text
from nsqfast.tools.commitlog.options import JSON, Options
from nsqfast.tools.commitlog.ring import (
    DAMAGED,
    Damage,
    describe_damage,
    is_in_use,
    open_ring,
    stamps,
)

PIECE = 100_000  # records that are counted before a signal is looked at
LOOKS_MAX = 3
DAMAGES_SHOWN = 20
IN_USE = "a broker runs on it: the figures may be behind"
CHANGED = "it was written to meanwhile: the figures may be behind"


@dataclass(frozen=True, slots=True)
class Look:
    """What one look at a ring found."""

    figures: dict[str, Any]
    damaged: list[Damage]
    is_changing: bool  # somebody wrote to it meanwhile


def check(options: Options) -> int:
    """Print the report; return the exit status. RingError."""
    look = look_again(options.folder)
    report = {
        "folder": options.folder,
        "is_whole": not look.damaged,
        "is_in_use": is_in_use(options.folder),
        "is_changing": look.is_changing,
        **look.figures,
        "damaged": [to_json(each) for each in look.damaged],
    }
    if options.format == JSON:
        print_text(escape_json_controls(json.dumps(report)))
    else:
        print_text("\n".join(map(escape_controls, compose(report, look.damaged))))
    return DAMAGED if look.damaged else 0


def look_again(folder: str) -> Look:
    """Damage of a ring that is written to counts if two looks found it: a batch may have been overwritten meanwhile."""
    found = look_at(folder)
    for _ in range(LOOKS_MAX - 1):
        if not (found.damaged and found.is_changing):
            break
        before = set(found.damaged)
        found = look_at(folder)
        found.damaged[:] = [each for each in found.damaged if each in before]
    return found


def look_at(folder: str) -> Look:
    """Read all of it once."""
    view = open_ring(folder)
    try:
        before = stamps(folder)
        figures = read_figures(view)
        return Look(figures, view.damaged, is_changing=stamps(folder) != before)
    finally:
        view.close()


def read_figures(view: RingView) -> dict[str, Any]:
    """All but the damage."""
    while view.count(PIECE):
        pass
    torn = None
    if view.torn:
        batch, path, start = view.torn
        torn = {"batch": batch, "file": Path(path).name, "start": start}
    counts = view.counts()
    return {
        "format": view.format,
        "epoch": view.epoch.hex(),
        "quarter_bytes": view.quarter_size,
        "interval_from": view.interval_from,
        "first_needed": view.first,
        "last": view.last,
        "torn": torn,
        "bad": [{"quarter": i, "batch": batch} for i, batch in enumerate(view.failed) if batch],
        "fill": round(view.fill, 4),
        "records": sum(counts.values()),
        "records_by_kind": counts,
        "payload_bytes": view.payload_bytes,
    }


def to_json(damage: Damage) -> dict[str, Any]:
    """Batches 0 to 0: bytes that cannot be read, and may belong to none."""
    path, start, end, (first, last) = damage
    return {"file": Path(path).name, "start": start, "end": end, "first": first, "last": last}


def compose(report: dict[str, Any], damaged: list[Damage]) -> list[str]:
    """The report as lines."""
    first, last, torn = report["first_needed"], report["last"], report["torn"]
    name = report["folder"].encode(errors="backslashreplace").decode()
    lines = [f"{name}: {'whole' if report['is_whole'] else 'damaged'}"]
    if report["is_in_use"] or report["is_changing"]:
        lines.append(_row("note", IN_USE if report["is_in_use"] else CHANGED))
    interval = report["interval_from"]
    synced = f"up to {interval - 1:,} synced, later ones by time" if interval else "each is synced"
    count = f"{last - first + 1:,} from {first:,} to {last:,}" if last >= first else "none"
    kinds = ", ".join(f"kind {kind}: {n:,}" for kind, n in report["records_by_kind"].items())
    lines += [
        _row("format", f"{report['format']}, epoch {report['epoch']}"),
        _row(
            "size", f"4 quarters of {report['quarter_bytes']:,} bytes, {report['fill']:.1%} needed"
        ),
        _row("batches", f"{count}, needed from {first:,} on; {synced}"),
        _row("records", f"{report['records']:,}, payloads of {report['payload_bytes']:,} bytes"),
    ]
    if kinds:
        lines.append(_row("", kinds))
    if torn:
        where = f"batch {torn['batch']:,} at {torn['file']} {torn['start']}"
        lines.append(_row("torn", f"{where}: it was never committed, and a start cuts it off"))
    for each in report["bad"]:
        text = f"quarter {each['quarter']}: writing batch {each['batch']:,} failed there"
        lines.append(_row("bad", text))
    lines += [_row("damage", describe_damage(each)) for each in damaged[:DAMAGES_SHOWN]]
    if len(damaged) > DAMAGES_SHOWN:
        lines.append(_row("", f"and {len(damaged) - DAMAGES_SHOWN:,} more: --format=json has all"))
    return lines


def _row(name: str, text: str) -> str:
    return f"  {name:<9}{text}"
