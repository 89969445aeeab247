"""make says in one line what a machine lacks, before it installs or builds anything."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def tools(tmp_path):
    """A PATH that holds nothing but a shell; `add` puts programs on it."""

    class Tools:
        def add(self, name, script):
            program = tmp_path / name
            program.write_text(f"#!/bin/sh\n{script}\n")
            program.chmod(0o755)

        def check(self, python="python3", **environment):
            result = subprocess.run(
                [shutil.which("sh"), str(ROOT / ".ci" / "check-tools"), python],
                env={"PATH": str(tmp_path), **environment},
                capture_output=True,
                text=True,
                check=False,
            )
            return result.returncode, result.stderr.splitlines()

    return Tools()


def test_no_python(tools):
    assert tools.check() == (1, ["nsqfast: python3 is missing: apt install python3"])


def test_old_python(tools):
    # Fails the comparison, then prints its version.
    tools.add("python3", 'case "$2" in *version_info*) exit 1 ;; *) echo 3.9.2 ;; esac')
    status, lines = tools.check()
    assert status == 1
    assert len(lines) == 1
    assert "Python 3.9.2, 3.11 or newer is needed: apt install python3.11" in lines[0]


def test_no_compiler(tools):
    status, lines = tools.check(sys.executable, CC="no-such-cc -pthread")
    assert status == 1
    assert lines == ["nsqfast: no C compiler (no-such-cc): apt install gcc"]


def test_no_header_and_no_venv(tools):
    tools.add("cc", "")
    tools.add("python3", 'case "$2" in *Python.h* | *ensurepip*) exit 1 ;; esac')
    assert tools.check(CC="cc") == (
        1,
        [
            "nsqfast: Python.h is missing: apt install python3-dev",
            "nsqfast: the venv module is missing: apt install python3-venv",
        ],
    )


def test_all_there(tools):
    tools.add("cc", "")
    tools.add("python3", "")
    assert tools.check(CC="cc") == (0, [])


def make(folder, *words):
    """What make says in a folder that has its files alone."""
    for name in ("Makefile", "pyproject.toml", ".ci/check-tools"):
        copy = folder / name
        copy.parent.mkdir(exist_ok=True)
        shutil.copy(ROOT / name, copy)
    return subprocess.run(
        [shutil.which("make"), *words], cwd=folder, capture_output=True, text=True, check=False
    )


def test_make_stops_at_what_is_missing(tmp_path):
    result = make(tmp_path, "up", "PYTHON=no-such-python")
    assert result.returncode != 0
    assert result.stderr.startswith("nsqfast: no-such-python is missing: apt install python3\n")
    assert not (tmp_path / ".venv").exists()


@pytest.mark.parametrize("target", ["up", "ext"])
@pytest.mark.parametrize(
    ("pip_says", "make_says"),
    [
        (
            "WARNING: Retrying after connection broken by 'NewConnectionError(...)'",
            "nsqfast: the package index cannot be reached: .venv/pip.log has what pip says",
        ),
        ("ERROR: No space left on device", "ERROR: No space left on device"),
    ],
)
def test_make_stops_where_pip_does(tmp_path, target, pip_says, make_says):
    python = tmp_path / ".venv/bin/python"
    python.parent.mkdir(parents=True)
    python.write_text(f'#!/bin/sh\necho "{pip_says}" >&2\nexit 1\n')
    python.chmod(0o755)
    result = make(tmp_path, target, f"PYTHON={sys.executable}")
    assert result.returncode != 0
    first, *others = result.stderr.splitlines()
    assert first == make_says
    assert all(line.startswith("make: ***") for line in others)
    assert not (tmp_path / ".venv/.runs").exists()
