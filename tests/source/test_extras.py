"""What each part imports, its extra in pyproject.toml and nsqfast/program/extras.py are the same."""

import ast
import sys
from dataclasses import dataclass, field
from importlib.metadata import packages_distributions

import pytest
from packaging.utils import canonicalize_name

from nsqfast.program import extras
from support.imports import (
    ROOT,
    list_package_sources,
    name_package_and_module,
    read_cython_imports,
    read_python_imports,
)
from support.plain_install import list_declared, list_files, list_installed, read_project

PLAIN = ""
SIZE_MAX = 40_000_000
NSQFAST_SIZE = 14_000_000  # of the wheel of nsqfast itself, unpacked, and compiled Python with it
# Where each part begins; what is behind `needs(...)` counts for the extra that it names.
PARTS = {
    PLAIN: (
        "nsqfast.__main__",
        "nsqfast.app.main",
        "nsqfast.client",
        "nsqfast.client.envelope",
        "nsqfast.client.sync",
        "nsqfast.testing.cases",
        "nsqfast.testing.plugin",
        "nsqfast.tools.commitlog.main",
    ),
    "opentelemetry": ("nsqfast.client.opentelemetry",),
    "prometheus": ("nsqfast.client.prometheus",),
    "admin": ("nsqfast.nsqadmin.main",),
    "spark": (
        "nsqfast.spark",
        "nsqfast.spark.datasource",
        "nsqfast.spark_jobs",
        "nsqfast.spark.receiver.main",
    ),
}
# Not by a program's main: what `make up`, `make man`, containers and Spark start by name.
MORE = {
    "server": (
        "nsqfast.dev.demo",
        "nsqfast.dev.demo_cluster",
        "nsqfast.dev.manual",
        "nsqfast.tools.probe",
    ),
    "spark": ("nsqfast.dev.demo_spark",),
}
# What comes with something else that is declared.
BROUGHT = {
    "yarl": "aiohttp",
    "multidict": "aiohttp",
    "cryptography": "pyopenssl",
    "markupsafe": "jinja2",
    "py4j": "pyspark",
}
# Names that several distributions share.
SHARED = {"backports": "backports-zstd", "opentelemetry": "opentelemetry-api"}
OF_CYTHON = {"cpython", "cython", "libc", "posix"}
OF_CALLERS = {"pytest"}  # it loads nsqfast.testing.plugin


@dataclass
class Reached:
    """Names of third parties, each with one module that imports it."""

    plainly: dict[str, str] = field(default_factory=dict)
    behind: dict[str, dict[str, str]] = field(default_factory=dict)  # by extra


@dataclass(frozen=True)
class Edge:
    target: str
    extra: str  # that of the `needs` around it
    is_optional: bool  # something else is done where it is missing


class Reader(ast.NodeVisitor):
    """The imports of one module, with what stands around them; not those for type checkers."""

    def __init__(self, package):
        self.package = package
        self.edges = []
        self._extra = ""
        self._is_optional = False

    def visit_If(self, node):
        if "TYPE_CHECKING" in ast.unparse(node.test):
            is_hidden = ast.unparse(node.test) == "not TYPE_CHECKING"
            for each in node.body if is_hidden else node.orelse:
                self.visit(each)
        elif "version_info" in ast.unparse(node.test):
            is_taken = eval(ast.unparse(node.test), {"sys": sys})
            for each in node.body if is_taken else node.orelse:
                self.visit(each)
        else:
            self.generic_visit(node)

    def visit_With(self, node):
        before = self._extra
        for item in node.items:
            call = item.context_expr
            if isinstance(call, ast.Call) and ast.unparse(call.func).endswith("needs"):
                self._extra = ast.literal_eval(call.args[1])
        self.generic_visit(node)
        self._extra = before

    def visit_Try(self, node):
        caught = {ast.unparse(each.type) for each in node.handlers if each.type is not None}
        before = self._is_optional
        self._is_optional |= bool(caught & {"ImportError", "ModuleNotFoundError"})
        for each in node.body:
            self.visit(each)
        self._is_optional = before
        for each in [*node.handlers, *node.orelse, *node.finalbody]:
            self.visit(each)

    def visit_Import(self, node):
        self._add(node)

    def visit_ImportFrom(self, node):
        self._add(node)

    def _add(self, node):
        for name in sorted(read_python_imports(ast.unparse(node), self.package)):
            self.edges.append(Edge(name, self._extra, self._is_optional))


def read_edges(path):
    text = path.read_text(encoding="utf-8")
    package, module = name_package_and_module(path)
    if path.suffix != ".py":
        return [Edge(name, "", is_optional=False) for name in sorted(read_cython_imports(text))]
    reader = Reader(module if path.name == "__init__.py" else package)
    reader.visit(ast.parse(text))
    return reader.edges


def read_all():
    found = {}
    for path in list_package_sources():
        module = name_package_and_module(path)[1]
        found.setdefault(module, []).extend(read_edges(path))
    return found


EDGES = read_all()
DISTRIBUTIONS = packages_distributions()


def with_parents(module):
    parts = module.split(".")
    return [".".join(parts[:count]) for count in range(1, len(parts) + 1)]


