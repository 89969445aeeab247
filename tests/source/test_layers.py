"""Imports point one way: along docs/ARCHITECTURE.md from package to package, and nowhere in a circle."""

import re
from collections import Counter
from graphlib import CycleError, TopologicalSorter

import pytest

from support import imports
from support.imports import ROOT

# Rooms of a broker. What stands in those above has names of plain words, such as Next and Loop; no broker has it.
ROOMS = ("core", "commitlog", "protocol", "storage", "broker", "server")
# What others may know of the room `storage`; the rest of it is an engine's own.
CONTRACT = {
    f"nsqfast._ext.storage.{name}" for name in ("engine", "engines", "scan", "disposal", "health")
}
# Modules of fewer lines that only one other imports are part of that one, except these.
SHORT_LINES = 40
INTERFACES = {
    "nsqfast._ext.storage.engines": "the one place that knows every engine, so that the broker knows none",
    "nsqfast.nsqd.embedded_server": "imported late: who uses nsqfast.embedded is told first which packages are missing",
    "nsqfast.testing.cases": "imported late, as unittest is",
}
CLASS = re.compile(r"^cdef class (\w+)", re.MULTILINE)
UNTYPED = re.compile(
    r"^    cdef (?:public |readonly )?(list|dict|set|tuple|object) (\w+) *(#.*)?$", re.MULTILINE
)
NO_CODE = re.compile(r'"""[\s\S]*?"""|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])*\'|#.*')


def read_order():
    """The packages of the map's first block: a line has what they are in, then their names."""
    text = (ROOT / "docs" / "ARCHITECTURE.md").read_text(encoding="utf-8")
    lines = re.search(r"(?:^ {4}.*\n)+", text, re.MULTILINE)[0].splitlines()
    return [f"{parent}.{name}" for parent, *names in map(str.split, lines) for name in names]


def make_graph(used):
    """Which of these modules each of them imports."""
    graph = {}
    for importer, names in used.items():
        targets = {name if name in used else name.rpartition(".")[0] for name in names}
        graph[importer] = (targets & used.keys()) - {importer}
    return graph


def name_package(module):
    """nsqfast.net, or nsqfast._ext.core; nsqfast.errors for a module that stands in none."""
    return ".".join(module.split(".")[: 3 if module.startswith("nsqfast._ext.") else 2])


def find_upward(graph, order):
    """What a package reaches above it: directly, or through modules that stand in none."""
    places = {
        name: order.index(name_package(name)) for name in graph if name_package(name) in order
    }
    found = []
    for module, place in places.items():
        reached, waiting = set(), [module]
        while waiting:
            new = graph[waiting.pop()] - reached
            reached |= new
            waiting += new - places.keys()
        found += [f"{module}: {name}" for name in sorted(reached) if places.get(name, -1) > place]
    return found


def join_packages(graph, parent):
    """Which of the packages inside this one imports from which, directly; its own modules are in none of them."""
    inside, joined = re.compile(rf"{re.escape(parent)}\.(\w+)\."), {}
    for module, targets in graph.items():
        if own := inside.match(module):
            found = {other[1] for name in targets if (other := inside.match(name))}
            joined.setdefault(own[1], set()).update(found - {own[1]})
    return joined


def find_short(graph, lines):
    """Modules of fewer than SHORT_LINES that exactly one other imports; a package holds more than its own lines."""
    importers = {name: [each for each in graph if name in graph[each]] for name in graph}
    packages = {name.rpartition(".")[0] for name in graph}
    return {
        name
        for name, found in importers.items()
        if len(found) == 1 and lines[name] < SHORT_LINES and name not in packages
    }


def find_types(text, types):
    """Which of these the code names, or an untyped field: it says in its name or its comment what it holds."""
    fields = " ".join(f"{name} {comment}" for _, name, comment in UNTYPED.findall(text))
    said = set(re.findall(r"[a-z]+", fields.lower()))
    code = set(re.findall(r"\w+", NO_CODE.sub("", text)))
    return {name for name in types if name in code or said & {name.lower(), f"{name.lower()}s"}}


@pytest.fixture(scope="module")
def graph():
    """A .pyx, its .pxd and its .pyi are one module."""
    used = {}
    others = [*ROOT.glob("_ext/**/*.pyi"), *(ROOT / "benchmarks").rglob("*.py")]
    for path in [*imports.list_package_sources(), *others]:
        _, module = imports.name_package_and_module(path)
        used.setdefault(module, set()).update(imports.read_imports(path))
    return make_graph(used)


