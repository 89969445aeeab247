"""How figures are written: three significant digits, units, and a dash for what was not measured."""

from __future__ import annotations

from math import floor, log10
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from reporting.figures import Spread

DASH = "–"
DIGITS = 3
MIB = 1 << 20

METRICS = {
    "rate": "throughput",
    "broker_cpu_us": "broker CPU per message",
    "p50_us": "p50 latency",
    "p99_us": "p99 latency",
    "cpu_percent": "share of a core, %",
    "startup_seconds": "seconds until /ping is answered",
    "bytes_per_message": "bytes per message",
    "lookup_p99_us": "p99 of GET /lookup, µs",
    "nodes_seconds": "seconds of GET /nodes",
    "ping_max_us": "longest PING during GET /nodes, µs",
    "peek_p99_us": "p99 of GET /channel/peek, µs",
    "page_p99_us": "p99 of a page of nsqadmin, µs",
    "rss_growth_bytes": "growth of resident memory, bytes",
    "step_max_us": "longest step on the loop, µs of CPU",
    "others_p99_us": "p99 of a message meanwhile, µs",
    "probe_worst_us": "worst OK of the probe, µs",
    "start_seconds": "seconds of a start",
    "stop_seconds": "seconds of a stop",
}
RELATIONS = {">=": "≥", "<=": "≤", "<": "<"}


def number(value: float) -> str:
    """Three significant digits, never an exponent: 0.0231, 4.57, 831, 12,345."""
    if value == 0:
        return "0"
    # Rounded first: 0.9999 is 1.00, with two decimals and not three.
    value = float(f"{value:.{DIGITS - 1}e}") if abs(value) < 10**DIGITS else value
    decimals = DIGITS - 1 - floor(log10(abs(value)))
    return f"{value:,.{max(0, decimals)}f}"


def rate(value: float) -> str:
    """Messages a second: 5.38 M, 874 k, 831."""
    for unit, name in ((1e6, " M"), (1e3, " k")):
        if value >= unit:
            return number(value / unit) + name
    return number(value)


def rate_tick(value: float) -> str:
    """A round number of messages a second on an axis: 1 M, 10 k."""
    for unit, name in ((1e6, " M"), (1e3, " k")):
        if value >= unit:
            return f"{value / unit:g}{name}"
    return f"{value:g}"


def mebibytes(value: float) -> str:
    """Bytes, as MiB."""
    return number(value / MIB)


def milliseconds(value_us: float) -> str:
    """Microseconds, as ms."""
    return number(value_us / 1000)


def with_range(found: Spread | None, write: Callable[[float], str]) -> str:
    """The median, and in brackets the minimum and the maximum."""
    if found is None:
        return DASH
    return f"{write(found.median)} ({write(found.low)}–{write(found.high)})"


def plain(found: Spread | None, write: Callable[[float], str]) -> str:
    """The median alone."""
    return DASH if found is None else write(found.median)


def times(value: float | None) -> str:
    """A ratio."""
    return DASH if value is None else f"× {number(value)}"


def table(words: list[str], figures: list[str], lines: list[list[str]]) -> str:
    """A Markdown table: columns of words on the left, of figures on the right."""
    heads = words + figures
    marks = ["---"] * len(words) + ["---:"] * len(figures)
    return "\n".join(f"| {' | '.join(cells)} |" for cells in (heads, marks, *lines))
