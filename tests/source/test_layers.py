"""Imports point downwards: a module may use only what stands before it in LAYERS."""

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]

# Left of another means below it. A package (nsqfast.net) is one entry; inside it imports are free.
LAYERS = [
    "nsqfast nsqfast.errors nsqfast.names nsqfast.gotext nsqfast.gojson nsqfast.identify nsqfast.streams",
    "_ext.debug _ext.limits _ext.memory _ext.sockets _ext.settings _ext.message",
    "_ext.clock _ext.budget _ext.health _ext.guid",
    "_ext.buffer _ext.hollow _ext.quota",
    "_ext.command _ext.frame _ext.request _ext.publish _ext.records _ext.seen",
    "_ext.ring _ext.heap _ext.line _ext.due _ext.inflight _ext.latency _ext.histogram _ext.window _ext.segment",
    "_ext.syncer _ext.ackmapping _ext.ackfile _ext.recovery _ext.deadlines _ext.diskposition _ext.filereader",
    "_ext.diskreader _ext.diskdeferred _ext.diskhead _ext.diskscan",
    "_ext.diskwriter _ext.diskqueue",
    "_ext.disposal _ext.backlog _ext.flush",
    "_ext.consumer",
    "_ext.turn _ext.circle _ext.timeouts _ext.look",
    "_ext.channel",
    "_ext.fanout",
    "_ext.takeover",
    "_ext.topic _ext.deferral",
    "_ext.bodies",
    "_ext.picture",
    "_ext.shutdown",
    "_ext.registry",
    "_ext.http_shortcut",
    "_ext.http_front",
    "_ext.connection",
    "_ext.guard",
    "_ext.publisher",
    "_ext.session",
    "_ext.link _ext.columns _ext.source _ext.lines",
    "_ext.outbox _ext.inbox _ext.direct",
    "_ext.lane",
    "_ext.load _ext.sink _ext.drill",
    "nsqfast.options nsqfast.stderr nsqfast.logs nsqfast.signals nsqfast.daemon",
    "nsqfast.net nsqfast.stats nsqfast.archives",
    "nsqfast.client",
    "nsqfast.nsqd nsqfast.nsqlookupd nsqfast.nsqadmin nsqfast.tools nsqfast.spark nsqfast.spark_jobs",
]
RANKS = {name: rank for rank, name in enumerate(" ".join(LAYERS).split())}

CYTHON_IMPORT = re.compile(
    r"^\s*(?:from\s+([\w.]+)\s+c?import\s+(.+)|c?import\s+(.+))", re.MULTILINE
)


def layer_of(module: str) -> str | None:
    """The entry of LAYERS a dotted module name belongs to; None for somebody else's module."""
    parts = module.split(".")
    if parts[0] != "nsqfast":
        return None
    if parts[1:2] == ["_ext"]:
        # The folder itself holds nothing to import.
        return "_ext." + parts[2] if len(parts) > 2 else None
    return ".".join(parts[:2])


def targets(module: str, names: list[str]) -> set[str]:
    """What `from module import names` reaches: a name may be a module of its own."""
    layers = {
        layer_of(f"{module}.{name}") for name in names if module in ("nsqfast", "nsqfast._ext")
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
    assert not unknown, f"{sorted(unknown)} (seen in {own}) has no place in LAYERS yet"
    return sorted(name for name in used if RANKS[name] > RANKS[own])


def sources() -> list[Path]:
    files = [
        *(ROOT / "nsqfast").rglob("*.py"),
        *(ROOT / "spark_jobs").rglob("*.py"),
        *(ROOT / "_ext").glob("*.p[yx][xd]"),
    ]
    return sorted(
        file for file in files if "_ext" not in file.parts or file.parent == ROOT / "_ext"
    )


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
        own, used = f"_ext.{path.stem}", cython_imports(text)
    assert upward(own, used) == []


@pytest.mark.parametrize(
    ("own", "text", "expected"),
    [
        ("nsqfast.net", "from nsqfast.nsqd.server import Server", ["nsqfast.nsqd"]),
        ("nsqfast.net", "from nsqfast import nsqd, errors", ["nsqfast.nsqd"]),
        ("nsqfast.net", "def f():\n    import nsqfast.tools.demo", ["nsqfast.tools"]),
        ("nsqfast.net", "from ..nsqd import server", ["nsqfast.nsqd"]),
        ("nsqfast.errors", "from nsqfast._ext.ring import Ring", ["_ext.ring"]),
        ("nsqfast.nsqd", "from nsqfast._ext import session\nimport asyncio", []),
    ],
)
def test_finds_upward_imports_of_python(own, text, expected):
    assert upward(own, python_imports(text, own)) == expected


@pytest.mark.parametrize(
    ("own", "text", "expected"),
    [
        ("_ext.ring", "from nsqfast._ext.channel cimport Channel, nsq_x", ["_ext.channel"]),
        ("_ext.ring", "from nsqfast._ext cimport topic", ["_ext.topic"]),
        (
            "_ext.ring",
            "from nsqfast._ext cimport (\n    heap,\n    topic,\n)",
            ["_ext.heap", "_ext.topic"],
        ),
        ("_ext.ring", "cdef f():\n    from nsqfast.logs import log", ["nsqfast.logs"]),
        ("_ext.ring", "cimport nsqfast._ext.backlog as b\nimport os", ["_ext.backlog"]),
        ("_ext.topic", "from nsqfast._ext.channel cimport Channel\nfrom libc.stdint cimport *", []),
    ],
)
def test_finds_upward_imports_of_cython(own, text, expected):
    assert upward(own, cython_imports(text)) == expected


def test_a_module_without_a_layer_is_an_error():
    with pytest.raises(AssertionError, match="no place in LAYERS"):
        upward("nsqfast.novelty", set())
