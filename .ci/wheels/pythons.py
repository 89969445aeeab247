"""Runs tests on each CPython from 3.11 that this machine has: `python -m wheels.pythons [pytest's words]`.

Each has its environment in build/pythons, and all share a copy of the sources there, which is built in place: one
translation to C, and compiled modules beside each other under the names of their Pythons.
"""

import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

from wheels.interpreters import Interpreter, find_interpreters
from wheels.sources import ROOT, copy_sources

PLACE = ROOT / "build" / "pythons"
TREE = PLACE / "tree"
# PySpark is half a gigabyte, and tests/spark has targets of its own.
NOT_INSTALLED = {"spark", "all"}
# In processes of their own, as by make: those of the core move the clocks of theirs.
GROUPS = [
    ["tests/ext", "tests/nsqd", "tests/nsqlookupd", "tests/net", "tests/streams"],
    ["tests/client"],
    ["tests/archives", "tests/tools"],
    ["tests/nsqadmin"],
]


def read_extras() -> str:
    with (ROOT / "pyproject.toml").open("rb") as file:
        extras = tomllib.load(file)["project"]["optional-dependencies"]
    return ",".join(sorted(extras.keys() - NOT_INSTALLED))


def prepare(interpreter: Interpreter) -> Path:
    """Make or renew its environment; returns the folder with its programs."""
    venv = PLACE / interpreter.series
    programs = venv / "bin"
    ready = venv / ".ready"
    wanted = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    if not ready.exists() or ready.read_text(encoding="utf-8") != wanted:
        run = [str(programs / "python"), "-m", "pip", "install", "-q"]
        subprocess.run([interpreter.path, "-m", "venv", venv], check=True)
        subprocess.run([*run, "-U", "pip>=25.1"], check=True)
        subprocess.run([*run, "--group", "dev"], cwd=TREE, check=True)
        install = [*run, "--no-build-isolation", "-e", f".[{read_extras()}]"]
        quiet = os.environ | {"PYTHONWARNINGS": "ignore"}
        subprocess.run(install, cwd=TREE, env=quiet, check=True)
        ready.write_text(wanted, encoding="utf-8")
    command = [str(programs / "python"), "setup.py", "-q", "build_ext", "--inplace"]
    subprocess.run(command, cwd=TREE, stdout=subprocess.DEVNULL, check=True)
    return programs


def test(interpreter: Interpreter, words: list[str]) -> list[str]:
    """Return the last line of each pytest."""
    programs = prepare(interpreter)
    named = [word for word in words if word.startswith("tests")]
    others = [word for word in words if word not in named]
    print(f"nsqfast: Python {interpreter}", flush=True)
    return [run_group(programs, [*group, *others]) for group in ([named] if named else GROUPS)]


def run_group(programs: Path, words: list[str]) -> str:
    command = [str(programs / "python"), "-m", "pytest", "-q", *words]
    environment = os.environ | {"PATH": f"{programs}{os.pathsep}{os.environ['PATH']}"}
    with subprocess.Popen(
        command, cwd=TREE, env=environment, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        last = ""
        for line in process.stdout:
            print(line, end="", flush=True)
            last = line.strip() or last
    return last


def main() -> None:
    found = [each for each in find_interpreters(os.environ.get("PYTHONS", "")) if each.has_header]
    copy_sources(TREE)
    programs_in_go = TREE / ".go-nsq"
    if (ROOT / ".go-nsq").exists() and not programs_in_go.is_symlink():
        programs_in_go.symlink_to(ROOT / ".go-nsq")
    words = sys.argv[1:]
    if "-m" not in words:
        words += ["-m", "not slow and not soak and not trust"]
    ends = {str(each): test(each, words) for each in found}
    lines = [(version, line) for version, found in ends.items() for line in found]
    for version, line in lines:
        print(f"nsqfast: Python {version}: {line}")
    sys.exit(not all(re.match(r"\d+ passed", line) for _, line in lines))


if __name__ == "__main__":
    main()
