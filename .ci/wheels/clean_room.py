"""A place with a wheel and nothing of this checkout: no compiler on PATH, no sources on sys.path, its own environment.

with CleanRoom(interpreter) as room:
    room.install("dist/nsqfast-...whl[server]")
    room.run("nsqfast-nsqd", "--version")
    room.run_as_nobody("nsqfast-nsqd", "--version")
"""

import os
import re
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import Self

from wheels.interpreters import Interpreter

NOBODY = 65534
COMPILER = re.compile(
    r"(.*-)?(cc|c\+\+|gcc|g\+\+|clang|clang\+\+|cpp|c89|c99|tcc|as|ld|ld\.\w+)(-[\d.]+)?"
)
# How the machine reaches its package index; nothing else of its environment gets in.
PASSED = re.compile(r"PIP_.*|.*_(PROXY|proxy)|.*CA_(BUNDLE|CERT).*|SSL_CERT_.*|NSQ_GO_BIN")
# Puts a folder that only root can read out of the way, but for what lies at `$2` in it: an interpreter of pyenv in
# root's home, say. Others see it where it thinks that it stands. Nobody else sees the difference.
OPEN_UP = """
set -e
closed=$1 prefix=$2 kept=$(mktemp -d); shift 2
mount --bind "$prefix" "$kept"
mount -t tmpfs -o mode=755 tmpfs "$closed"
mkdir -p "$prefix"
mount --bind "$kept" "$prefix"
umount "$kept" && rmdir "$kept"
exec "$@"
"""


class CleanRoom:
    def __init__(self, interpreter: Interpreter) -> None:
        self.interpreter = interpreter
        self.folder = Path(tempfile.mkdtemp(prefix="nsqfast-wheel-"))
        self.folder.chmod(0o755)
        self.venv = self.folder / "venv"
        self.work = self.folder / "work"
        self.environment = self._make_environment()

    def __enter__(self) -> Self:
        self.work.mkdir()
        subprocess.run([self.interpreter.path, "-m", "venv", self.venv], check=True)
        return self

    def __exit__(self, *_: object) -> None:
        shutil.rmtree(self.folder, ignore_errors=True)

    def _make_environment(self) -> dict[str, str]:
        tools = self.folder / "bin"
        tools.mkdir()
        for path in ("/usr/sbin", "/usr/bin", "/sbin", "/bin"):
            for tool in Path(path).iterdir():
                place = tools / tool.name
                if not COMPILER.fullmatch(tool.name) and not place.is_symlink():
                    place.symlink_to(tool)
        passed = {name: value for name, value in os.environ.items() if PASSED.fullmatch(name)}
        return passed | {
            "PATH": f"{self.venv / 'bin'}:{tools}",
            "HOME": str(self.folder),
            "LANG": "C.UTF-8",
            "CC": "/nonexistent/cc",
            "CFLAGS": "",
            "PIP_DISABLE_PIP_VERSION_CHECK": "1",
            "PYTHONDONTWRITEBYTECODE": "1",
        }

    def install(self, *words: str, is_pure: bool = False) -> None:
        """By pip, and nothing that would have to be compiled; `is_pure` admits sources in Python alone."""
        only = [] if is_pure else ["--only-binary=:all:"]
        self.run("python", "-m", "pip", "install", "-q", *only, *words, check=True)

    def run(self, *command: str, check: bool = False) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            self._find(command),
            cwd=self.work,
            env=self.environment,
            stdout=None,
            text=True,
            check=check,
        )

    def ask(self, *command: str) -> subprocess.CompletedProcess[str]:
        """The same, with what it says."""
        return subprocess.run(
            self._find(command),
            cwd=self.work,
            env=self.environment,
            capture_output=True,
            text=True,
            check=False,
        )

    def run_as_nobody(self, *command: str) -> subprocess.CompletedProcess[str]:
        """As a user without a home, a group or rights; only root can become that."""
        own = self.folder / "nobody"
        own.mkdir(exist_ok=True)
        os.chown(own, NOBODY, NOBODY)
        words = ["setpriv", f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups", "--"]
        words += self._find(command)
        closed = find_closed(self.interpreter.prefix)
        if closed is not None:
            before = [str(closed), str(self.interpreter.prefix)]
            words = ["unshare", "--mount", "sh", "-c", OPEN_UP, "sh", *before, *words]
        environment = self.environment | {"HOME": str(own), "TMPDIR": str(own)}
        return subprocess.run(words, cwd=self.work, env=environment, text=True, check=False)

    def measure_mb(self) -> float:
        """What a program's environment holds beside pip."""
        (site,) = self.venv.glob("lib/python3*/site-packages")
        own = [
            str(path) for path in site.iterdir() if not path.name.startswith(("pip", "setuptools"))
        ]
        command = ["du", "-c", "-s", "--apparent-size", "-B1", *own]
        said = subprocess.run(command, capture_output=True, text=True, check=True).stdout
        return int(said.splitlines()[-1].split()[0]) / 1e6

    def _find(self, command: tuple[str, ...]) -> list[str]:
        program = self.venv / "bin" / command[0]
        return [str(program) if program.exists() else command[0], *command[1:]]


def find_closed(path: Path) -> Path | None:
    """The folder on the way to it that only its owner may enter."""
    for each in reversed(path.parents):
        if not each.stat().st_mode & 0o001:
            return each
    return None
