"""Numbers, spans and times of day in the evidence of problems."""

import time


def number(value: float) -> str:
    """184,201; below ten with a decimal place, if it has one."""
    if value != int(value) and abs(value) < 10:
        return f"{value:.1f}"
    return f"{value:,.0f}"


def count(value: int, noun: str) -> str:
    """ "1 message", "184,201 messages"."""
    return f"{value:,} {noun}" if value == 1 else f"{value:,} {noun}s"


def printable(text: str, size_max: int = 64) -> str:
    """What a peer says of itself, for a line of text."""
    return "".join(each for each in text[:size_max] if each.isprintable())


def waiting(depth: int) -> str:
    """ "1 message waits", "184,201 messages wait"."""
    return count(depth, "message") + (" waits" if depth == 1 else " wait")


def percent(share: float) -> str:
    """ "37 %"."""
    return f"{share:.0%}".replace("%", " %")


def span(seconds: float) -> str:
    """ "45 s", "14 min", "3 h 12 min", "2 d 4 h"."""
    whole = max(0, int(seconds))
    if whole < 120:
        return f"{whole} s"
    minutes = whole // 60
    if minutes < 120:
        return f"{minutes} min"
    hours, minutes = divmod(minutes, 60)
    if hours < 48:
        return f"{hours} h {minutes} min" if minutes else f"{hours} h"
    days, hours = divmod(hours, 24)
    return f"{days} d {hours} h" if hours else f"{days} d"


def clock(at: float, now: float) -> str:
    """ "11:12 UTC", with the date if it is not today's."""
    then, today = time.gmtime(at), time.gmtime(now)
    if then[:3] == today[:3]:
        return time.strftime("%H:%M UTC", then)
    return time.strftime("%Y-%m-%d %H:%M UTC", then)


def size(value: float) -> str:
    """ "41.2 GiB"."""
    for unit in ("B", "KiB", "MiB", "GiB"):
        if value < 1024:
            return f"{value:.0f} B" if unit == "B" else f"{value:.1f} {unit}"
        value /= 1024
    return f"{value:.1f} TiB"
