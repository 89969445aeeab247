"""The tables of the report, each a piece of Markdown."""

from __future__ import annotations

from typing import TYPE_CHECKING

from reporting.figures import DEVICE, GO, NSQFAST, NULL, REDIS, Verdict, ratio, spread, verdicts
from reporting.words import (
    DASH,
    METRICS,
    RELATIONS,
    mebibytes,
    milliseconds,
    number,
    plain,
    rate,
    table,
    times,
    with_range,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from reporting.records import Micro, Row, Run

PERCENTILES = {"p50_us": "p50", "p99_us": "p99", "p999_us": "p99.9"}
OWN_LIMIT = " †"
NS = 1e9


def targets(run: Run) -> str:
    """Each target beside the measured figure."""
    lines = []
    for row in run.rows:
        for verdict in verdicts(row):
            target = verdict.target
            wanted = f"{RELATIONS[target.relation]} {target.value:g}"
            what = METRICS[target.metric] + (", ratio" if target.is_ratio else "")
            measured = DASH if verdict.measured is None else number(verdict.measured)
            lines.append([row.scenario, row.generator, what, wanted, measured, judged(verdict)])
    return table(["scenario", "load by", "figure"], ["target", "measured", "verdict"], lines)


def judged(verdict: Verdict) -> str:
    """A word, and for a miss by how much."""
    if verdict.is_met is None:
        return "not measured"
    return "met" if verdict.is_met else f"**missed by {verdict.miss:.0%}**"


def throughput(rows: Sequence[Row]) -> str:
    """Messages a second."""
    lines = [
        [
            row.scenario,
            row.durability,
            row.generator,
            with_range(spread(row, NSQFAST, "rate"), rate),
            with_range(spread(row, GO, "rate"), rate),
            times(ratio(row, "rate")),
            plain(spread(row, NULL, "rate"), rate),
        ]
        for row in rows
    ]
    words = ["scenario", "durability", "load by"]
    return table(words, ["nsqfast", "Go nsqd", "ratio", "null limit"], lines)


def cost(rows: Sequence[Row]) -> str:
    """What a message costs: the broker, and beside it the generator."""
    figures = [
        "broker CPU, µs: nsqfast",
        "Go nsqd",
        "ratio",
        "load's own CPU, µs: with nsqfast",
        "with Go nsqd",
        "peak memory, MiB: nsqfast",
        "Go nsqd",
    ]
    lines = [
        [
            row.scenario,
            row.generator,
            with_range(spread(row, NSQFAST, "broker_cpu_us"), number),
            with_range(spread(row, GO, "broker_cpu_us"), number),
            times(ratio(row, "broker_cpu_us")),
            own_cost(row, NSQFAST),
            own_cost(row, GO),
            plain(spread(row, NSQFAST, "peak_rss_bytes"), mebibytes),
            plain(spread(row, GO, "peak_rss_bytes"), mebibytes),
        ]
        for row in rows
    ]
    return table(["scenario", "load by"], figures, lines)


def own_cost(row: Row, implementation: str) -> str:
    """The generator's CPU per message, marked where it is more than the broker's."""
    own = spread(row, implementation, "generator_cpu_us")
    broker = spread(row, implementation, "broker_cpu_us")
    mark = OWN_LIMIT if own and broker and own.median > broker.median else ""
    return plain(own, number) + mark


def latency(rows: Sequence[Row]) -> str:
    """Percentiles in milliseconds."""
    lines = [
        [
            row.scenario,
            row.durability,
            name,
            with_range(spread(row, NSQFAST, metric), milliseconds),
            with_range(spread(row, GO, metric), milliseconds),
            times(ratio(row, metric)),
        ]
        for row in rows
        for metric, name in PERCENTILES.items()
    ]
    words = ["scenario", "durability", "percentile"]
    return table(words, ["nsqfast, ms", "Go nsqd, ms", "ratio"], lines)


def redis(rows: Sequence[Row]) -> str:
    """Messages a second and their cost, each with its own load."""
    lines = [
        [
            row.scenario,
            row.generator,
            row.redis_generator,
            with_range(spread(row, NSQFAST, "rate"), rate),
            with_range(spread(row, REDIS, "rate"), rate),
            times(ratio(row, "rate", REDIS)),
            plain(spread(row, NSQFAST, "broker_cpu_us"), number),
            plain(spread(row, REDIS, "broker_cpu_us"), number),
            own_cost(row, NSQFAST),
            own_cost(row, REDIS),
        ]
        for row in rows
    ]
    words = ["scenario", "load by", "Redis's load by"]
    figures = ["nsqfast", "Redis", "ratio", "broker CPU, µs: nsqfast", "Redis"]
    return table(words, [*figures, "load's own CPU, µs: with nsqfast", "with Redis"], lines)


def device(rows: Sequence[Row]) -> str:
    """What one commit takes, in microseconds."""
    lines = [
        [
            row.scenario,
            *(
                with_range(spread(row, DEVICE, metric), number)
                for metric in ("commit_p50_us", "commit_p99_us")
            ),
        ]
        for row in rows
    ]
    return table(["one commit"], ["p50, µs", "p99, µs"], lines)


# The figures of rows without a throughput.
_OTHER: dict[str, tuple[str, Callable[[float], str]]] = {
    "cpu_percent": ("CPU, % of a core", number),
    "rss_bytes": ("resident memory, MiB", mebibytes),
    "bytes_per_connection": ("resident memory per connection, bytes", number),
    "bytes_per_message": ("resident memory per message, bytes", number),
    "startup_seconds": ("seconds until /ping is answered", number),
    "register_seconds": ("seconds until all is registered", number),
    "lookup_p50_us": ("p50 of GET /lookup, ms", milliseconds),
    "lookup_p99_us": ("p99 of GET /lookup, ms", milliseconds),
    "nodes_seconds": ("seconds of GET /nodes", number),
    "ping_max_us": ("longest PING during GET /nodes, ms", milliseconds),
    "peek_p50_us": ("p50 of GET /channel/peek, ms", milliseconds),
    "peek_p99_us": ("p99 of GET /channel/peek, ms", milliseconds),
    "peek_deep_p50_us": ("p50 of it behind 10,000 others, ms", milliseconds),
    "peek_filter_p50_us": ("p50 of it with a filter over 10,000, ms", milliseconds),
    "cancel_p50_us": ("p50 of POST /channel/deferred/cancel, ms", milliseconds),
    "page_p50_us": ("p50 of a page of nsqadmin, ms", milliseconds),
    "page_p99_us": ("p99 of a page of nsqadmin, ms", milliseconds),
    "rss_growth_bytes": ("growth of resident memory in a minute, MiB", mebibytes),
    "poll_cpu_us": ("CPU of a poll of nsqadmin, ms", milliseconds),
    "tick_cpu_us": ("CPU of a poll with rules and charts, ms", milliseconds),
    "step_max_us": ("longest step on nsqadmin's loop, ms of CPU", milliseconds),
    "calm_p99_us": ("p99 of a message, nobody looks, ms", milliseconds),
    "others_p99_us": ("p99 of a message, 20 looks a second, ms", milliseconds),
}


def other(rows: Sequence[Row]) -> str:
    """Idling, starting, memory."""
    lines = [
        [
            row.scenario,
            row.durability,
            what,
            with_range(spread(row, NSQFAST, metric), write),
            with_range(spread(row, GO, metric), write),
            times(ratio(row, metric)),
        ]
        for row in rows
        for metric, (what, write) in _OTHER.items()
        if spread(row, NSQFAST, metric)
    ]
    words = ["scenario", "durability", "figure"]
    return table(words, ["nsqfast", "Go nsqd", "ratio"], lines)


def micro(found: Sequence[Micro]) -> str:
    """Nanoseconds per message of the hot structures."""
    lines = [
        [
            one.structure,
            one.name,
            f"{one.messages:,}",
            number(one.call_seconds / one.messages * NS),
            "–".join(number(limit / one.messages * NS) for limit in one.middle_seconds),
        ]
        for one in found
    ]
    figures = ["messages per call", "ns per message", "middle half"]
    return table(["structure", "call"], figures, lines)
