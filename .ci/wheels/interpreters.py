"""The CPython interpreters of this machine that wheels are built for and tests are run with.

PYTHONS="python3.12 /opt/python3.13/bin/python3" names them. Otherwise every python3.N on PATH and in pyenv's folder is
looked at; of several with the same N the newest that has Python.h is taken. A shim of pyenv whose version is not chosen
does not run: that version is looked up in pyenv's folder, and the shim is left out with a line if it is not there.
"""

import json
import os
import platform
import shutil
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


def wheel_pattern(tag: str = "*") -> str:
    """The wheels of ours for that Python on this machine."""
    return f"nsqfast-*-{tag}-{tag}-manylinux*_{platform.machine()}.whl"


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


def list_in_pyenv(name: str) -> list[str]:
    root = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv"))
    return [str(path) for path in sorted(root.glob(f"versions/*/bin/{name}"))]


def list_commands() -> list[str]:
    names = [f"python3.{minor}" for minor in MINORS]
    folders = [Path(each) for each in os.get_exec_path()]
    on_path = [folder / name for folder in folders for name in names if (folder / name).exists()]
    return [*map(str, on_path), *list_in_pyenv("python3.[0-9]*")]


def find_interpreters(named: str = "") -> list[Interpreter]:
    """One for each minor version, oldest first; a line for each command that is left out."""
    newest: dict[str, Interpreter] = {}
    for command in named.split() or list_commands():
        each = probe(command) or probe_in_pyenv(Path(command).name)
        if each is None and shutil.which(command) is None:
            raise SystemExit(f"nsqfast: there is no {command}")
        if each is None:
            print(f"nsqfast: {command} is left out: it does not run, or is no CPython from 3.11 on")
            continue
        other = newest.get(each.series)
        if other is None or (other.has_header, other.version) < (each.has_header, each.version):
            newest[each.series] = each
    if not newest:
        raise SystemExit("nsqfast: no CPython from 3.11 on")
    return sorted(newest.values(), key=lambda each: each.version)


def probe_in_pyenv(name: str) -> Interpreter | None:
    """What a shim of pyenv would run if its version was chosen; the newest of several."""
    found = filter(None, map(probe, list_in_pyenv(name)))
    return max(found, key=lambda each: each.version, default=None)


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
