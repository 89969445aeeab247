"""Formats numbers for people."""

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
