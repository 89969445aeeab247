"""Imports point downwards: a module may use only what stands before it in docs/ARCHITECTURE.md."""

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]

MAP = ROOT / "docs" / "ARCHITECTURE.md"


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


# Left of another means below it. A package (nsqfast.net) is one entry; inside it imports are free.
LAYERS = ["nsqfast", *read_map(MAP.read_text(encoding="utf-8"))]
RANKS = {name: rank for rank, name in enumerate(LAYERS)}

CYTHON_IMPORT = re.compile(
    r"^\s*(?:from\s+([\w.]+)\s+c?import\s+(.+)|c?import\s+(.+))", re.MULTILINE
)


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
    layers = {
        layer_of(f"{module}.{name}")
        for name in names
        if module == "nsqfast" or module.startswith("nsqfast._ext.")
    }
    known = {layer for layer in layers if layer in RANKS}
    return known or {layer for layer in [layer_of(module)] if layer}


def python_imports(text: str, package: str) -> set[str]:
    found = set()
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Import):
            found |= {layer for name in node.names if (layer := layer_of(name.name))}
        elif isinstance(node, ast.ImportFrom):
            above = (
                package.split(".")[: len(package.split(".")) - node.level + 1] if node.level else []
            )
            module = ".".join([*above, *([node.module] if node.module else [])])
            found |= targets(module, [name.name for name in node.names])
    return found


def cython_imports(text: str) -> set[str]:
    found = set()
    # A list in parentheses may run over several lines.
    text = re.sub(r"import\s*\(([^)]*)\)", lambda m: "import " + " ".join(m[1].split()), text)
    for module, names, plain in CYTHON_IMPORT.findall(text):
        if module:
            found |= targets(module, re.findall(r"\w+", names))
        else:
            found |= {layer for name in re.findall(r"[\w.]+", plain) if (layer := layer_of(name))}
    return found


def upward(own: str, used: set[str]) -> list[str]:
    unknown = ({own} | used) - RANKS.keys()
    assert not unknown, f"{sorted(unknown)} (seen in {own}) has no place in {MAP.name} yet"
    return sorted(name for name in used if RANKS[name] > RANKS[own])


def sources() -> list[Path]:
    files = [
        *(ROOT / "nsqfast").rglob("*.py"),
        *(ROOT / "spark_jobs").rglob("*.py"),
        *ROOT.glob("_ext/*/*.p[yx][xd]"),
    ]
    return sorted(files)


@pytest.mark.parametrize("path", sources(), ids=lambda path: str(path.relative_to(ROOT)))
def test_imports_point_down(path):
    text = path.read_text(encoding="utf-8")
    if path.suffix == ".py":
        parts = path.relative_to(ROOT).with_suffix("").parts
        if parts[0] == "spark_jobs":
            parts = ("nsqfast", *parts)
        package = ".".join(parts[:-1])
        module = package if parts[-1] == "__init__" else ".".join(parts)
        own, used = layer_of(module), python_imports(text, package)
    else:
        own, used = f"nsqfast._ext.{path.parent.name}.{path.stem}", cython_imports(text)
    assert upward(own, used) == []


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
    ],
)
def test_finds_upward_imports_of_python(own, text, expected):
    assert upward(own, python_imports(text, own)) == expected


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
    assert upward(own, cython_imports(text)) == expected


def test_a_module_without_a_layer_is_an_error():
    with pytest.raises(AssertionError, match="no place in"):
        upward("nsqfast.novelty", set())


def test_the_map_names_what_there_is():
    compiled = {
        f"nsqfast._ext.{path.parent.name}.{path.stem}" for path in ROOT.glob("_ext/*/*.pxd")
    }
    assert {name for name in LAYERS if name.startswith("nsqfast._ext.")} == compiled
