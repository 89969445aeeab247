"""Style, types, stubs and sizes, checked like everything else."""

import ast
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from support.imports import ROOT, list_package_sources, read_python_imports

# The tools look at everything, beside the tests of other suites.
pytestmark = pytest.mark.timeout(300)

FUNCTION_LINES_MAX = 70
# One class in one file beats a class over four: a ceiling, not an aim.
MODULE_LINES_MAX = 800

# A def, cdef or cpdef with parameters; a class or a C declaration is none.
CYTHON_FUNCTION = re.compile(
    r"^(\s*)(?:async\s+def|def|cdef|cpdef)\s+(?!class\b|extern\b)[^=#]*?(\w+)\("
)


def start(*command):
    """One tool, with the others of its environment on PATH (cython-lint calls pycodestyle)."""
    folder = Path(sys.executable).parent
    environment = os.environ | {
        "PATH": f"{folder}{os.pathsep}{os.environ['PATH']}",
        "MYPYPATH": "build/pxd",
    }
    # A preloaded sanitizer is meant for us, not for the tools.
    environment.pop("LD_PRELOAD", None)
    return subprocess.Popen(
        command,
        cwd=ROOT,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def check(*started):
    """Whether all of them find nothing wrong."""
    said = [f"{' '.join(one.args)[:200]}\n{one.communicate()[0]}" for one in started]
    assert all(one.returncode == 0 for one in started), "\n".join(said)


def python_functions(text):
    """(name, lines) of every function."""
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield node.name, node.end_lineno - node.lineno + 1


def cython_functions(text):
    """(name, lines) of every function, by indentation: from its head to its last deeper line."""
    lines = text.splitlines()
    for start, line in enumerate(lines):
        if not (head := CYTHON_FUNCTION.match(line)):
            continue
        depth, end, opened = len(head[1]), start, 0
        for number in range(start, len(lines)):
            code = lines[number].strip()
            if opened <= 0 < number - start and code and indent(lines[number]) <= depth:
                break
            opened += code.count("(") - code.count(")")
            end = number if code else end
        yield head[2], end - start + 1


def indent(line):
    return len(line) - len(line.lstrip())


@pytest.mark.slow
def test_style_and_types():
    """Side by side: two of them take most of a minute."""
    files = sorted(str(path.relative_to(ROOT)) for path in ROOT.glob("_ext/**/*.p[yx][xd]"))
    check(
        start(sys.executable, "-m", "mypy"),
        start("cython-lint", *files),
        start(sys.executable, "-m", "ruff", "check", "."),
        start(sys.executable, "-m", "ruff", "format", "--check", "."),
    )


@pytest.mark.built
@pytest.mark.slow
def test_stubs_say_what_modules_hold():
    allowed = ROOT / "tests" / "source" / "stubtest-allowlist.txt"
    flags = ["--ignore-disjoint-bases", "--ignore-unused-allowlist", "--allowlist", str(allowed)]
    flags += ["--mypy-config-file", str(ROOT / "pyproject.toml")]  # which modules have no types
    stubs = sorted(ROOT.glob("_ext/**/*.pyi"))
    modules = [name_compiled(path) for path in stubs]
    check(start(sys.executable, "-m", "mypy.stubtest", *modules, *flags))


def test_sizes():
    paths = [ROOT / "setup.py", *(ROOT / "examples").rglob("*.py"), *list_package_sources()]
    long_modules, long_functions = [], []
    for path in paths:
        if path.suffix == ".pxd":
            continue
        name, text = str(path.relative_to(ROOT)), path.read_text(encoding="utf-8")
        functions = cython_functions(text) if path.suffix == ".pyx" else python_functions(text)
        long_functions += [(name, *each) for each in functions if each[1] > FUNCTION_LINES_MAX]
        if text.count("\n") > MODULE_LINES_MAX:
            long_modules.append((name, text.count("\n")))
    assert long_functions == []
    assert long_modules == []


def list_compiled_imports(path):
    """The compiled modules that a .py or .pyi imports."""
    for name in read_python_imports(path.read_text(encoding="utf-8"), ""):
        yield from {name, name.rpartition(".")[0]}


def name_compiled(path):
    return ".".join(["nsqfast", *path.relative_to(ROOT).with_suffix("").parts])


def test_compiled_modules_come_in_twos():
    modules = {path.with_suffix("") for path in ROOT.glob("_ext/**/*.pyx")}
    assert [path for path in sorted(modules) if not path.with_suffix(".pxd").exists()] == []


def test_stubs_are_of_what_python_imports():
    folders = ("nsqfast", "spark_jobs", "tests", "benchmarks", "examples")
    stubs = {name_compiled(path): path for path in ROOT.glob("_ext/**/*.pyi")}
    importers = [path for folder in folders for path in (ROOT / folder).rglob("*.py")]
    imported = {
        name for path in [*importers, *stubs.values()] for name in list_compiled_imports(path)
    }
    compiled = {name_compiled(path) for path in ROOT.glob("_ext/**/*.pyx")}
    assert sorted((imported & compiled) - stubs.keys()) == []
    assert sorted(stubs.keys() - imported) == []


def test_cython_function_lengths():
    text = (
        "cdef class A(B):\n"
        "    cdef int x\n"
        "    cdef int f(self, int a,\n"
        "               int b) except -1 nogil:\n"
        "        return a\n"
        "\n"
        "    def g(\n"
        "        self,\n"
        "    ):\n"
        "        pass\n"
        "\n"
        "cpdef bytes h(object y): return b''\n"
        "z = f(1)\n"
    )
    assert list(cython_functions(text)) == [("f", 3), ("g", 4), ("h", 1)]
