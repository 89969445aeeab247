"""Read topic and time from a file's name, using the formats with which nsq_to_file made it.

<TOPIC>.<HOST><REV>.<DATETIME>.log  with  %Y-%m-%d_%H

events.web1-000002.2026-11-22_08.log.gz     topic events, from 08:00 to 09:00
"""

import re
import zoneinfo
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, tzinfo
from pathlib import PurePath

from nsqfast.errors import OptionsError

FILENAME_FORMAT = "<TOPIC>.<HOST><REV>.<DATETIME>.log"
DATETIME_FORMAT = "%Y-%m-%d_%H"
NS_PER_S = 1_000_000_000
DAY_S = 86_400

_TOKENS = {
    "<TOPIC>": r"(?P<topic>[.a-zA-Z0-9_-]{1,64}(?:\#ephemeral)?)",
    "<HOST>": r"[^/]*?",
    "<REV>": r"(?:-[0-9]{6,})?",
    "<PID>": r"[0-9]+",
}
_CODES = {
    **dict.fromkeys("mdHIMSy", "[0-9]{2}"),
    **dict.fromkeys("BbAa", "[A-Za-z]+"),
    "Y": "[0-9]{4}",
    "p": "[AaPp][Mm]",
    "Z": "[A-Za-z]+",
    "z": "[+-][0-9]{4}",
    "%": "%",
}
# The span that a name leaves open, given by its finest code. Months and years have their longest length.
_SPANS_S = {"S": 1, "M": 60, "H": 3600, "I": 3600, "d": DAY_S, "m": 31 * DAY_S, "Y": 366 * DAY_S}
_SPANS_S |= {"B": _SPANS_S["m"], "b": _SPANS_S["m"], "y": _SPANS_S["Y"]}
# nsq_to_file appends these to a name; the first ones replace its .log.
_ENDINGS = re.compile(r"(?:\.(?:jsonl|ndjson|json|parquet|arrow|feather|ipc|rows|gz|zst|zstd))*$")
_PLAIN = (".log", ".txt", ".lines")


@dataclass(frozen=True, slots=True)
class NameFacts:
    """None: the name does not tell. The archiver's clock was at `begin_ns` or later, and before `end_ns`."""

    topic: str | None = None
    begin_ns: int | None = None
    end_ns: int | None = None


class FileNames:
    """Reads names of one format; `zone` is that of the archiver's clock: UTC, local, or one such as Europe/Berlin."""

    def __init__(
        self,
        filename_format: str = FILENAME_FORMAT,
        datetime_format: str = DATETIME_FORMAT,
        zone: str = "UTC",
    ) -> None:
        self._datetime_format = datetime_format
        self._zone = read_zone(zone)
        self._depth = filename_format.count("/") + 1
        bare = _ENDINGS.sub("", filename_format)
        self._plain = next((ending for ending in _PLAIN if bare.endswith(ending)), "")
        self._pattern = _pattern(bare.removesuffix(self._plain), datetime_format)
        codes = re.findall("%(.)", datetime_format)
        spans = [_SPANS_S[code] for code in codes if code in _SPANS_S]
        self._span_ns = min(spans) * NS_PER_S if spans else 0

    def read(self, path: str) -> NameFacts:
        """Read this name."""
        tail = "/".join(PurePath(path).parts[-self._depth :])
        bare = _ENDINGS.sub("", tail).removesuffix(self._plain)
        found = self._pattern.fullmatch(bare)
        if found is None:
            return NameFacts()
        groups = found.groupdict()
        topic, text = groups.get("topic"), groups.get("datetime")
        begin_ns = self._time_ns(text) if text and self._span_ns else None
        return NameFacts(topic, begin_ns, None if begin_ns is None else begin_ns + self._span_ns)

    def _time_ns(self, text: str) -> int | None:
        try:
            time = datetime.strptime(text, self._datetime_format)  # noqa: DTZ007 - the zone comes next
            if time.tzinfo is None:
                time = time.replace(tzinfo=self._zone) if self._zone else time.astimezone()
            return int(time.timestamp()) * NS_PER_S
        except (ValueError, OverflowError):
            return None


def read_zone(name: str) -> tzinfo | None:
    """None: that of this machine. OptionsError: no zone has that name."""
    if name == "local":
        return None
    if name == "UTC":
        return UTC
    try:
        return zoneinfo.ZoneInfo(name)
    except (zoneinfo.ZoneInfoNotFoundError, ValueError, OSError):
        raise OptionsError(
            f"{name!r} is no time zone; say UTC, local, or as Europe/Berlin"
        ) from None


def _pattern(filename_format: str, datetime_format: str) -> re.Pattern[str]:
    seen: set[str] = set()

    def replace(found: re.Match[str]) -> str:
        word = found[0]
        if word == "<DATETIME>" and word not in seen:
            seen.add(word)
            return f"(?P<datetime>{_datetime_pattern(datetime_format)})"
        if word == "<TOPIC>" and word in seen:
            return "(?P=topic)"
        seen.add(word)
        if word == "<DATETIME>":
            return "(?P=datetime)"
        return _TOKENS.get(word) or re.escape(word)

    body = _substitute(r"<TOPIC>|<HOST>|<REV>|<PID>|<DATETIME>", filename_format, replace)
    return re.compile(body)


def _datetime_pattern(text: str) -> str:
    return _substitute("%.", text, lambda found: _CODES.get(found[0][1]) or re.escape(found[0]))


def _substitute(pattern: str, text: str, replace: Callable[[re.Match[str]], str]) -> str:
    """Replace the matches of the pattern with `replace`, and escape everything else for a regular expression."""
    parts, end = [], 0
    for found in re.finditer(pattern, text):
        parts += [re.escape(text[end : found.start()]), replace(found)]
        end = found.end()
    return "".join([*parts, re.escape(text[end:])])
