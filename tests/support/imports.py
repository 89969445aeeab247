"""Reads what source files import, in Python and Cython, also under TYPE_CHECKING and inside functions."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]

# `from a import b, c` is ("a", ["b", "c"]), `import a` is ("a", []).
Import = tuple[str, list[str]]

CYTHON_IMPORT = re.compile(
    r"^\s*(?:from\s+([\w.]+)\s+c?import\s+(.+)|c?import\s+(.+))", re.MULTILINE
)
# The package of each folder; modules of benchmarks/ are imported without the folder's name.
PACKAGES = {
    "nsqfast": ["nsqfast"],
    "spark_jobs": ["nsqfast", "spark_jobs"],
    "_ext": ["nsqfast", "_ext"],
    "benchmarks": [],
}


def list_package_sources() -> list[Path]:
    """Return every source file of the package nsqfast."""
    files = [
        *(ROOT / "nsqfast").rglob("*.py"),
        *(ROOT / "spark_jobs").rglob("*.py"),
        *ROOT.glob("_ext/*/*.p[yx][xd]"),
    ]
    return sorted(files)


def name_package_and_module(path: Path) -> tuple[str, str]:
    """Return both names, dotted. An `__init__` has the name of its package."""
    folder, *parts = path.relative_to(ROOT).with_suffix("").parts
    parts = PACKAGES[folder] + parts
    package = ".".join(parts[:-1])
    return package, package if parts[-1] == "__init__" else ".".join(parts)


def read_imports(path: Path) -> list[Import]:
    """Return what a .py, .pyx or .pxd imports."""
    text = path.read_text(encoding="utf-8")
    if path.suffix == ".py":
        return list(read_python_imports(text, name_package_and_module(path)[0]))
    return list(read_cython_imports(text))


def read_python_imports(text: str, package: str) -> Iterator[Import]:
    """Yield what the text of a module imports; relative names are resolved against its package."""
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Import):
            yield from ((name.name, []) for name in node.names)
        elif isinstance(node, ast.ImportFrom):
            above = (
                package.split(".")[: len(package.split(".")) - node.level + 1] if node.level else []
            )
            module = ".".join([*above, *([node.module] if node.module else [])])
            yield module, [name.name for name in node.names]


def read_cython_imports(text: str) -> Iterator[Import]:
    """Yield what the text of a .pyx or .pxd imports or cimports."""
    # A list in parentheses may run over several lines.
    text = re.sub(r"import\s*\(([^)]*)\)", lambda m: "import " + " ".join(m[1].split()), text)
    for module, names, plain in CYTHON_IMPORT.findall(text):
        if module:
            yield module, re.findall(r"\w+", names)
        else:
            yield from ((name, []) for name in re.findall(r"[\w.]+", plain))
