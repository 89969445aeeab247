"""The fenced blocks of a page, and the comments that belong to them."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

MARKS = ("not run", "any order", "terminal", "fails", "port", "needs", "run")
OUTPUTS = ("text", "console", "json")
RUN = ("sh", "python")
COMPILED = ("go", "js", "javascript", "ts", "typescript", "rust")

_FENCE = re.compile(r"^(?P<indent>[ \t]*)(?P<fence>`{3,}|~{3,})[ ]*(?P<kind>[\w+-]*)(?P<rest>.*)$")
_TITLE = re.compile(r"""title=(["'])(?P<title>.*?)\1""")
_HEADING = re.compile(r"^#{1,6} ")
_MARK = re.compile(rf"^\s*<!--\s*({'|'.join(MARKS)})\s*(?::\s*(.*?))?\s*-->\s*$", re.DOTALL)


class PageError(Exception):
    """The page itself is wrong: where, and what."""


@dataclass(frozen=True, slots=True)
class Block:
    """One block, or the commands of a `run` comment."""

    line: int
    kind: str
    text: str
    section: int  # headings before it
    title: str = ""
    marks: dict[str, str] = field(default_factory=dict)

    @property
    def terminal(self) -> str:
        return self.marks.get("terminal", "1")

    @property
    def is_run(self) -> bool:
        return self.kind in RUN and not self.title

    @property
    def is_output(self) -> bool:
        return self.kind in OUTPUTS and not self.title


def read_blocks(text: str) -> Iterator[Block]:
    """In their order; PageError says what cannot be read."""
    lines = text.splitlines()
    marks: dict[str, str] = {}
    section = number = 0
    while number < len(lines):
        line, start = lines[number], number
        number += 1
        if fence := _FENCE.match(line):
            number, body = _read_body(lines, number, fence)
            title = _TITLE.search(fence["rest"])
            yield Block(
                start + 1, fence["kind"], body, section, title["title"] if title else "", marks
            )
            marks = {}
        elif line.lstrip().startswith("<!--"):
            while "-->" not in lines[number - 1] and number < len(lines):
                number += 1
            mark = _MARK.match("\n".join(lines[start:number]))
            if mark and mark[1] == "run":
                yield Block(start + 1, "sh", (mark[2] or "") + "\n", section, marks=marks)
                marks = {}
            elif mark:
                marks[mark[1]] = mark[2] or ""
        elif line.strip():
            if marks:
                raise PageError(f"line {start}: a mark without a block")
            section += bool(_HEADING.match(line))
    if marks:
        raise PageError(f"line {number}: a mark without a block")


def _read_body(lines: list[str], number: int, fence: re.Match[str]) -> tuple[int, str]:
    """The line after the block, and its text without the indentation of its fence."""
    body = []
    indent = len(fence["indent"])
    for at in range(number, len(lines)):
        if lines[at].strip().startswith(fence["fence"]) and not lines[at].strip().strip("`~"):
            return at + 1, "".join(f"{line[indent:]}\n" for line in body)
        body.append(lines[at])
    raise PageError(f"line {number}: the block has no end")
