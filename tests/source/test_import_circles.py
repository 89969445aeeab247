"""No modules import each other in a cycle, not even for types or inside functions."""

from collections.abc import Iterable, Mapping
from pathlib import Path

import pytest

from support.imports import (
    ROOT,
    Import,
    list_package_sources,
    name_package_and_module,
    read_cython_imports,
    read_imports,
    read_python_imports,
)

Graph = Mapping[str, set[str]]  # a module, and those that it imports
Cycle = frozenset[str]


def read_graph(paths: Iterable[Path]) -> Graph:
    """Return the imports among these files; a .pyx and its .pxd are one module."""
    imports: dict[str, list[Import]] = {}
    for path in paths:
        imports.setdefault(name_package_and_module(path)[1], []).extend(read_imports(path))
    return make_graph(imports)


def make_graph(imports: Mapping[str, Iterable[Import]]) -> Graph:
    """Return which of the modules each of them imports; leave out all others, and the module itself."""
    graph = {}
    for importer, statements in imports.items():
        # A name that is imported from a package may be a module of its own.
        targets = {
            f"{module}.{name}" if f"{module}.{name}" in imports else module
            for module, names in statements
            for name in names or [""]
        }
        graph[importer] = (targets & imports.keys()) - {importer}
    return graph


def find_reachable(graph: Graph, start: str) -> set[str]:
    """Return what a module imports, directly or through others; that includes itself if it is part of a cycle."""
    reachable: set[str] = set()
    waiting = [start]
    while waiting:
        new = graph[waiting.pop()] - reachable
        reachable |= new
        waiting += new
    return reachable


def find_cycles(graph: Graph) -> set[Cycle]:
    """Return the strongly connected components of more than one module."""
    reachable = {module: find_reachable(graph, module) for module in graph}
    return {
        frozenset(other for other in reachable[module] if module in reachable[other])
        for module in graph
        if module in reachable[module]
    }


def describe(graph: Graph, cycle: Cycle) -> str:
    """Return the imports that make the cycle, a line for each module."""
    return "\n".join(
        f"    {module} imports {', '.join(sorted(graph[module] & cycle))}"
        for module in sorted(cycle)
    )


@pytest.mark.slow
def test_no_module_is_part_of_a_cycle():
    graph = read_graph([*list_package_sources(), *(ROOT / "benchmarks").rglob("*.py")])
    cycles = find_cycles(graph)
    assert not cycles, "\n\n".join(describe(graph, cycle) for cycle in cycles)


@pytest.mark.parametrize(
    ("edges", "expected"),
    [
        ("", []),
        ("ab bc ac", []),
        ("ab ac bd cd", []),
        ("ab ba", ["ab"]),
        ("ab bc ca", ["abc"]),
        (
            "xa ab ba by",
            ["ab"],
        ),  # x imports the cycle, the cycle imports y
        ("ab ba cd dc", ["ab", "cd"]),
        ("ab ba bc cd dc", ["ab", "cd"]),  # the first imports the second
        ("ab ba bc cb", ["abc"]),  # both have b, so they are one component
        ("ab bc cd da ac", ["abcd"]),
    ],
)
def test_finds_cycles(edges, expected):
    graph = {module: set() for module in "abcdxy"}
    for importer, imported in edges.split():
        graph[importer].add(imported)
    assert find_cycles(graph) == {frozenset(cycle) for cycle in expected}


@pytest.mark.parametrize(
    "text",
    [
        "import p.b",
        "import p.b as other",
        "from p import b",
        "from p.b import Thing",
        "from . import b",
        "from .b import Thing",
        "if TYPE_CHECKING:\n    from p.b import Thing",
        "def f():\n    from p.b import Thing",
        "class A:\n    def f(self):\n        import p.b",
    ],
)
def test_finds_imports_of_python(text):
    imports = {"p": [], "p.a": read_python_imports(text, "p"), "p.b": []}
    assert make_graph(imports)["p.a"] == {"p.b"}


@pytest.mark.parametrize(
    "text",
    [
        "from p.b cimport Thing, other",
        "from p cimport b",
        "cimport p.b as other",
        "from p.b import (\n    Thing,\n    other,\n)",
        "cdef f():\n    from p.b import Thing",
    ],
)
def test_finds_imports_of_cython(text):
    imports = {"p.a": read_cython_imports(text), "p.b": []}
    assert make_graph(imports)["p.a"] == {"p.b"}


def test_other_modules_and_the_module_itself_are_left_out():
    imports = {"p.a": read_python_imports("import os\nimport p.a\nfrom p import a, c", "p")}
    assert make_graph(imports) == {"p.a": set()}


def test_describes_a_cycle():
    graph = {"a": {"b", "c"}, "b": {"a"}, "c": set()}
    assert describe(graph, frozenset("ab")) == "    a imports b\n    b imports a"
