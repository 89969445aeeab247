"""Makes the sdist and wheels in dist/: `python -m wheels.build`, or with --native for this environment's Python alone.

Everything happens in build/wheels, in a copy of the sources: the build that is running stays as it is. Wheels are made
from the unpacked sdist, so that a file which it lacks is missed at once. All interpreters share the translation to C.
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

from wheels.interpreters import Interpreter, find_interpreters, find_own
from wheels.sources import ROOT, copy_sources
from wheels.toolchain import Toolchain, use_native, use_zig

PLACE = ROOT / "build" / "wheels"
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


def make_wheel(source: Path, interpreter: Interpreter, toolchain: Toolchain, target: Path) -> None:
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
        BIN / "auditwheel", "repair", "--plat", toolchain.policy, *only, "--wheel-dir", target, wheel,
        **read_commit_time(),
    )  # fmt: skip
    (made,) = target.glob(f"nsqfast-*-{interpreter.tag}-{interpreter.tag}-*.whl")
    seconds = time.monotonic() - started
    print(
        f"nsqfast: {made.name}, {made.stat().st_size / 1e6:.1f} MB, Python {interpreter}, {seconds:.0f} s"
    )


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
    for old in flags.target.glob("nsqfast-*"):
        old.unlink()
    toolchain = use_native() if flags.native else use_zig(PLACE / "bin")
    sdist = make_sdist(flags.target)
    print(f"nsqfast: {sdist.name}, {sdist.stat().st_size / 1e6:.1f} MB")
    source = unpack(sdist)
    for each in found:
        if each.has_header:
            make_wheel(source, each, toolchain, flags.target)


if __name__ == "__main__":
    main()
