"""Composes REPORT.md."""

from __future__ import annotations

from typing import TYPE_CHECKING

from reporting import tables
from reporting.figures import GO, REDIS, verdicts

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from reporting.records import Run

FSYNC = "fsync before OK"
NO_GO = (
    "**There was no Go nsqd, so its columns are empty: run `make go-nsq`, "
    "or set NSQFAST_GO_NSQD to an nsqd 1.3.0.**"
)
NO_REDIS = "**Redis was not installed, so nothing stands beside it: `apt install redis-server`.**"
NO_WRK = "**wrk was not installed, so the rows of HTTP are missing: `apt install wrk`.**"

METHOD = """\
Both brokers stay up during a scenario and are measured in turn, on the same machine with the same flags: a
warm-up each that does not count, then rounds A B, B A, A B, of the same number of messages or the same
time. Figures are medians over the rounds with the least and the most in brackets; a ratio is the median of
the rounds' ratios, nsqfast : Go nsqd. After each load the broker's own counters must show every message; a
round that lost one is an error.

The load shares the cores with the broker. Where it costs more per message than the broker does (†), it
measures itself before it measures the broker; the null limit, a sink that answers without looking at what
it gets, shows the most that this load could have shown. Broker CPU is the operating system's account of the
process, all threads, user and system, from before the load until everything is in its channel (Go nsqd
moves messages there behind its OK). Peak memory is resident memory and includes what earlier rounds left.

A dash: not measured, or a load that goes by time was so fast that it emptied the backlog, or filled the
memory queue, before its time was up.

Topics have a channel from the start, as in NSQ's own bench.sh. "Go's tools" are bench_writer and
bench_reader with two connections; bench_writer knows MPUB only, so its "PUB one at a time" is an MPUB of
one message. nsqfast-bench's consumers ask for an output buffer timeout of 25 ms where nothing else is said.
Durability: *memory* is a memory queue large enough for all (a kill -9 loses it), *page cache*
is `--mem-queue-size=0` (a kill -9 loses nothing that was written, a power failure may), *fsync before OK*
is `--mem-queue-size=0 --sync-every=1`; Go nsqd then syncs after each message, but answers that message
before the sync that covers it. Durable rows count a message once, however many channels have it: with consumers
when all channels have finished it, without, or with a slow one, when its OK came. Redis has `appendonly yes` and
`appendfsync always`, a stream and a group: XADD with as many connections, and as many in the air as there are messages
under way in NSQ's commands; "consumed" is XREADGROUP and XACK of two readers in Python. The disk alone is one file and
one write at a time in the same folder. Start-up counts from the start of the process to the answer of GET /ping.
Latency counts from the moment a message was due to be sent, so a broker that stalls the sender gains
nothing by it."""


def compose(run: Run, charts: Mapping[str, str]) -> str:
    """Return the whole text; `charts` are file names by their caption."""
    parts = [
        "# Benchmark report",
        summary(run),
        *missing_go(run),
        *missing_redis(run),
        *missing_wrk(run),
        "## Targets",
        tables.targets(run),
    ]
    parts += ["## Machine and versions", machine_list(run)]
    parts += [f"![{caption}]({name})" for caption, name in charts.items()]
    main, sizes = run.group("throughput"), run.group("sizes")
    parts += _section("Throughput, messages per second", tables.throughput(main), main)
    parts += _section("Cost per message", tables.cost(main), main)
    durable = [row for row in main if row.durability == FSYNC] + run.group("durable")
    beside_redis = [row for row in durable if REDIS in row.samples]
    device, durable_latency = run.group("device"), run.group("durable latency")
    parts += _section("Durable, messages per second", tables.throughput(durable), durable)
    parts += _section("Cost per durable message", tables.cost(durable), durable)
    parts += _section("Durable, beside Redis", tables.redis(beside_redis), beside_redis)
    parts += _section("Durable, latency", tables.latency(durable_latency), durable_latency)
    parts += _section("The disk alone", tables.device(device), device)
    parts += _section("Throughput by message size", tables.throughput(sizes), sizes)
    parts += _section("Cost per message by message size", tables.cost(sizes), sizes)
    latency, other = run.group("latency"), run.group("other")
    parts += _section("Latency, publish to receive", tables.latency(latency), latency)
    parts += _section("Idle, start-up, memory", tables.other(other), other)
    parts += _section("Micro benchmarks", tables.micro(run.micro), run.micro)
    parts += ["## Method", METHOD]
    return "\n\n".join(parts) + "\n"


def _section(title: str, text: str, shown: Iterable[object]) -> list[str]:
    return [f"## {title}", text] if list(shown) else []


def summary(run: Run) -> str:
    """Return when and what was measured, and how many targets are met."""
    found = [verdict.is_met for row in run.rows for verdict in verdicts(row)]
    rounds = max((len(samples) for row in run.rows for samples in row.samples.values()), default=0)
    return (
        f"{run.date}. nsqfast-nsqd beside Go nsqd; rounds of each scenario: {rounds}. "
        f"Targets met: {found.count(True)}, missed: {found.count(False)}, "
        f"not measured: {found.count(None)}."
    )


def missing_go(run: Run) -> list[str]:
    """Return a note if Go's nsqd was missing."""
    return [] if any(GO in row.samples for row in run.rows) else [NO_GO]


def missing_redis(run: Run) -> list[str]:
    """Return a note if Redis was missing."""
    return [NO_REDIS] if run.machine.get("Redis") == "none" else []


def missing_wrk(run: Run) -> list[str]:
    """Return a note if wrk was missing."""
    return [NO_WRK] if run.machine.get("wrk") == "none" else []


def machine_list(run: Run) -> str:
    """Return a line for each fact."""
    return "\n".join(f"- {name}: {value}" for name, value in run.machine.items())
