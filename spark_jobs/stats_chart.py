"""Charts over time as SVG, drawn for a card of 300 units, so that text is as large on a phone as on a screen."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from html import escape
from itertools import pairwise

from nsqfast.spark_jobs.stats_figures import Hour
from nsqfast.spark_jobs.units import Unit

WIDTH, HEIGHT = 300, 160
LEFT, RIGHT, TOP, BOTTOM = 54, 8, 8, 22
STEPS_MAX = 96
HOUR_S = 3600
LABEL_WIDTH = 80
GRID_LINES = 4
CORNER = 1.5

LOG_TICKS_S = (
    0.001,
    0.01,
    0.1,
    1,
    10,
    60,
    600,
    3600,
    36_000,
    86_400,
    864_000,
    8_640_000,
    86_400_000,
)


@dataclass(frozen=True, slots=True)
class Step:
    """A step of the time axis: `first` and `last` are numbers of steps since 1970."""

    name: str
    size_s: int
    first: int
    last: int

    @property
    def count(self) -> int:
        """How many there are from the first to the last."""
        return self.last - self.first + 1

    def time(self, number: int) -> datetime:
        """When it begins."""
        return datetime.fromtimestamp(number * self.size_s, UTC)

    def show(self, number: int) -> str:
        """Format it for a tooltip: to the hour if a step is less than a day."""
        return (
            f"{self.time(number):%Y-%m-%d %H:%M}"
            if self.size_s < 24 * HOUR_S
            else f"{self.time(number):%Y-%m-%d}"
        )


_STEPS = (
    ("an hour", HOUR_S),
    ("6 hours", 6 * HOUR_S),
    ("a day", 24 * HOUR_S),
    ("a week", 7 * 24 * HOUR_S),
    ("30 days", 30 * 24 * HOUR_S),
    ("a year", 365 * 24 * HOUR_S),
)


@dataclass(frozen=True, slots=True)
class Point:
    """A figure of an hour; None: there is none."""

    date: str
    hour: str
    value: float | None

    @property
    def time_s(self) -> int:
        """Since 1970."""
        return _time_s(self.date, self.hour)


@dataclass(frozen=True, slots=True)
class Series:
    """A line."""

    name: str
    points: Sequence[Point]


def _time_s(date: str, hour: str) -> int:
    return int(datetime.fromisoformat(f"{date}T{hour}:00:00+00:00").timestamp())


def pick_step(hours: Sequence[Hour]) -> Step:
    """Return the smallest with at most STEPS_MAX points, or else the largest."""
    times_s = [_time_s(hour.date, hour.hour) for hour in hours]
    first_s, last_s = min(times_s), max(times_s)
    found = [Step(name, size, first_s // size, last_s // size) for name, size in _STEPS]
    return next((step for step in found if step.count <= STEPS_MAX), found[-1])


def bar_chart(title: str, step: Step, points: Sequence[Point], unit: Unit) -> str:
    """Draw the sum of each step."""
    values = _by_step(step, points, is_sum=True)
    scale = _Scale(step, max(values.values(), default=0), unit)
    width = scale.step_width * (0.8 if step.count <= STEPS_MAX // 2 else 0.9)
    bars = []
    for number, value in sorted(values.items()):
        top = scale.y(value)
        bars.append(
            f'<rect class="bar" x="{scale.x(number) - width / 2:.1f}" y="{top:.1f}" width="{width:.1f}" '
            f'height="{max(0.0, scale.base - top):.1f}" rx="{min(CORNER, width / 4):.1f}">'
            f"<title>{_tip(step, number, unit.show(value))}</title></rect>"
        )
    return f"<figcaption>{escape(title)}</figcaption>{scale.draw(title, ''.join(bars))}"


def line_chart(
    title: str,
    step: Step,
    lines: Sequence[Series],
    unit: Unit,
    *,
    is_sum: bool = False,
    is_log: bool = False,
) -> str:
    """Draw the highest hour of each step, or the sum. A step without a figure interrupts the line."""
    found = [_by_step(step, line.points, is_sum=is_sum) for line in lines]
    values = [value for one in found for value in one.values()]
    scale = _LogScale(step, values, unit) if is_log else _Scale(step, max(values, default=0), unit)
    legend = "".join(
        f'<span><i class="s{number}"></i>{escape(line.name)}</span>'
        for number, line in enumerate(lines)
    )
    # The first line is drawn on top.
    drawn = "".join(
        _line(scale, step, number, line.name, values, unit)
        for number, (line, values) in reversed(list(enumerate(zip(lines, found, strict=True))))
    )
    return f"<figcaption>{escape(title)}{legend}</figcaption>{scale.draw(title, drawn)}"


def _line(
    scale: "_Scale", step: Step, number: int, name: str, values: dict[int, float], unit: Unit
) -> str:
    parts = []
    places = sorted(values)
    run: list[int] = places[:1]
    for before, place in pairwise(places):
        if place != before + 1:
            parts.append(run)
            run = []
        run.append(place)
    parts.append(run)
    lines = "".join(
        f'<polyline class="s{number}" points="'
        + " ".join(f"{scale.x(place):.1f},{scale.y(values[place]):.1f}" for place in part)
        + '"/>'
        for part in parts
        if len(part) > 1
    )
    radius = 2.5 if step.count <= STEPS_MAX // 2 else 1.8
    dots = "".join(
        f'<circle class="s{number}" cx="{scale.x(place):.1f}" cy="{scale.y(values[place]):.1f}" r="{radius}">'
        f"<title>{_tip(step, place, f'{name} {unit.show(values[place])}')}</title></circle>"
        for place in places
    )
    return lines + dots


def _tip(step: Step, number: int, text: str) -> str:
    return escape(f"{step.show(number)}: {text}")


def _by_step(step: Step, points: Sequence[Point], *, is_sum: bool) -> dict[int, float]:
    found: dict[int, float] = {}
    for point in points:
        if point.value is None:
            continue
        number = point.time_s // step.size_s
        before = found.get(number)
        if before is None:
            found[number] = point.value
        else:
            found[number] = before + point.value if is_sum else max(before, point.value)
    return found


class _Scale:
    """Maps steps and values to positions; draws the axes."""

    def __init__(self, step: Step, highest: float, unit: Unit) -> None:
        self._step = step
        self._show = unit.show_tick
        self._tick = unit.pick_tick(highest / GRID_LINES)
        self._top = self._tick * max(1, math.ceil(highest / self._tick - 1e-9))
        self.base = HEIGHT - BOTTOM
        self.step_width = (WIDTH - LEFT - RIGHT) / step.count

    def x(self, number: int) -> float:
        """The middle of a step."""
        return LEFT + (number - self._step.first + 0.5) * self.step_width

    def y(self, value: float) -> float:
        """A negative value, from clocks that differ, is drawn at zero."""
        return self.base - max(0.0, value) / self._top * (self.base - TOP)

    def draw(self, title: str, inner: str) -> str:
        """Return the whole chart."""
        return (
            f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{escape(title)}">'
            f"{self._values()}{self._times()}{inner}</svg>"
        )

    def _values(self) -> str:
        parts = []
        for value in self._ticks():
            y = self.y(value)
            parts.append(
                f'<line class="grid" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y:.1f}" y2="{y:.1f}"/>'
                f'<text x="{LEFT - 6}" y="{y + 4:.1f}" text-anchor="end">{escape(self._show(value))}</text>'
            )
        return "".join(parts)

    def _ticks(self) -> list[float]:
        return [number * self._tick for number in range(round(self._top / self._tick) + 1)]

    def _times(self) -> str:
        """As many labels as fit; with the day where it changes."""
        step = self._step
        every = max(1, math.ceil(LABEL_WIDTH / self.step_width))
        is_hourly = step.size_s < 24 * HOUR_S
        half = LABEL_WIDTH / 2 - 6
        parts = []
        day, end = "", 0.0
        for number in range(step.first, step.last + 1, every):
            x = min(max(self.x(number), half + 4), WIDTH - half)
            if x - half < end:
                continue
            end = x + half
            time = step.time(number)
            text = f"{time:%m-%d %H:%M}" if is_hourly else f"{time:%Y-%m-%d}"
            if is_hourly and text[:5] == day:
                text = text[6:]
            day = f"{time:%m-%d}"
            parts.append(f'<text x="{x:.1f}" y="{HEIGHT - 6}" text-anchor="middle">{text}</text>')
        return "".join(parts)


class _LogScale(_Scale):
    """From common to rare values: a delay is a few milliseconds, or hours."""

    def __init__(self, step: Step, values: Sequence[float], unit: Unit) -> None:
        super().__init__(step, max(values, default=0), unit)
        low, high = max(min(values, default=0), LOG_TICKS_S[0]), max(values, default=0)
        first = max((number for number, tick in enumerate(LOG_TICKS_S) if tick <= low), default=0)
        last = next((number for number, tick in enumerate(LOG_TICKS_S) if tick >= high), -1)
        self._log_ticks = LOG_TICKS_S[first : last + 1 or None]
        if len(self._log_ticks) < 2:
            self._log_ticks = LOG_TICKS_S[first : first + 2]

    def y(self, value: float) -> float:
        low, high = math.log(self._log_ticks[0]), math.log(self._log_ticks[-1])
        share = (math.log(max(value, self._log_ticks[0])) - low) / (high - low)
        return self.base - min(1.0, share) * (self.base - TOP)

    def _ticks(self) -> list[float]:
        return list(self._log_ticks)
