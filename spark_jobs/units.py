"""Formats numbers for people."""

import math
from collections.abc import Callable
from itertools import pairwise
from typing import NamedTuple

NOTHING = "–"
KIB = 1024
UNITS = ("B", "KiB", "MiB", "GiB", "TiB", "PiB")
MINUTE_S, HOUR_S, DAY_S = 60, 3600, 86_400


def show_number(number: float | None) -> str:
    """With commas."""
    return NOTHING if number is None else f"{number:,.0f}"


def _short(number: float) -> str:
    """With one decimal place, if that is not zero."""
    return f"{number:.1f}".removesuffix(".0")


def show_bytes(size: float) -> str:
    """1536 is 1.5 KiB."""
    unit = 0
    while size >= KIB and unit < len(UNITS) - 1:
        size /= KIB
        unit += 1
    return f"{size:,.0f} B" if unit == 0 else f"{_short(size)} {UNITS[unit]}"


def show_seconds(time_s: float | None) -> str:
    """In a suitable unit; a negative time means that two clocks differ."""
    if time_s is None:
        return NOTHING
    size = abs(time_s)
    if size < 1:
        return f"{time_s * 1000:.0f} ms"
    if size < MINUTE_S:
        return f"{_short(time_s)} s"
    if size < HOUR_S:
        return f"{_short(time_s / MINUTE_S)} min"
    if size < DAY_S:
        return f"{_short(time_s / HOUR_S)} h"
    return f"{_short(time_s / DAY_S)} d"


def show_short(number: float) -> str:
    """1500000 is 1.5M, for an axis."""
    for size, letter in ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e4, "k")):
        if abs(number) >= size:
            scale = 1e3 if letter == "k" else size
            return f"{number / scale:g}{letter}"
    return f"{number:,.0f}"


class Unit(NamedTuple):
    """How to show a figure, and what to write at an axis."""

    show: Callable[[float], str]
    show_tick: Callable[[float], str]
    bases: tuple[float, ...]  # ticks are 1, 2 or 5 times a power of ten of one of these
    least: float  # the smallest distance of two ticks

    def pick_tick(self, value: float) -> float:
        """Return the smallest distance that is not below it."""
        # Division may yield slightly more than the exact value.
        value = max(value, self.least) * (1 - 1e-9)
        for base, following in pairwise((*self.bases, math.inf)):
            power = 10.0 ** math.floor(math.log10(value / base))
            found = next(
                base * power * factor for factor in (1, 2, 5, 10) if base * power * factor >= value
            )
            # Not 1000 bytes, where 1024 have a name.
            if base <= found < following * 0.9:
                return found
            if value <= base:
                return min(found, base)
        raise AssertionError(value)


COUNT = Unit(show_number, show_short, (1,), 1)
BYTES = Unit(show_bytes, show_bytes, tuple(float(KIB**power) for power in range(len(UNITS))), 1)
SECONDS = Unit(show_seconds, show_seconds, (1, MINUTE_S, HOUR_S, DAY_S), 0.001)
