"""The compilers that wheels are built with, and the oldest glibc that each result runs on.

This machine's compiler compiles, as for everybody who builds from the sources: same code, same speed.
Zig links, since it brings the stubs of every glibc: what is linked against those of 2.28 asks for no symbol that this
one had not, which is the floor of manylinux_2_28, without a container. A symbol that came from a later header and that
2.28 has not is found by `tests/packaging/test_wheel.py`.
"""

import importlib.util
import os
import platform
import shlex
from dataclasses import dataclass
from pathlib import Path

GLIBC_MIN = (2, 28)


@dataclass(frozen=True)
class Toolchain:
    environment: dict[str, str]  # of the build
    policy: str  # what auditwheel makes of the result


LINKER = """#!/bin/sh
for word; do
    if [ "$word" = -shared ]; then exec {zig} cc -target {target} "$@"; fi
done
exec {compiler} "$@"
"""


def use_zig(folder: Path) -> Toolchain:
    """Write a compiler named cc into a folder, which links against the old glibc."""
    package = importlib.util.find_spec("ziglang")
    if package is None or not package.submodule_search_locations:
        raise SystemExit("nsqfast: ziglang is not installed: pip install --group wheels")
    zig = Path(package.submodule_search_locations[0]) / "zig"
    machine = platform.machine()
    target = "{}-linux-gnu.{}.{}".format(machine, *GLIBC_MIN)
    folder.mkdir(parents=True, exist_ok=True)
    compiler = folder / "cc"
    own = os.environ.get("CC", "gcc")
    compiler.write_text(
        LINKER.format(zig=shlex.quote(str(zig)), target=target, compiler=own), encoding="utf-8"
    )
    compiler.chmod(0o755)
    caches = {
        f"ZIG_{name}_CACHE_DIR": str(folder.parent / "zig-cache") for name in ("GLOBAL", "LOCAL")
    }
    return Toolchain(
        _name_compiler(str(compiler)) | caches,
        "manylinux_{}_{}_{}".format(*GLIBC_MIN, machine),
    )


def use_native() -> Toolchain:
    return Toolchain(_name_compiler(os.environ.get("CC", "cc")), "auto")


def _name_compiler(command: str) -> dict[str, str]:
    # LDSHARED, too: an interpreter that was built with -rpath would leave its own folder in every module.
    return {"CC": command, "CXX": command, "LDSHARED": f"{command} -shared -Wl,-s"}
