"""The CPython interpreters of this machine that wheels are built for and tests are run with.

PYTHONS="python3.12 /opt/python3.13/bin/python3" names them. Otherwise every python3.N on PATH and in pyenv's folder is
looked at; of several with the same N the newest that has Python.h is taken.
"""

import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

OLDEST = (3, 11)
# Far enough ahead that nobody has to remember this line when a Python is released.
MINORS = range(OLDEST[1], 30)
PROBE = """
import json, os, sys, sysconfig
print(json.dumps({
    "path": sys.executable,
    "version": sys.version_info[:3],
    "prefix": os.path.realpath(sys.base_prefix),
    "is_cpython": sys.implementation.name == "cpython" and not sysconfig.get_config_var("Py_GIL_DISABLED"),
    "has_header": os.path.exists(os.path.join(sysconfig.get_path("include"), "Python.h")),
}))
"""


@dataclass(frozen=True)
class Interpreter:
    path: Path
    version: tuple[int, int, int]
    prefix: Path  # what has to be readable for whoever runs it
    has_header: bool

    @property
    def series(self) -> str:
        return f"{self.version[0]}.{self.version[1]}"

    @property
    def tag(self) -> str:
        return f"cp{self.version[0]}{self.version[1]}"

    def __str__(self) -> str:
        return ".".join(map(str, self.version))


def probe(command: str) -> Interpreter | None:
    """Ask an interpreter what it is; None where it does not run, is too old or is no CPython with its lock."""
    try:
        done = subprocess.run(
            [command, "-I", "-c", PROBE], capture_output=True, text=True, timeout=20, check=True
        )
    except (OSError, subprocess.SubprocessError):  # pyenv's shims fail for what is not chosen
        return None
    facts = json.loads(done.stdout)
    version = tuple(facts["version"])
    if version < OLDEST or not facts["is_cpython"]:
        return None
    return Interpreter(Path(facts["path"]), version, Path(facts["prefix"]), facts["has_header"])


def list_commands() -> list[str]:
    names = [f"python3.{minor}" for minor in MINORS]
    folders = [Path(each) for each in os.get_exec_path()]
    pyenv = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv"))
    folders += sorted(pyenv.glob("versions/*/bin"))
    return [str(folder / name) for folder in folders for name in names if (folder / name).exists()]


def find_interpreters(named: str = "") -> list[Interpreter]:
    """One for each minor version, oldest first."""
    if named:
        found = [probe(command) for command in named.split()]
        missing = [
            command for command, each in zip(named.split(), found, strict=True) if each is None
        ]
        if missing:
            raise SystemExit(f"nsqfast: no CPython from 3.11 on: {', '.join(missing)}")
    else:
        found = [probe(command) for command in list_commands()]
    newest: dict[str, Interpreter] = {}
    for each in filter(None, found):
        other = newest.get(each.series)
        if other is None or (other.has_header, other.version) < (each.has_header, each.version):
            newest[each.series] = each
    return sorted(newest.values(), key=lambda each: each.version)


def find_own() -> Interpreter:
    """The interpreter of this environment."""
    own = probe(sys.executable)
    if own is None:
        raise SystemExit(f"nsqfast: {sys.executable} is no CPython from 3.11 on")
    return own


if __name__ == "__main__":
    for interpreter in find_interpreters(os.environ.get("PYTHONS", "")):
        note = "" if interpreter.has_header else "  (without Python.h)"
        print(f"{interpreter.series} {interpreter.path}{note}")
