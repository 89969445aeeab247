"""The format of numbers, rates, sizes, durations and times for pages, /ui/live and problems; chips and links.

Unknown values are an en dash. Times are in the server's zone, and js/times.js shows them in the browser's; ages are
relative, so they need none.
"""

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import isfinite
from typing import Any, Literal, Self

from markupsafe import Markup, escape

UNKNOWN = "–"
STAMP = "%Y-%m-%d %H:%M:%S %Z"
COUNT_MAX = 10**10
RATE_MAX = 10**6
REASONS_MAX, REASON_SIZE_MAX = 8, 32  # of what nsqd says of messages that died
_SHORT = ((10**12, "T"), (10**9, "G"), (10**6, "M"))
_SIZES = ((1 << 40, "TiB"), (1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB"))
Piece = str | tuple[str, str, str]
_SPANS = ((86400, "d"), (3600, "h"), (60, "min"), (1, "s"))
Kind = Literal["ok", "warn", "crit", "info", "off"]


def count(number: int | None) -> str:
    """184,201; numbers with more than ten digits, for which tables have no room, are short: 88.1 G"""
    if number is None:
        return UNKNOWN
    return f"{number:,}" if abs(number) < COUNT_MAX else short(number)


def short(number: float | None) -> str:
    """For tiles: 184,201 and 1.84 M."""
    if number is None:
        return UNKNOWN
    if abs(number) < 10**6:
        return f"{number:,.0f}"
    # A number that would be rounded to 1,000 of a unit is 1 of the next.
    unit, letter = next((each for each in _SHORT if abs(number) >= 0.9995 * each[0]), _SHORT[-1])
    value = number / unit
    return f"{value:.3g} {letter}" if abs(value) < 999.5 else f"{value:,.0f} {letter}"


def rate(per_second: float | None) -> str:
    """0/s, 0.4/s, 4,021/s, 1.2 M/s"""
    if per_second is None:
        return UNKNOWN
    return f"{_rounded(per_second)}/s"


def mean(number: float | None) -> str:
    """0.4, 73, 1.2 M"""
    return UNKNOWN if number is None else _rounded(number)


def slope(per_second: float | None) -> str:
    """A rate with its sign: +1,240/s"""
    if per_second is None:
        return UNKNOWN
    sign = "+" if per_second > 0 and _rounded(per_second) != "0" else ""
    return f"{sign}{_rounded(per_second)}/s"


def _rounded(number: float) -> str:
    if abs(number) >= RATE_MAX:
        return short(number)
    shown = f"{number:.1f}" if abs(number) < 10 else f"{number:,.0f}"
    return "0" if shown in ("0.0", "-0.0") else shown.removesuffix(".0")


def size(size_bytes: int | None) -> str:
    """A size in units of 1024: 640 B, 12.5 MiB"""
    if size_bytes is None:
        return UNKNOWN
    for unit, name in _SIZES:
        if size_bytes >= unit:
            value = size_bytes / unit
            return f"{value:.3g} {name}" if value < 1000 else f"{value:.0f} {name}"
    return f"{size_bytes} B"


def share(ratio: float | None) -> str:
    return UNKNOWN if ratio is None else f"{ratio * 100:.3g} %"


def duration(seconds: float | None) -> str:
    """The two largest units: 42 s, 14 min, 3 h 12 min, 2 d 3 h"""
    if seconds is None:
        return UNKNOWN
    left = int(max(0.0, seconds))
    if 60 <= left < 3600:
        return f"{left // 60} min"
    for index, (unit, name) in enumerate(_SPANS):
        if left >= unit:
            main, rest = divmod(left, unit)
            lower = _SPANS[index + 1] if index + 1 < len(_SPANS) else None
            less = rest // lower[0] if lower else 0
            return f"{main} {name} {less} {lower[1]}" if less and lower else f"{main} {name}"
    return "0 s"


def short_time(seconds: float | None) -> str:
    """A time that is mostly below a second: 1.3 ms"""
    if seconds is None:
        return UNKNOWN
    ms = seconds * 1e3
    return f"{ms:.2g} ms" if ms < 10 else f"{ms:.0f} ms" if ms < 1000 else duration(seconds)


def within(ms: float | None) -> str:
    """An upper bound of a time, infinite above the last bound: `within 2.5 ms`"""
    if ms is None:
        return UNKNOWN
    return f"within {ms:g} ms" if isfinite(ms) else "longer than 10 s"


def at_most(seconds: float | None) -> str:
    """An upper bound of a delay: `at most 10 ms late`"""
    if seconds is None:
        return UNKNOWN
    return f"at most {seconds * 1e3:g} ms late" if isfinite(seconds) else "over 10 s late"


def age(seconds: float | None, *, is_minimum: bool = False) -> str:
    """A duration, with a sign in front if it is only a lower bound."""
    shown = duration(seconds)
    return f"≥ {shown}" if is_minimum and seconds is not None else shown


class Timed(str):
    """A text with times in it: `pieces` are texts, and of each time its `datetime`, text and title.

    A template writes these as elements, so it must not stand in an attribute; f"{timed}" is a text like any other.
    """

    __slots__ = ("pieces",)
    pieces: Sequence[Piece]

    def __new__(cls, *pieces: Piece) -> Self:
        made = super().__new__(cls, "".join(p if isinstance(p, str) else p[1] for p in pieces))
        parts = [each.pieces if isinstance(each, Timed) else (each,) for each in pieces]
        made.pieces = [piece for part in parts for piece in part if piece]
        return made

    def __html__(self) -> Markup:
        element = Markup('<time datetime="{0}" title="{2}">{1}</time>')
        return Markup().join(
            escape(piece) if isinstance(piece, str) else element.format(*piece)
            for piece in self.pieces
        )


def pieces_of(text: str) -> str | Sequence[Piece]:
    """The text for `/ui/live`, with what a script needs to show its times."""
    return text.pieces if isinstance(text, Timed) else text


def clock(unix: float | None) -> str:
    """A time of day: 11:24:03"""
    return _timed(unix, "%H:%M:%S")


def stamp(unix: float | None) -> str:
    """A date with its time: 2026-11-22 11:24:03 UTC"""
    return _timed(unix, STAMP)


def _timed(unix: float | None, form: str) -> str:
    if not unix:
        return UNKNOWN
    exact = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(unix))
    here = time.localtime(unix)
    return Timed((exact, time.strftime(form, here), time.strftime(STAMP, here)))


def deaths(counts: Mapping[str, int]) -> str:
    """How many messages died by reason, the most frequent first: 10 failed, 2 over limit"""
    most = sorted(counts.items(), key=lambda each: -each[1])[:REASONS_MAX]
    return ", ".join(
        f"{count(number)} {reason[:REASON_SIZE_MAX].replace('_', ' ')}" for reason, number in most
    )


def count_with_noun(number: int, one: str, many: str = "") -> str:
    """A number with its noun: 1 node, 2 nodes"""
    return f"{number:,} {one if number == 1 else many or one + 's'}"


@dataclass(frozen=True, slots=True)
class State:
    """A chip: `kind` determines shape and colour, and `word` says the same."""

    kind: Kind
    word: str
    title: str = ""

    def to_json(self) -> dict[str, Any]:
        return {"kind": self.kind, "word": pieces_of(self.word), "title": self.title}


@dataclass(frozen=True, slots=True)
class Link:
    """A crumb, a tab, a filter; `count` is the key in View.texts of a number after the text."""

    text: str
    href: str
    is_current: bool = False
    count: str = ""