def walk(roots):
    """Everything that those modules reach, those inside functions too."""
    reached, seen = Reached(), set()
    waiting = [(name, "") for root in roots for name in with_parents(root)]
    while waiting:
        module, extra = waiting.pop()
        if (module, extra) in seen or (module, "") in seen:
            continue
        seen.add((module, extra))
        for edge in EDGES[module]:
            behind = edge.extra or extra
            top = edge.target.partition(".")[0]
            if top == "nsqfast":
                waiting += [(name, behind) for name in with_parents(edge.target) if name in EDGES]
            elif top not in sys.stdlib_module_names and not edge.is_optional:
                into = reached.behind.setdefault(behind, {}) if behind else reached.plainly
                into.setdefault(edge.target, module)
    return reached


def name_distributions(imported):
    """Of each import, the distribution that has to be declared, with who imports it."""
    found = {}
    for target, module in imported.items():
        top = target.partition(".")[0]
        if top in OF_CYTHON | OF_CALLERS:
            continue
        names = [SHARED[top]] if top in SHARED else DISTRIBUTIONS.get(top, [top])
        name = canonicalize_name(names[0])
        found.setdefault(BROUGHT.get(name, name), module)
    return found


def list_parts():
    """By extra, the modules where it begins."""
    found = {part: [*PARTS.get(part, ()), *MORE.get(part, ())] for part in (*PARTS, *MORE)}
    begun = {module for roots in found.values() for module in roots}
    for target in read_project()["scripts"].values():
        module = target.partition(":")[0]
        if module not in begun and not module.startswith("nsqfast.spark_jobs"):
            found["server"].append(module)
    found["spark"] += [name for name in EDGES if name.startswith("nsqfast.spark_jobs.")]
    return found


ROOTS = list_parts()


@pytest.mark.parametrize("extra", ROOTS)
def test_what_is_imported_is_declared(extra):
    declared = list_declared(*filter(None, [extra]))
    used = name_distributions(walk(ROOTS[extra]).plainly)
    assert {name: used[name] for name in used.keys() - declared} == {}, (
        f"imported where only {extra or 'dependencies'} may be used; see nsqfast/program/extras.py"
    )


@pytest.mark.parametrize("part", ROOTS)
def test_what_is_behind_needs_is_declared_by_the_extra_that_it_names(part):
    missing = {
        (extra, name): module
        for extra, imported in walk(ROOTS[part]).behind.items()
        for name, module in name_distributions(imported).items()
        if name not in list_declared(extra) | list_declared(*filter(None, [part]))
    }
    assert missing == {}


@pytest.mark.parametrize(
    "extra", [*ROOTS, "arrays", "snappy", "arrow", "chart", "msgspec", "pydantic"]
)
def test_what_is_declared_is_imported(extra):
    if extra in ROOTS:
        reached = walk(ROOTS[extra])
        used = {
            **reached.plainly,
            **{k: v for each in reached.behind.values() for k, v in each.items()},
        }
    else:
        used = {
            name: module
            for roots in ROOTS.values()
            for name, module in walk(roots).behind.get(extra, {}).items()
        }
    declared = list_declared(*filter(None, [extra]))
    if extra:
        declared -= list_declared()
    assert declared - name_distributions(used).keys() == set()


@pytest.mark.parametrize("extra", extras.PACKAGES)
def test_the_list_of_a_program_is_that_of_its_extra(extra):
    listed = name_distributions(dict.fromkeys(extras.PACKAGES[extra], ""))
    assert listed.keys() == list_declared(extra) - list_declared()


def test_every_module_belongs_to_a_part():
    reached = set()

    def visit(module):
        if module in EDGES and module not in reached:
            reached.add(module)
            for edge in EDGES[module]:
                for name in with_parents(edge.target):
                    visit(name)

    for roots in ROOTS.values():
        for root in roots:
            visit(root)
    own = {
        name for name in EDGES if not name.startswith(("nsqfast._ext", "nsqfast.spark.autoload"))
    }
    assert own - reached == {"nsqfast.archives"} - reached


def test_all_has_all():
    project = read_project()
    names = project["optional-dependencies"].keys() - {"all"}
    assert list_declared("all") == list_declared(*names)


def test_every_dependency_has_its_reason():
    text = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    begin, end = text.index("\ndependencies = ["), text.index("[project.scripts]")
    lines = [line.strip() for line in text[begin:end].splitlines()]
    without = [line for line in lines if line.startswith('"') and "  # " not in line]
    assert without == []


def test_a_plain_install_is_small():
    """What it is in a fresh environment stands in CHANGELOG.md; this counts what is installed here."""
    sizes = {
        each.name: sum(each.locate_file(file).stat().st_size for file in list_files(each))
        for each in list_installed()
    }
    assert sum(sizes.values()) + NSQFAST_SIZE < SIZE_MAX, sizes


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("import numpy", [("numpy", "", False)]),
        ("if TYPE_CHECKING:\n    import numpy", []),
        ("if not TYPE_CHECKING:\n    import numpy", [("numpy", "", False)]),
        ("def f():\n    import numpy.linalg", [("numpy.linalg", "", False)]),
        ("with needs('x', 'arrays'):\n    import numpy", [("numpy", "arrays", False)]),
        (
            "try:\n    import a\nexcept ImportError:\n    import b",
            [("a", "", True), ("b", "", False)],
        ),
        ("try:\n    import a\nexcept OSError:\n    pass", [("a", "", False)]),
    ],
)
def test_reads_what_stands_around_an_import(text, expected):
    reader = Reader("nsqfast")
    reader.visit(ast.parse(text))
    assert [(each.target, each.extra, each.is_optional) for each in reader.edges] == expected
