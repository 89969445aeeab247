"""Imports point downwards: a module may use only what stands before it in docs/ARCHITECTURE.md."""

import re
from collections.abc import Iterable

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

MAP = ROOT / "docs" / "ARCHITECTURE.md"
PACKAGE_LAYERS = ROOT / "docs" / "LAYERS.md"


def read_map(text: str) -> list[str]:
    """The dotted names of the first indented block, in its order: a package, then what it holds."""
    block = re.search(r"(?:^ {4}.*\n)+", text, re.MULTILINE)
    assert block, "no list of layers"
    names, package = [], ""
    for line in block[0].splitlines():
        words = line.split()
        if line[4] != " ":
            package = words.pop(0)
        names += [f"{package}.{word}" for word in words]
    return names


# Left of another means below it. A package (nsqfast.net) is one entry; inside it imports are free. The package itself
# stands above all: it exports what the client has.
LAYERS = [*read_map(MAP.read_text(encoding="utf-8")), "nsqfast"]
RANKS = {name: rank for rank, name in enumerate(LAYERS)}


def layer_of(module: str) -> str | None:
    """The entry of LAYERS a dotted module name belongs to; None for somebody else's module."""
    parts = module.split(".")
    if parts[0] != "nsqfast":
        return None
    if parts[1:2] == ["_ext"]:
        # A room itself holds nothing to import.
        return ".".join(parts[:4]) if len(parts) > 3 else None
    return ".".join(parts[:2])


def targets(module: str, names: list[str]) -> set[str]:
    """What `from module import names` reaches: a name may be a module of its own."""
    whole = layer_of(module)
    layers = {
        layer_of(f"{module}.{name}")
        for name in names
        if module == "nsqfast" or module.startswith("nsqfast._ext.")
    } or {whole}
    return {layer if layer in RANKS else whole for layer in layers} - {None}


def find_layers(imports: Iterable[Import]) -> set[str]:
    """Return the entries of LAYERS that these imports reach."""
    return {layer for module, names in imports for layer in targets(module, names)}


def upward(own: str, used: set[str]) -> list[str]:
    unknown = ({own} | used) - RANKS.keys()
    assert not unknown, f"{sorted(unknown)} (seen in {own}) has no place in {MAP.name} yet"
    return sorted(name for name in used if RANKS[name] > RANKS[own])


@pytest.mark.parametrize(
    "path", list_package_sources(), ids=lambda path: str(path.relative_to(ROOT))
)
def test_imports_point_down(path):
    own = layer_of(name_package_and_module(path)[1])
    assert upward(own, find_layers(read_imports(path))) == []


@pytest.mark.parametrize(
    ("own", "text", "expected"),
    [
        ("nsqfast.net", "from nsqfast.nsqd.server import Server", ["nsqfast.nsqd"]),
        ("nsqfast.net", "from nsqfast import nsqd, errors", ["nsqfast.nsqd"]),
        ("nsqfast.net", "def f():\n    import nsqfast.tools.demo", ["nsqfast.tools"]),
        ("nsqfast.net", "from ..nsqd import server", ["nsqfast.nsqd"]),
        (
            "nsqfast.errors",
            "from nsqfast._ext.core.ring import Ring",
            ["nsqfast._ext.core.ring"],
        ),
        ("nsqfast.nsqd", "from nsqfast._ext.server import session\nimport asyncio", []),
        ("nsqfast.client", "from nsqfast import errors, NSQ_VERSION", ["nsqfast"]),
        ("nsqfast", "def f():\n    from nsqfast.client import Producer", []),
    ],
)
def test_finds_upward_imports_of_python(own, text, expected):
    assert upward(own, find_layers(read_python_imports(text, own))) == expected


CHANNEL, TOPIC = "nsqfast._ext.broker.channel", "nsqfast._ext.broker.topic"
RING, HEAP = "nsqfast._ext.core.ring", "nsqfast._ext.core.heap"
BACKLOG = "nsqfast._ext.disk.backlog"


@pytest.mark.parametrize(
    ("own", "text", "expected"),
    [
        (RING, f"from {CHANNEL} cimport Channel, nsq_x", [CHANNEL]),
        (RING, "from nsqfast._ext.broker cimport topic", [TOPIC]),
        (RING, "from nsqfast._ext.core cimport (\n    heap,\n    ring,\n)", [HEAP]),
        (RING, "cdef f():\n    from nsqfast.logs import log", ["nsqfast.logs"]),
        (RING, f"cimport {BACKLOG} as b\nimport os", [BACKLOG]),
        (TOPIC, f"from {CHANNEL} cimport Channel\nfrom libc.stdint cimport *", []),
    ],
)
def test_finds_upward_imports_of_cython(own, text, expected):
    assert upward(own, find_layers(read_cython_imports(text))) == expected


def test_a_module_without_a_layer_is_an_error():
    with pytest.raises(AssertionError, match="no place in"):
        upward("nsqfast.novelty", set())


def test_the_map_names_what_there_is():
    compiled = {
        f"nsqfast._ext.{path.parent.name}.{path.stem}" for path in ROOT.glob("_ext/*/*.pxd")
    }
    assert {name for name in LAYERS if name.startswith("nsqfast._ext.")} == compiled


def test_inside_a_package_imports_point_left():
    layers = read_map(PACKAGE_LAYERS.read_text(encoding="utf-8"))
    ranks = {module: rank for rank, module in enumerate(layers)}
    modules, wrong = set(), []
    for path in list_package_sources():
        package, module = name_package_and_module(path)
        if path.suffix != ".py" or path.name == "__init__.py":
            continue
        modules.add(module)
        reached = {
            name
            for source, names in read_imports(path)
            for name in [source, *(f"{source}.{name}" for name in names)]
        }
        wrong += [
            f"{module} imports {other}"
            for other in sorted(reached & ranks.keys())
            if other.rpartition(".")[0] == package and ranks[other] >= ranks.get(module, -1)
        ]
    assert wrong == []
    packages = [module.rpartition(".")[0] for module in modules]
    assert {module for module in modules if packages.count(module.rpartition(".")[0]) > 1} == set(
        layers
    )
