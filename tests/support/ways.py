"""The ways through the code that docs/ARCHITECTURE.md shows, and whether their steps lead to one another.

A way stands there under "Four ways": a title with the number of its modules, `### A PUB to its consumer: 14 modules`,
and below it a line for each step, `module:function  what it does`, where `module` is short for `nsqfast.module`.
"""

from __future__ import annotations

import ast
import re
from typing import TYPE_CHECKING, NamedTuple

from support import imports

if TYPE_CHECKING:
    from pathlib import Path

WAY = re.compile(r"^### (.+): (\d+) modules\n(?:(?!#| {4}).*\n)*((?: {4}.*\n)+)", re.MULTILINE)
STEP = re.compile(r"^ {4}([\w.]+):([\w.]+)", re.MULTILINE)


class Step(NamedTuple):
    module: str
    function: str


class Way(NamedTuple):
    count: int  # of modules, as the page says
    steps: list[Step]

    @property
    def modules(self) -> set[str]:
        return {step.module for step in self.steps}


def read_ways(text: str) -> dict[str, Way]:
    """Return the ways of the page by their titles."""
    _, _, chapter = text.partition("\n## Four ways\n")
    found = {}
    for title, count, lines in WAY.findall(re.split(r"\n## ", chapter)[0]):
        steps = [Step(f"nsqfast.{module}", function) for module, function in STEP.findall(lines)]
        assert len(steps) == len(lines.splitlines()), f"{title}: a line is no step"
        found[title] = Way(int(count), steps)
    return found


class Sources:
    """The files of each module (a .pyx has a .pxd, too), what they import and what they say."""

    def __init__(self) -> None:
        self._paths: dict[str, list[Path]] = {}
        for path in imports.list_package_sources():
            self._paths.setdefault(imports.name_package_and_module(path)[1], []).append(path)

    def find_wrong(self, way: Way) -> list[str]:
        """Return what is not true of a way."""
        wrong = []
        before: list[str] = []
        for module, function in way.steps:
            if module not in self._paths:
                wrong.append(f"{module} is no module")
                continue
            if not self._has(module, function):
                wrong.append(f"{module} has no {function}")
            if before and not any(self._leads(each, module, function) for each in before):
                wrong.append(f"nothing before leads to {module}")
            before.append(module)
        if len(way.modules) != way.count:
            wrong.append(f"crosses {len(way.modules)} modules, not {way.count}")
        return wrong

    def _texts(self, module: str) -> list[str]:
        return [path.read_text(encoding="utf-8") for path in self._paths[module]]

    def _has(self, module: str, name: str) -> bool:
        """Whether it defines `function`, or `Class.method`."""
        owner, _, last = name.rpartition(".")
        for path, text in zip(self._paths[module], self._texts(module), strict=True):
            if path.suffix == ".py":
                body: list[ast.stmt] = ast.parse(text).body
                for part in name.split("."):
                    body = next((n.body for n in body if getattr(n, "name", "") == part), [])
                if body:
                    return True
            elif re.search(rf"^ *(?:async )?c?p?def .*\b{last}\(", text, re.MULTILINE):
                return not owner or re.search(rf"class {owner}\b", text) is not None
        return False

    def _leads(self, before: str, module: str, function: str) -> bool:
        """Whether one of the two imports the other, or the one before calls the function."""
        if before == module or self._imports(before, module) or self._imports(module, before):
            return True
        call = re.compile(rf"\b{function.rpartition('.')[2]}\(")
        return any(call.search(text) for text in self._texts(before))

    def _imports(self, importer: str, module: str) -> bool:
        used = {name for path in self._paths[importer] for name in imports.read_imports(path)}
        return any(name == module or name.startswith(f"{module}.") for name in used)
