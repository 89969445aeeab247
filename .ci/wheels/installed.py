"""Runs tests against the wheels in dist/ as a user would have them: `python -m wheels.installed [pytest's flags]`.

Each is installed in a clean room, and a copy of the tests runs there, as root and as nobody.
"""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

from wheels.clean_room import CleanRoom
from wheels.interpreters import Interpreter, find_interpreters, find_own, wheel_pattern
from wheels.sources import ROOT, list_sources

EXTRAS = "server,admin,arrow,opentelemetry"
TESTS = [
    "tests/nsqd",
    "tests/nsqlookupd",
    "tests/client",
    "tests/net",
    "tests/streams",
    "tests/compat",
]
# What is being tested is the wheel, so none of this may be near.
NOT_COPIED = ("nsqfast/", "_ext/", "spark_jobs/", "setup.py", "wheels/")
# Probes are compiled in a checkout alone. The others look at the checkout itself, or at a wheel's environment from it.
NEEDS_CHECKOUT = re.compile(r"_ext\.dev|_ext import dev|support\.(core|plain_install|imports)\b")
WHERE = """
import nsqfast, nsqfast._ext.core.guid as compiled
print(nsqfast.__file__, compiled.__file__, sep="\\n")
"""


def list_wheels(folder: Path) -> dict[str, Path]:
    """By the tag of their Python."""
    found = {path.name.split("-")[2]: path for path in folder.glob(wheel_pattern())}
    if not found:
        raise SystemExit(f"nsqfast: no wheel in {folder}: make wheel")
    return found


def copy_tests(target: Path) -> None:
    """All of the checkout that is not what a wheel is made of, and where there are, the programs in Go."""
    for name in list_sources() or []:
        if not name.startswith(NOT_COPIED):
            place = target / name
            place.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, place, follow_symlinks=False)
    if (ROOT / ".go-nsq").exists():
        shutil.copytree(ROOT / ".go-nsq", target / ".go-nsq")
    subprocess.run(["chmod", "-R", "a+rX", target], check=True)


def list_left_out(folder: Path, tests: list[str]) -> list[str]:
    files = [path for name in tests for path in (folder / name).rglob("*.py")]
    named = [path for path in files if NEEDS_CHECKOUT.search(path.read_text(encoding="utf-8"))]
    return sorted(str(path.relative_to(folder)) for path in named)


def test(interpreter: Interpreter, wheel: Path, words: list[str]) -> bool:
    with CleanRoom(interpreter) as room:
        room.install("--upgrade", "pip>=25.1")
        room.install(f"{wheel}[{EXTRAS}]")
        group = f"{ROOT / 'pyproject.toml'}:wheel-tests"
        room.install("--no-binary=pynsq", "--group", group)
        copy_tests(room.work)
        places = room.ask("python", "-c", WHERE).stdout.split()
        assert len(places) == 2, places
        assert all(place.startswith(str(room.venv)) for place in places), places
        named = [word for word in words if word.startswith("tests/")] or TESTS
        left_out = list_left_out(room.work, named)
        command = ["python", "-m", "pytest", "-q", "-p", "no:cacheprovider", *named]
        command += [word for word in words if word not in named]
        command += [f"--ignore={name}" for name in left_out]
        print(
            f"nsqfast: {wheel.name} on Python {interpreter}, {len(left_out)} files need a checkout",
            flush=True,
        )
        if os.geteuid():
            return room.run(*command).returncode == 0
        print("nsqfast: as root", flush=True)
        passed = room.run(*command).returncode == 0
        print("nsqfast: as nobody", flush=True)
        return room.run_as_nobody(*command).returncode == 0 and passed


def main() -> None:
    wheels = list_wheels(ROOT / "dist")
    words = sys.argv[1:]
    if "-m" not in words:
        words += ["-m", "not slow and not soak and not trust"]
    found = {
        each.tag: each for each in [*find_interpreters(os.environ.get("PYTHONS", "")), find_own()]
    }
    for tag in sorted(wheels.keys() - found.keys()):
        print(f"nsqfast: {wheels[tag].name} is not tested, there is no such Python here")
    passed = [test(found[tag], wheels[tag], words) for tag in sorted(wheels.keys() & found.keys())]
    sys.exit(not (passed and all(passed)))


if __name__ == "__main__":
    main()
