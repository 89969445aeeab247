"""What a reader needs to know about the machine and the measured programs."""

from __future__ import annotations

import importlib.metadata
import os
import platform
import shutil
import subprocess
from pathlib import Path

import nsqfast
from server.implementation import ROOT, go_version
from server.redis import redis_version

PACKAGES = ("uvloop", "Cython")


def describe(data_folder: Path) -> dict[str, str]:
    """Return facts by the name that the report shows."""
    facts = {
        "CPU": cpu_model(),
        "cores": str(len(os.sched_getaffinity(0))),
        "memory": f"{memory_bytes() / (1 << 30):.1f} GiB",
        "kernel": f"{platform.system()} {platform.release()}",
        "file system of the data": file_system(data_folder),
        "load average at the start": f"{os.getloadavg()[0]:.2f}",
        "nsqfast": f"{nsqfast.__version__} ({commit() or 'no git commit'})",
        "Python": f"{platform.python_implementation()} {platform.python_version()}",
    }
    facts |= {name: version for name in PACKAGES if (version := package_version(name))}
    facts["Go nsqd"] = go_version() or "none"
    facts["Redis"] = redis_version() or "none"
    facts["wrk"] = wrk_version() or "none"
    return facts


def cpu_model() -> str:
    """As the kernel names it."""
    for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
        name, _, value = line.partition(":")
        if name.strip() in ("model name", "Model", "cpu model"):
            return value.strip()
    return platform.machine()


def memory_bytes() -> int:
    """That of the whole machine."""
    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


def file_system(folder: Path) -> str:
    """Return the type of the file system that contains a folder."""
    folder = folder.resolve()
    best, kind = "", "unknown"
    for line in Path("/proc/self/mounts").read_text(encoding="utf-8").splitlines():
        _, point, name = line.split()[:3]
        # The last mount on a point is the visible one.
        if len(point) >= len(best) and folder.is_relative_to(point):
            best, kind = point, name
    return kind


def commit() -> str | None:
    """Return the commit of the checkout, marked if there are changes on top."""
    git = shutil.which("git")
    if git is None:
        return None
    done = subprocess.run(
        [git, "describe", "--always", "--dirty", "--abbrev=12"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    return done.stdout.strip() or None


def package_version(name: str) -> str | None:
    """That of an installed package."""
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return None


def wrk_version() -> str | None:
    """wrk --version prints it with an error."""
    program = shutil.which("wrk")
    if program is None:
        return None
    said = subprocess.run([program, "--version"], capture_output=True, text=True, check=False)
    words = (said.stdout + said.stderr).split()
    return words[1] if len(words) > 1 else None
