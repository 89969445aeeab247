"""make says in one line what a machine lacks, before it installs or builds anything."""

import re
import shutil
import sys

import pytest

from support.commands import run_command
from support.imports import ROOT

TOO_OLD = (
    "python3 is Python 3.9.2, 3.11 or newer is needed: apt install python3.11 python3.11-dev python3.11-venv,"
    " then make PYTHON=python3.11 ..."
)
OLD = 'case "$2" in *version_info*) exit 1 ;; *) echo 3.9.2 ;; esac'
BARE = 'case "$2" in *Python.h* | *ensurepip*) exit 1 ;; esac'


@pytest.mark.parametrize(
    ("programs", "compiler", "said"),
    [
        ({}, "cc", ["python3 is missing: apt install python3"]),
        ({"python3": OLD}, "cc", [TOO_OLD]),
        ({"python3": ""}, "cc -pthread", ["no C compiler (cc): apt install gcc"]),
        (
            {"python3": BARE, "cc": ""},
            "cc",
            [
                "Python.h is missing: apt install python3-dev",
                "the venv module is missing: apt install python3-venv",
            ],
        ),
        (
            {"python3": "echo no such command >&2; exit 127", "cc": ""},  # a shim of pyenv
            "cc",
            [
                "python3 does not run: choose its version (pyenv shell ...), or another one: make PYTHON=python3.11 ..."
            ],
        ),
        ({"python3": f'exec {sys.executable} "$@"', "cc": ""}, "cc", []),
    ],
)
def test_what_is_missing(tmp_path, programs, compiler, said):
    for name, script in programs.items():
        (tmp_path / name).write_text(f"#!/bin/sh\n{script}\n")
        (tmp_path / name).chmod(0o755)
    command = [shutil.which("sh"), str(ROOT / ".ci" / "check-tools"), "python3"]
    result = run_command(*command, env={"PATH": str(tmp_path), "CC": compiler})
    assert result.stderr.splitlines() == [f"nsqfast: {line}" for line in said]
    assert result.returncode == bool(said)


def run_make(folder, *words):
    return run_command(shutil.which("make"), *words, cwd=folder)


def make(folder, *words):
    """What make says in a folder that has its files alone."""
    for name in ("Makefile", "pyproject.toml", ".ci/check-tools"):
        copy = folder / name
        copy.parent.mkdir(exist_ok=True)
        shutil.copy(ROOT / name, copy)
    return run_make(folder, *words)


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
    assert all(re.match(r"make(\[\d+\])?: \*\*\*", line) for line in others)
    assert not (tmp_path / ".venv/.runs").exists()


def test_help_names_every_target():
    text = (ROOT / "Makefile").read_text(encoding="utf-8").replace("\\\n", " ")
    targets = re.search(r"^\.PHONY: (.*)$", text, re.MULTILINE)[1].split()
    lines = run_make(ROOT, "--no-print-directory", "help").stdout.splitlines()
    assert all(re.match(r"make .{22} \S", line) for line in lines), "one column"
    assert {line.split()[1] for line in lines} == set(targets)
    assert set(targets) == set(re.findall(r"^([a-z-]+):(?!=)", text, re.MULTILINE))
