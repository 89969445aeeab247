"""The charts of the report, as PNG files."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import matplotlib as mpl
from matplotlib import pyplot as plt
from matplotlib.ticker import FuncFormatter, NullFormatter, NullLocator

from reporting.figures import GO, NSQFAST, ratio, spread
from reporting.words import number, plain, rate, rate_tick

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from reporting.records import Row, Run

# Draws to a file, without a screen.
mpl.use("agg")

# Distinguishable without seeing red and green, and in grey.
COLOURS = {NSQFAST: "#0072b2", GO: "#e69f00"}
LABELS = {NSQFAST: "nsqfast", GO: "Go nsqd 1.3.0"}
BY_GENERATOR = {"nsqfast-bench": "#0072b2", "Go's tools": "#e69f00", "wrk": "#009e73"}
DPI = 130
BAR_INCHES = 0.27
WIDTH_INCHES = 10.0
ROOM_RIGHT = 2.2  # of the log axis, for the figures behind the bars
# What README shows, in the words of those who have not read about NSQ yet; the load that costs least.
SUMMARY = {
    ("PUB one at a time, 50 connections", "nsqfast-bench"): "publish one by one, 50 clients",
    ("HTTP /pub, 32 keep-alive connections", "wrk"): "publish by HTTP, 32 clients",
    ("MPUB 200 × 200 B, 2 connections", "nsqfast-bench"): "publish in batches of 200",
    (
        "fan-out to 10 channels, all consumed",
        "nsqfast-bench",
    ): "one topic into ten channels",
    ("publish and consume together", "nsqfast-bench"): "publish and consume at once",
    ("SUB + FIN of a backlog", "nsqfast-bench"): "consume a backlog",
    ("disk only, in", "nsqfast-bench"): "publish to disk, not to memory",
    (
        "--sync-every=1, PUB one at a time, 50 connections",
        "nsqfast-bench",
    ): "durable (--sync-every=1), 50 clients",
}
PERCENTILES = {"p50_us": "p50", "p99_us": "p99", "p999_us": "p99.9"}


def draw(run: Run, folder: Path) -> dict[str, str]:
    """Draw all charts that have figures; return file names by caption."""
    main = run.group("throughput")
    drawn = {
        "Summary: messages a second, nsqfast and Go nsqd": _summary(main, folder / "summary.png"),
        "Throughput, nsqfast : Go nsqd": _ratios(
            main,
            "rate",
            "Throughput, nsqfast : Go nsqd (more is better)",
            folder / "throughput.png",
        ),
        "Broker CPU per message, nsqfast : Go nsqd": _ratios(
            main,
            "broker_cpu_us",
            "Broker CPU per message, nsqfast : Go nsqd (less is better)",
            folder / "cpu.png",
        ),
        "Throughput by message size": _sizes(run.group("sizes"), folder / "sizes.png"),
        "Latency, publish to receive": _latency(run.group("latency"), folder / "latency.png"),
    }
    return {caption: path.name for caption, path in drawn.items() if path}


def _save(figure: Any, path: Path) -> Path:
    figure.savefig(path, dpi=DPI, bbox_inches="tight")
    plt.close(figure)
    return path


def _plain_numbers(axis: Any) -> None:
    axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,g}"))
    axis.set_minor_formatter(NullFormatter())


def _summary(rows: Sequence[Row], path: Path) -> Path | None:
    """A bar for each of a few rows, how often Go's figure it is, and both figures beside it."""
    by_name = {(row.scenario, row.generator): row for row in rows}
    found = [
        (label, by_name[name], value)
        for name, label in SUMMARY.items()
        if name in by_name and (value := ratio(by_name[name], "rate"))
    ]
    if not found:
        return None
    figure, axes = plt.subplots(figsize=(WIDTH_INCHES, 1.1 + 0.42 * len(found)))
    places = range(len(found))
    values = [value for _, _, value in found]
    axes.set_xscale("log")
    axes.barh(places, [value - 1 for value in values], left=1, color=COLOURS[NSQFAST], height=0.62)
    for place, (_, row, value) in zip(places, found, strict=True):
        ours, theirs = (plain(spread(row, name, "rate"), rate) for name in (NSQFAST, GO))
        axes.annotate(
            f"× {number(value)}",
            (max(value, 1), place),
            xytext=(5, 0),
            textcoords="offset points",
            va="center",
            fontsize=11,
            fontweight="bold",
        )
        axes.annotate(
            f"{ours}/s : {theirs}/s",
            (1, place),
            xycoords=("axes fraction", "data"),
            xytext=(8, 0),
            textcoords="offset points",
            va="center",
            fontsize=10,
            color="0.35",
        )
    axes.axvline(1, color=COLOURS[GO], linewidth=3)
    axes.set_yticks(places, [label for label, _, _ in found], fontsize=11)
    axes.tick_params(axis="y", length=0)
    axes.invert_yaxis()
    axes.set_xlim(min(1, *values) * 0.9, max(1, *values) * ROOM_RIGHT)
    axes.set_xlabel("log scale; the line at 1 is Go nsqd 1.3.0")
    axes.set_title("Messages a second, nsqfast-nsqd : Go nsqd", fontsize=13)
    axes.grid(axis="x", alpha=0.3)
    axes.set_axisbelow(True)
    axes.spines[["top", "right", "left"]].set_visible(False)
    _plain_numbers(axes.xaxis)
    return _save(figure, path)


