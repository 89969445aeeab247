"""An sdist is the whole checkout, and says in one line what a machine lacks to build it."""

import os
import re
import shutil
import subprocess
import sys

import pytest

from support.commands import run_command
from support.server import ROOT
from wheels.sources import copy_sources

pytestmark = pytest.mark.slow

# Of the checkout, what is for git and nobody else.
LEFT_OUT = {".gitignore"}
MADE = {"PKG-INFO", "setup.cfg"}
HINT = "apt install gcc python3-dev, or install the wheel\n"


@pytest.fixture(scope="module")
def sdist(tmp_path_factory):
    """Made from a copy, as setuptools writes beside the sources; unpacked."""
    folder = tmp_path_factory.mktemp("sdist")
    copy_sources(folder / "tree")
    command = [sys.executable, "setup.py", "-q", "sdist", "--dist-dir", folder / "dist"]
    subprocess.run(command, cwd=folder / "tree", check=True, capture_output=True)
    (made,) = (folder / "dist").iterdir()
    # Python's own tarfile has filters since 3.11.4 only.
    subprocess.run(["tar", "-xf", made, "-C", folder], check=True)
    return folder / made.name.removesuffix(".tar.gz")


def list_tracked():
    if not (ROOT / ".git").exists():
        pytest.skip("no checkout of git to compare with")
    command = ["git", "ls-files", "-z"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    return {name for name in done.stdout.split("\0") if name and (ROOT / name).exists()}


def test_it_holds_the_checkout(sdist):
    names = {str(path.relative_to(sdist)) for path in sdist.rglob("*") if path.is_file()}
    inside = {name for name in names - MADE if not name.startswith("nsqfast.egg-info/")}
    assert list_tracked() - LEFT_OUT - inside == set(), "MANIFEST.in leaves these out"
    assert [name for name in inside if re.search(r"\.(so|pyc)$|^_ext/.*\.(c|html)$", name)] == []


def build(source, **environment):
    command = [sys.executable, "setup.py", "-q", "bdist_wheel"]
    return run_command(*command, cwd=source, env=os.environ | environment, timeout=None)


def test_no_compiler(sdist):
    done = build(sdist, CC="no-such-cc -pthread")
    assert done.stderr == f"nsqfast: no C compiler (no-such-cc): {HINT}"
    assert done.returncode == 1


def test_no_header(sdist, tmp_path):
    """As where python3-dev is missing: a compiler that finds nothing where it is told to look."""
    compiler = shutil.which("cc")
    if compiler is None:
        pytest.skip("no C compiler")
    blind = tmp_path / "cc"
    drop = 'case $word in -I*) ;; *) set -- "$@" "$word" ;; esac'
    blind.write_text(f'#!/bin/sh\nfor word; do shift; {drop}; done\nexec {compiler} "$@"\n')
    blind.chmod(0o755)
    done = build(sdist, CC=str(blind), CPATH="", C_INCLUDE_PATH="")
    assert done.stderr == f"nsqfast: Python.h is missing: {HINT}"
    assert done.returncode == 1


def test_a_compiler_that_does_not_work(sdist, tmp_path):
    broken = tmp_path / "cc"
    broken.write_text("#!/bin/sh\necho 'cc: fatal error: no licence' >&2\nexit 1\n")
    broken.chmod(0o755)
    done = build(sdist, CC=str(broken))
    said = f"nsqfast: {broken} does not work (cc: fatal error: no licence)"
    assert done.stderr == f"{said}: {HINT}"
    assert done.returncode == 1


def test_make_works_without_its_helpers(sdist):
    """Who packages nsqfast may leave hidden folders out."""
    shutil.rmtree(sdist / ".ci", ignore_errors=True)
    done = run_command("make", "ext", "PYTHON=no-such-python", cwd=sdist)
    assert done.returncode != 0
    assert "no-such-python" in done.stderr
    assert ".ci" not in done.stderr
