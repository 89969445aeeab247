"""Reads what source files import, in Python and Cython, also under TYPE_CHECKING and inside functions.

`from a import b` is read as a.b: the module a.b, or what is called b in the module a.
"""

import ast
import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
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
    python = [path for name in ("nsqfast", "spark_jobs") for path in (ROOT / name).rglob("*.py")]
    return sorted([*python, *ROOT.glob("_ext/**/*.p[yx][xd]")])


def name_package_and_module(path: Path) -> tuple[str, str]:
    """Return both names, dotted. An `__init__` has the name of its package."""
    folder, *parts = path.relative_to(ROOT).with_suffix("").parts
    parts = PACKAGES[folder] + parts
    package = ".".join(parts[:-1])
    return package, package if parts[-1] == "__init__" else ".".join(parts)


def read_imports(path: Path) -> set[str]:
    """Return what a .py, .pyi, .pyx or .pxd imports."""
    text = path.read_text(encoding="utf-8")
    if path.suffix in {".py", ".pyi"}:
        return read_python_imports(text, name_package_and_module(path)[0])
    return read_cython_imports(text)


def read_python_imports(text: str, package: str) -> set[str]:
    """Return what the text of a module imports; relative names are resolved against its package."""
    found = set()
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Import):
            found |= {name.name for name in node.names}
        elif isinstance(node, ast.ImportFrom):
            above = package.rsplit(".", node.level - 1)[:1] if node.level else []
            module = ".".join(filter(None, [*above, node.module]))
            found |= {f"{module}.{name.name}" for name in node.names}
    return found


def read_cython_imports(text: str) -> set[str]:
    """Return what the text of a .pyx or .pxd imports or cimports."""
    # A list in parentheses may run over several lines.
    text = re.sub(r"import\s*\(([^)]*)\)", lambda m: "import " + " ".join(m[1].split()), text)
    found = set()
    for module, names, plain in CYTHON_IMPORT.findall(text):
        found |= {f"{module}.{name}" for name in re.findall(r"\w+|\*", names)}
        found |= set(re.findall(r"[\w.]+", plain))
    return found