def _ratios(rows: Sequence[Row], metric: str, title: str, path: Path) -> Path | None:
    """One bar for each row, from 1, which means as good as Go, on a log axis."""
    found = [(row, value) for row in rows if (value := ratio(row, metric))]
    if not found:
        return None
    figure, axes = plt.subplots(figsize=(WIDTH_INCHES, 1.2 + BAR_INCHES * len(found)))
    places = range(len(found))
    values = [value for _, value in found]
    axes.set_xscale("log")
    axes.barh(
        places,
        [value - 1 for value in values],
        left=1,
        color=[BY_GENERATOR[row.generator] for row, _ in found],
    )
    for place, value in zip(places, values, strict=True):
        axes.annotate(
            number(value),
            (value, place),
            xytext=(4 if value >= 1 else -4, 0),
            textcoords="offset points",
            va="center",
            ha="left" if value >= 1 else "right",
            fontsize=8,
        )
    axes.axvline(1, color="black", linewidth=1)
    axes.set_yticks(places, [row.scenario for row, _ in found], fontsize=8)
    axes.invert_yaxis()
    axes.set_xlim(min(1, *values) / ROOM_RIGHT, max(1, *values) * ROOM_RIGHT)
    axes.set_xlabel("times Go's figure, log scale; the line at 1 is Go nsqd")
    axes.set_title(title)
    axes.grid(axis="x", alpha=0.3)
    axes.set_axisbelow(True)
    _plain_numbers(axes.xaxis)
    _generator_legend(axes, {row.generator for row, _ in found})
    return _save(figure, path)


def _generator_legend(axes: Any, seen: set[str]) -> None:
    names = [name for name in BY_GENERATOR if name in seen]
    handles = [plt.Rectangle((0, 0), 1, 1, color=BY_GENERATOR[name]) for name in names]
    axes.legend(
        handles,
        [f"load by {name}" for name in names],
        loc="upper center",
        bbox_to_anchor=(0.35, -1.0 / axes.figure.get_figheight()),
        ncols=len(names),
        frameon=False,
    )


def _sizes(rows: Sequence[Row], path: Path) -> Path | None:
    """A line for each broker, with the range of the rounds, in and out side by side."""
    if not rows:
        return None
    figure, panels = plt.subplots(1, 2, figsize=(WIDTH_INCHES, 4.2), sharey=True)
    for axes, way in zip(panels, ("in", "out"), strict=True):
        chosen = [row for row in rows if row.scenario.endswith(f", {way}")]
        for name in (NSQFAST, GO):
            _size_line(axes, chosen, name)
        axes.set_xscale("log", base=2)
        axes.set_yscale("log")
        axes.set_xticks([row.size for row in chosen], [_size_name(row) for row in chosen])
        axes.xaxis.set_minor_locator(NullLocator())
        axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: rate_tick(value)))
        axes.set_title(f"messages {way}")
        axes.set_xlabel("size of a message")
        axes.grid(alpha=0.3)
        axes.legend()
    panels[0].set_ylabel("messages per second, log scale")
    figure.suptitle("Throughput by message size, in memory, load by nsqfast-bench", y=1.0)
    return _save(figure, path)


def _size_line(axes: Any, rows: Sequence[Row], name: str) -> None:
    points = [(row.size, found) for row in rows if (found := spread(row, name, "rate"))]
    if not points:
        return
    sizes = [size for size, _ in points]
    medians = [found.median for _, found in points]
    below = [found.median - found.low for _, found in points]
    above = [found.high - found.median for _, found in points]
    axes.errorbar(
        sizes,
        medians,
        (below, above),
        color=COLOURS[name],
        label=LABELS[name],
        marker="o",
        capsize=3,
    )


def _size_name(row: Row) -> str:
    """ "messages of 200 B, in" → "200 B"."""
    return row.scenario.removeprefix("messages of ").partition(",")[0]


def _latency(rows: Sequence[Row], path: Path) -> Path | None:
    """A panel for each setting, a pair of bars for each percentile."""
    if not rows:
        return None
    figure, panels = plt.subplots(
        1, len(rows), figsize=(WIDTH_INCHES, 4.2), sharey=True, squeeze=False
    )
    for axes, row in zip(panels[0], rows, strict=True):
        for shift, name in ((-0.2, NSQFAST), (0.2, GO)):
            _latency_bars(axes, row, name, shift)
        axes.set_yscale("log")
        axes.set_xticks(range(len(PERCENTILES)), list(PERCENTILES.values()))
        axes.set_title(row.scenario.partition(", ")[2].replace(", ", ",\n"), fontsize=9)
        axes.grid(axis="y", alpha=0.3)
        axes.set_axisbelow(True)
        axes.margins(y=0.15)
        _plain_numbers(axes.yaxis)
    panels[0][0].set_ylabel("milliseconds, log scale")
    panels[0][0].legend()
    rate_name = rows[0].scenario.partition(", ")[0]
    figure.suptitle(f"Latency from publish to receive at {rate_name} (less is better)", y=1.03)
    return _save(figure, path)


def _latency_bars(axes: Any, row: Row, name: str, shift: float) -> None:
    for place, metric in enumerate(PERCENTILES):
        found = spread(row, name, metric)
        if found is None:
            continue
        value = found.median / 1000
        label = LABELS[name] if place == 0 else None
        axes.bar(place + shift, value, 0.38, color=COLOURS[name], label=label)
        axes.annotate(
            number(value),
            (place + shift, value),
            xytext=(0, 2),
            textcoords="offset points",
            ha="center",
            fontsize=8,
        )
