"""The figures of stats as a page: HTML and SVG in one file, which loads nothing from the network."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from html import escape
from importlib.resources import files

from nsqfast.spark_jobs.stats_chart import Point, Series, bar_chart, line_chart, pick_step
from nsqfast.spark_jobs.stats_figures import Hour
from nsqfast.spark_jobs.units import BYTES, COUNT, SECONDS, show_bytes, show_number, show_seconds

TOPICS_CHARTED_MAX = 100  # those with the most messages; the table has all
STYLE = "stats_page.css"


@dataclass(frozen=True, slots=True)
class _Topic:
    name: str
    hours: Sequence[Hour]

    @property
    def messages(self) -> int:
        return sum(hour.messages for hour in self.hours)


def make_page(hours: Sequence[Hour], inputs: Sequence[str], now: datetime) -> str:
    """Return the page; the names of topics and folders are escaped."""
    by_topic: dict[str, list[Hour]] = {}
    for hour in hours:
        by_topic.setdefault(hour.topic, []).append(hour)
    topics = sorted(
        (_Topic(name, found) for name, found in by_topic.items()),
        key=lambda one: (-one.messages, one.name),
    )
    style = files(__package__).joinpath(STYLE).read_text(encoding="utf-8")
    sections = "".join(_section(topic) for topic in topics[:TOPICS_CHARTED_MAX])
    left = len(topics) - TOPICS_CHARTED_MAX
    more = f"<p class=note>{left} more topics are in the table.</p>" if left > 0 else ""
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        '<meta name="color-scheme" content="light dark">\n'
        f"<title>NSQ messages by topic and hour</title>\n<style>\n{style}</style>\n</head>\n<body>\n"
        f"{_head(hours, inputs, now)}<main>\n{sections}{more}{_table(hours)}</main>\n</body>\n</html>\n"
    )


def _head(hours: Sequence[Hour], inputs: Sequence[str], now: datetime) -> str:
    times = sorted(f"{hour.date} {hour.hour}:00" for hour in hours)
    span = times[0] if times[0] == times[-1] else f"{times[0]} to {times[-1]}"
    places = ", ".join(f"<code>{escape(path)}</code>" for path in inputs)
    attempts = [hour.attempts_max for hour in hours if hour.attempts_max is not None]
    delays_s = [hour.delay_p99_s for hour in hours if hour.delay_p99_s is not None]
    figures = (
        ("topics", show_number(len({hour.topic for hour in hours}))),
        ("messages", show_number(sum(hour.messages for hour in hours))),
        ("bytes of bodies", show_bytes(sum(hour.bytes for hour in hours))),
        ("duplicates", show_number(sum(hour.duplicates for hour in hours))),
        ("redelivered", show_number(sum(hour.redelivered for hour in hours))),
        ("most attempts", show_number(max(attempts, default=None))),
        ("highest p99 of delay", show_seconds(max(delays_s, default=None))),
    )
    tiles = "".join(f"<div><dt>{name}</dt><dd>{value}</dd></div>" for name, value in figures)
    return (
        f"<header>\n<h1>NSQ messages by topic and hour</h1>\n<p>{escape(span)} UTC, in {places}. "
        f"Made {now:%Y-%m-%d %H:%M} UTC.</p>\n<dl class=tiles>{tiles}</dl>\n</header>\n"
    )


def _section(topic: _Topic) -> str:
    name = escape(topic.name)
    step = pick_step(topic.hours)
    charts = [
        bar_chart("Messages", step, _points(topic, "messages"), COUNT),
        bar_chart("Bytes of bodies", step, _points(topic, "bytes"), BYTES),
    ]
    if any(hour.delay_p50_s is not None for hour in topic.hours):
        names = (("delay_p50_s", "p50"), ("delay_p95_s", "p95"), ("delay_p99_s", "p99"))
        lines = [Series(label, _points(topic, key)) for key, label in names]
        charts.append(line_chart("Ingestion delay", step, lines, SECONDS, is_log=True))
    if any(hour.redelivered or hour.duplicates for hour in topic.hours):
        lines = [Series(key, _points(topic, key)) for key in ("redelivered", "duplicates")]
        charts.append(line_chart("Came again", step, lines, COUNT, is_sum=True))
    cards = "".join(f"<figure>{chart}</figure>" for chart in charts)
    count = show_number(topic.messages)
    return (
        f"<section>\n<h2>{name}</h2>\n<p class=note>{count} messages; a step is {step.name}</p>\n"
        f"<div class=charts>{cards}</div>\n</section>\n"
    )


def _points(topic: _Topic, key: str) -> list[Point]:
    return [Point(hour.date, hour.hour, getattr(hour, key)) for hour in topic.hours]


_COLUMNS = (
    "topic", "hour (UTC)", "messages", "bytes", "largest body", "duplicates", "redelivered", "attempts, mean", "max",
    "delay p50", "p95", "p99", "max",
)  # fmt: skip


def _table(hours: Sequence[Hour]) -> str:
    heads = "".join(f"<th scope=col>{name}</th>" for name in _COLUMNS)
    rows = "".join(_row(hour) for hour in hours)
    return (
        "<section>\n<h2>All figures</h2>\n<p class=note>Duplicates are messages with the topic, id and timestamp_ns of "
        "another one. The delay is from publishing to the time when Spark wrote the message. – is what the messages "
        "do not say, as those loaded from archives of lines.</p>\n"
        f"<div class=scroll tabindex=0><table><thead><tr>{heads}</tr></thead>\n<tbody>\n{rows}</tbody></table></div>\n"
        "</section>\n"
    )


def _row(hour: Hour) -> str:
    mean = "–" if hour.attempts_mean is None else f"{hour.attempts_mean:.2f}"
    cells = (
        show_number(hour.messages),
        show_bytes(hour.bytes),
        show_bytes(hour.body_bytes_max),
        show_number(hour.duplicates),
        show_number(hour.redelivered),
        mean,
        show_number(hour.attempts_max),
        show_seconds(hour.delay_p50_s),
        show_seconds(hour.delay_p95_s),
        show_seconds(hour.delay_p99_s),
        show_seconds(hour.delay_max_s),
    )
    figures = "".join(f"<td>{cell}</td>" for cell in cells)
    return f"<tr><th scope=row>{escape(hour.topic)}</th><td>{hour.date} {hour.hour}</td>{figures}</tr>\n"
