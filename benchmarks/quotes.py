"""Fills in the tables that documents quote from benchmarks/results, so that no figure is copied by hand.

A document says what it wants, and this writes what stands between the two comments:

    <!-- quote: REPORT.md
    section: Throughput, messages per second
    columns: scenario | nsqfast | Go nsqd | ratio
    rows: MPUB 200 × 200 B, 2 connections | disk only, in
    only: load by = nsqfast-bench
    -->
    <!-- end of quote -->

`section` is a heading of the report (without it: its first table); a section that holds a list is quoted as it is.
`columns` and `rows` say how their texts begin, and all are taken where the line is missing; `only` keeps rows with that
cell.
The spread of the rounds, in brackets behind a median, is left out.

    python benchmarks/quotes.py          # after the reports have changed
"""

import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

T = TypeVar("T")

ROOT = Path(__file__).resolve().parents[1]
RESULTS = ROOT / "benchmarks" / "results"
PAGES = (ROOT / "docs" / "performance.md",)
QUOTE = re.compile(
    r"(<!-- quote: (?P<file>\S+)\n(?P<wishes>.*?)-->\n)(?P<quoted>.*?)(<!-- end of quote -->)",
    re.DOTALL,
)
_SPREAD = re.compile(r" \([^()–]*–[^()]*\)")


def fill_in(text: str) -> str:
    """The document with its quotes as the reports have them now."""
    return QUOTE.sub(lambda found: f"{found[1]}\n{_quote(found)}\n{found[5]}", text)


def _quote(found: re.Match[str]) -> str:
    wishes = dict(line.split(": ", 1) for line in found["wishes"].splitlines())
    lines = _section((RESULTS / found["file"]).read_text(encoding="utf-8"), wishes.get("section"))
    table = [_cells(line) for line in lines if line.startswith("|")]
    if not table:
        return "\n".join(line for line in lines if line.startswith("- ")) + "\n"
    header, rule, *rows = table
    if "only" in wishes:
        name, value = wishes["only"].split(" = ")
        rows = [row for row in rows if row[header.index(name)] == value]
    if "rows" in wishes:
        rows = [_find(rows, name, lambda row: row[0]) for name in wishes["rows"].split(" | ")]
    columns = list(range(len(header)))
    if "columns" in wishes:
        columns = [_find(columns, name, header.__getitem__) for name in _names(wishes["columns"])]
    chosen = [[row[column] for column in columns] for row in (header, rule, *rows)]
    return "".join(f"| {' | '.join(row)} |\n" for row in chosen)


def _section(text: str, name: str | None) -> list[str]:
    """The lines of the first table or list below that heading."""
    if name is not None:
        _, found, text = text.partition(f"\n## {name}\n")
        if not found:
            raise ValueError(f"no section {name!r}")
        text = text.partition("\n## ")[0]
    lines = text.splitlines()
    start = next(number for number, line in enumerate(lines) if line.startswith(("|", "- ")))
    end = next((number for number in range(start, len(lines)) if not lines[number]), len(lines))
    return lines[start:end]


def _cells(line: str) -> list[str]:
    return [_SPREAD.sub("", cell.strip()) for cell in line.strip().strip("|").split("|")]


def _names(wish: str) -> list[str]:
    return [name.strip() for name in wish.split("|")]


def _find(things: list[T], name: str, text_of: Callable[[T], str]) -> T:
    """The first one whose text is that, or otherwise begins so."""
    for is_it in (str.__eq__, str.startswith):
        for thing in things:
            if is_it(text_of(thing), name):
                return thing
    raise ValueError(f"there is no {name!r}")


def main() -> int:
    """Rewrite the documents."""
    for path in PAGES:
        text = path.read_text(encoding="utf-8")
        path.write_text(fill_in(text), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
