"""GROWTH.md of what bench_growth measured: python benchmarks/growth/table.py BENCH.json FILE"""

from __future__ import annotations

import sys
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from reporting.document import machine_list, missing_go, summary
from reporting.figures import GO, NSQFAST, spread, verdicts
from reporting.records import UnreadableError, read_run
from reporting.words import DASH, milliseconds, number, plain, table

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from reporting.records import Row, Run

METHOD = """\
Fresh brokers for each line, ours and Go's in turn, on the same machine with the same flags. The probe is a client in
a process of its own that publishes 1,000 messages a second to another topic; its times count from the moment a
message was due to its OK, and cover the whole time in which so many are made, or in which the thing is done to the
broker. *Memory* is what each of them added to the resident memory. *One more* is the mean over a twentieth of the
number made on top: time until it was answered, and CPU time of the broker. *Stop* counts from SIGTERM to the end of
the process, *start* over what that stop left to the answer of GET /ping; 60 s are as long as is waited for either,
and stand for a start that failed. *Made* is said where the time for making (90 s) was over before. Targets: the
probe's worst ≤ 20 ms, a start with queues on disk ≤ 1.5 × Go's, a stop ≤ Go's.

`make bench-growth` made this; `--growth-scale=small` is what `make bench-smoke` runs."""
# Columns of both: name, metric, and its format.
PROBE: tuple[tuple[str, str, Callable[[float], str]], ...] = (
    ("probe p50, ms", "probe_p50_us", milliseconds),
    ("p99", "probe_p99_us", milliseconds),
    ("worst", "probe_worst_us", milliseconds),
)
COSTS: tuple[tuple[str, str, Callable[[float], str]], ...] = (
    ("memory of each, bytes", "bytes_per_item", number),
    ("one more, µs", "one_more_us", number),
    ("its CPU, µs", "one_more_cpu_us", number),
    ("stop, s", "stop_seconds", number),
    ("start, s", "start_seconds", number),
)
SECONDS: tuple[tuple[str, str, Callable[[float], str]], ...] = (("seconds", "seconds", number),)


def main(arguments: list[str]) -> int:
    """Return the exit status."""
    if len(arguments) != 2:
        print(__doc__, file=sys.stderr)
        return 2
    source, target = map(Path, arguments)
    try:
        run = read_run(source)
    except UnreadableError as error:
        print(f"table: {error}", file=sys.stderr)
        return 1
    target.write_text(compose(run), encoding="utf-8")
    print(target)
    return 0


def compose(run: Run) -> str:
    """Return the whole text."""
    rows = run.group("growth")
    grown = [row for row in rows if spread(row, NSQFAST, "bytes_per_item")]
    done = [row for row in rows if row not in grown]
    parts = ["# Growth", summary(run), *missing_go(run), "## What others have to bear"]
    parts += ["Each cell: nsqfast / Go nsqd.", table_of(done, PROBE + SECONDS)]
    for name, found in groupby(grown, lambda row: row.generator):
        parts += [f"## Many {name}", table_of(list(found), PROBE + COSTS)]
    parts += ["## Machine and versions", machine_list(run), "## Method", METHOD]
    return "\n\n".join(parts) + "\n"


def table_of(rows: list[Row], columns: tuple[tuple[str, str, Callable[[float], str]], ...]) -> str:
    """Return a line for each number."""
    heads = [name for name, _, _ in columns]
    lines = [[named(row), *cells(row, columns)] for row in rows]
    return table(["how many"], heads, lines)


def named(row: Row) -> str:
    """Return the name, marked if a target is missed, or if not all of them were made."""
    notes = []
    if any(verdict.is_met is False for verdict in verdicts(row)):
        notes.append("**missed**")
    for implementation in (NSQFAST, GO):
        made = spread(row, implementation, "made")
        if made and made.low < row.size:
            notes.append(f"{implementation} made {made.low:,.0f}")
    dropped = spread(row, NSQFAST, "probe_dropped")
    if dropped and dropped.high:
        notes.append("**the probe was dropped**")
    return " ".join([row.scenario, *(f"({note})" for note in notes)])


def cells(row: Row, columns: tuple[tuple[str, str, Callable[[float], str]], ...]) -> Iterator[str]:
    """Yield our figure, and Go's if there is one."""
    for _, metric, write in columns:
        ours = plain(spread(row, NSQFAST, metric), write)
        theirs = plain(spread(row, GO, metric), write)
        yield ours if theirs == DASH else f"{ours} / {theirs}"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
