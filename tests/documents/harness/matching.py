"""Whether a program printed what the page says, apart from what differs each time.

Moments, message ids, numbers of ten digits and more, numbers with a fraction, ports of clients and what asyncio says of
slow steps may differ; all else is compared. `...` stands for any text within a line, and as a line of its own for any
lines.
"""

from __future__ import annotations

import json
import re
from typing import Any

_DAY = r"(?:Mon|Tue|Wed|Thu|Fri|Sat|Sun)"
_MONTH = r"(?:Jan|Feb|Mar|Apr|May|Jun|Jul|Aug|Sep|Oct|Nov|Dec)"
_CLOCK = r"\d\d:\d\d:\d\d(?:[.,]\d+)?"
# In this order: a moment has numbers in it.
_DIFFERING = [
    (re.compile(rf"{_DAY}, \d\d {_MONTH} \d{{4}} {_CLOCK} GMT"), "<moment>"),
    (re.compile(rf"\d{{4}}[-/]\d\d[-/]\d\d[ T]{_CLOCK}(?:Z|[+-]\d\d:?\d\d)?"), "<moment>"),
    (re.compile(r"\b(?=\d*[a-f]?\d)[0-9a-f]{16}\b"), "<id>"),
    (re.compile(r"\b\d{10,}\b"), "<number>"),
    (re.compile(r"(?<![\d.])\d+\.\d+(?!\.?\d)"), "<fraction>"),
    # Linux gives connections ports from 32768 to 60999.
    (re.compile(r"(?<=:)(?:32(?:76[89]|7[7-9]\d|[89]\d\d)|(?:3[3-9]|[45]\d|60)\d{3})\b"), "<port>"),
]
# asyncio in debug mode, as in unittest's async tests, says so of what took over 100 ms.
_SLOW_STEP = re.compile(r"Executing <.*> took <fraction> seconds")
_LONG = 10**9


def find_difference(kind: str, expected: str, printed: str, *, is_ordered: bool = True) -> str:
    """What is not as expected, in a few lines; '' if all is."""
    if not is_ordered:
        expected, printed = ("\n".join(sorted(text.splitlines())) for text in (expected, printed))
    if kind == "json":
        try:
            wanted, found = json.loads(expected), json.loads(printed)
        except ValueError:
            pass
        else:
            return _compare_json(wanted, found, "$")
    return _compare_lines(expected, printed)


def _simplify(text: str) -> str:
    for pattern, name in _DIFFERING:
        text = pattern.sub(name, text)
    return text


def _compare_lines(expected: str, printed: str) -> str:
    wanted = [line.rstrip() for line in expected.strip("\n").splitlines()]
    lines = [line.rstrip() for line in printed.strip("\n").splitlines()]
    found = [line for line in lines if not _SLOW_STEP.fullmatch(_simplify(line))]
    pattern = "".join(
        r"(?:.*\n)*?" if line.strip() == "..." else f"{_line_pattern(line)}\n" for line in wanted
    )
    if re.fullmatch(pattern, "".join(f"{_simplify(line)}\n" for line in found)):
        return ""
    for number, line in enumerate(wanted):
        if line.strip() == "...":
            break
        if number >= len(found):
            return f"missing: {line}"
        if not re.fullmatch(_line_pattern(line), _simplify(found[number])):
            return f"expected: {line}\nprinted:  {found[number]}"
    return "there are other lines"


def _line_pattern(line: str) -> str:
    return ".*".join(re.escape(part) for part in _simplify(line).split("..."))


def _compare_json(wanted: Any, found: Any, where: str) -> str:
    """`"...": "..."` in an object allows more keys, `"..."` at the end of a list more elements."""
    if wanted == "...":
        return ""
    if isinstance(wanted, dict) and isinstance(found, dict):
        return _compare_objects(wanted, found, where)
    if isinstance(wanted, list) and isinstance(found, list):
        return _compare_lists(wanted, found, where)
    if _is_number(wanted) and _is_number(found):
        both_long = abs(wanted) >= _LONG and abs(found) >= _LONG
        is_same = wanted == found or both_long or {type(wanted), type(found)} == {float}
    elif isinstance(wanted, str) and isinstance(found, str):
        is_same = re.fullmatch(_line_pattern(wanted), _simplify(found), re.DOTALL) is not None
    else:
        is_same = wanted is found
    return "" if is_same else f"{where}: expected {wanted!r}, printed {found!r}"


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _compare_objects(wanted: dict[str, Any], found: dict[str, Any], where: str) -> str:
    keys = wanted.keys() - {"..."}
    if missing := sorted(keys - found.keys()):
        return f"{where}: no {', '.join(missing)}"
    if "..." not in wanted and (more := sorted(found.keys() - keys)):
        return f"{where}: also has {', '.join(more)}"
    for key in sorted(keys):
        if complaint := _compare_json(wanted[key], found[key], f"{where}.{key}"):
            return complaint
    return ""


def _compare_lists(wanted: list[Any], found: list[Any], where: str) -> str:
    if wanted and wanted[-1] == "...":
        wanted = wanted[:-1]
        found = found[: len(wanted)]
    if len(wanted) != len(found):
        return f"{where}: expected {len(wanted)} elements, there are {len(found)}"
    for number, (one, other) in enumerate(zip(wanted, found, strict=True)):
        if complaint := _compare_json(one, other, f"{where}[{number}]"):
            return complaint
    return ""
