"""The compilers that wheels are built with, and the oldest glibc that each result runs on.

Zig brings clang and the stubs of every glibc, so what it links asks for no symbol that 2.28 had not: the floor of
manylinux_2_28, without a container. The machine's own compiler gives the glibc of the machine.
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


def use_zig(folder: Path) -> Toolchain:
    """Write a compiler named cc into a folder, which is Zig's with the old glibc for a target."""
    package = importlib.util.find_spec("ziglang")
    if package is None or not package.submodule_search_locations:
        raise SystemExit("nsqfast: ziglang is not installed: pip install --group wheels")
    zig = Path(package.submodule_search_locations[0]) / "zig"
    machine = platform.machine()
    glibc = ".".join(map(str, GLIBC_MIN))
    folder.mkdir(parents=True, exist_ok=True)
    compiler = folder / "cc"
    # Zig adds checks for undefined behaviour that end the process, unless it is told not to.
    compiler.write_text(
        "#!/bin/sh\n"
        f"exec {shlex.quote(str(zig))} cc -target {machine}-linux-gnu.{glibc} "
        '-fno-sanitize=undefined "$@"\n'
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