def test_packages_import_what_stands_before_them(graph):
    assert find_upward(graph, read_order()) == []
    inside = [name for name in graph if name.startswith("nsqfast.") and name.count(".") > 1]
    assert sorted({name_package(name) for name in inside}) == sorted(read_order())
    # The package itself stands above all, although Python runs it first.
    own = [name for name in graph if name.startswith("nsqfast.")]
    assert [name for name in own if "nsqfast" in graph[name]] == []


def test_no_engine_is_known_above_the_contract(graph):
    found = [
        f"{module}: {name}"
        for module, names in graph.items()
        if module.startswith("nsqfast.")
        and not module.startswith(("nsqfast._ext.storage", "nsqfast._ext.dev"))
        for name in names
        if name.startswith("nsqfast._ext.storage.") and name not in CONTRACT
    ]
    assert found == []
    assert graph.keys() >= CONTRACT
    engines = "nsqfast._ext.storage.engines"
    assert [name for name, names in graph.items() if engines in names] == [
        "nsqfast._ext.broker.registry"
    ]
    # The contract itself knows no engine, but for the module that chooses one.
    assert [
        name
        for one in CONTRACT - {engines}
        for name in graph[one] - CONTRACT
        if ".storage." in name
    ] == []


def test_imports_make_no_circle(graph):
    TopologicalSorter(graph).prepare()  # CycleError names one


def test_packages_of_nsqadmin_make_no_circle(graph):
    packages = join_packages(graph, "nsqfast.nsqadmin")
    assert {"cluster", "problems", "access", "web"} <= packages.keys()
    assert packages["cluster"] == set()
    TopologicalSorter(packages).prepare()


def test_finds_a_circle_of_packages_that_no_module_makes():
    graph = {"p.a.x": {"p.b.y"}, "p.b.y": {"p.z"}, "p.b.w": {"p.a.v", "p.b.y"}, "p.z": {"p.a.x"}}
    assert join_packages(graph, "p") == {"a": {"b"}, "b": {"a"}}
    with pytest.raises(CycleError):
        TopologicalSorter(join_packages(graph, "p")).prepare()


def test_no_short_module_has_one_importer(graph):
    lines = Counter()
    for path in imports.list_package_sources():
        lines[imports.name_package_and_module(path)[1]] += len(path.read_text().splitlines())
    product = {name: used for name, used in graph.items() if name.startswith("nsqfast")}
    assert find_short(product, lines) == INTERFACES.keys()


def test_finds_short_modules():
    graph = {"p.a": {"p.b", "p.c", "p.d"}, "p.b": {"p.c"}, "p.c": set(), "p.d": set()}
    assert find_short(graph, {"p.a": 1, "p.b": 39, "p.c": 1, "p.d": 40}) == {"p.b"}


def test_no_room_of_a_broker_has_objects_of_a_room_above():
    above, found = set(), []
    for room in reversed(ROOMS):
        texts = {path: path.read_text() for path in (ROOT / "_ext" / room).rglob("*.p[yx][xd]")}
        found += [(path.name, types) for path in texts if (types := find_types(texts[path], above))]
        above |= {name for text in texts.values() for name in CLASS.findall(text)}
    assert found == []


def test_fields_say_what_they_hold():
    texts = {path.name: path.read_text() for path in ROOT.glob("_ext/**/*.pxd")}
    fields = [(name, *field) for name, text in texts.items() for field in UNTYPED.findall(text)]
    assert [field for field in fields if field[1] != "object" and not field[3]] == []


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("    cdef list late  # topics that postponed a write", {"Topic"}),
        ("    cdef public object last_channel", {"Channel"}),
        ("    (<Topic> other).write()", {"Topic"}),
        ('    """A Topic."""\n    cdef int count  # of topics\n    name = "Topic"', set()),
    ],
)
def test_finds_types(text, found):
    assert find_types(text, {"Topic", "Channel"}) == found


@pytest.mark.parametrize(
    "text",
    [
        "import p.b.c as other",
        "from ..b import c",
        "if TYPE_CHECKING:\n    from p.b.c import Thing",
        "from ..b.c import Thing",
        "cimport p.b.c as other",
        "from p.b cimport (\n    c,\n    d,\n)",
    ],
)
def test_finds_imports_and_what_is_reached_through_them(text):
    is_cython = "cimport" in text
    found = (
        imports.read_cython_imports(text) if is_cython else imports.read_python_imports(text, "p.a")
    )
    graph = make_graph({"p.a.x": found, "p.b.c": {"p.top.y"}, "p.top.y": {"p.b.c.Thing"}})
    assert find_upward(graph, ["p.a", "p.top"]) == ["p.a.x: p.top.y"]
    with pytest.raises(CycleError):
        TopologicalSorter(graph).prepare()
