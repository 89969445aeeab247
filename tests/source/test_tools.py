"""make says in one line what a machine lacks, before it installs or builds anything."""

import shutil
import subprocess
import sys

import pytest

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
        ({"python3": f'exec {sys.executable} "$@"', "cc": ""}, "cc", []),
    ],
)
def test_what_is_missing(tmp_path, programs, compiler, said):
    for name, script in programs.items():
        (tmp_path / name).write_text(f"#!/bin/sh\n{script}\n")
        (tmp_path / name).chmod(0o755)
    result = subprocess.run(
        [shutil.which("sh"), str(ROOT / ".ci" / "check-tools"), "python3"],
        env={"PATH": str(tmp_path), "CC": compiler},
        capture_output=True,
        text=True,
        check=False,
    )
    assert result.stderr.splitlines() == [f"nsqfast: {line}" for line in said]
    assert result.returncode == bool(said)


def test_make_stops_at_what_is_missing(tmp_path):
    for name in ("Makefile", "pyproject.toml", ".ci/check-tools"):
        copy = tmp_path / name
        copy.parent.mkdir(exist_ok=True)
        shutil.copy(ROOT / name, copy)
    result = subprocess.run(
        [shutil.which("make"), "ext", "PYTHON=no-such-python"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert result.returncode != 0
    assert result.stderr.startswith("nsqfast: no-such-python is missing: apt install python3\n")
    assert not (tmp_path / ".venv").exists()
