"""What is mounted and attached for these tests stands beneath one tmpfs, and goes with it.

The tmpfs bears the process id of its test, so that the next run finds what a killed one left.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

SOURCE = "nsqfast-blocks-"
SCRATCH_SIZE = "3g"
PROGRAM = Path(__file__).with_name("log_disk.c")


class MountError(Exception):
    """The kernel does not mount this."""


def why_not() -> str:
    """Why block writes cannot be logged here, in a line; '' if they can."""
    if sys.platform != "linux" or os.geteuid():
        return "block devices need root on Linux"
    for device in ("/dev/fuse", "/dev/loop-control"):
        if not os.access(device, os.R_OK | os.W_OK):
            return f"there is no {device}"
    for tool, package in (("cc", "gcc"), ("pkg-config", "pkg-config"), ("losetup", "mount")):
        if not shutil.which(tool):
            return f"{tool} is missing: apt install {package}"
    if subprocess.run(["pkg-config", "--exists", "fuse3"], check=False).returncode:
        return "fuse3 is missing: apt install fuse3 libfuse3-dev"
    return _why_no_mount()


def _why_no_mount() -> str:
    """A container may show the devices and still forbid their use."""
    free = subprocess.run(["losetup", "--find"], capture_output=True, text=True, check=False)
    if free.returncode or not os.access(free.stdout.strip(), os.W_OK):
        return f"no loop device is free: {free.stdout.strip()}{free.stderr.strip()}"
    try:
        with scratch():
            return ""
    except MountError as error:
        return f"mounts are not permitted: {str(error).splitlines()[0]}"


def build_program(folder: Path) -> Path:
    """The file system that logs, compiled."""
    program = folder / "log_disk"
    flags = subprocess.run(
        ["pkg-config", "--cflags", "--libs", "fuse3"], check=True, capture_output=True, text=True
    ).stdout.split()
    command = ["cc", "-O2", "-Wall", "-Wextra", "-Werror", "-o", str(program), str(PROGRAM), *flags]
    subprocess.run(command, check=True)
    return program


def mounts() -> Iterator[tuple[str, Path]]:
    """(source, folder) of all mounts, in the order in which they were made."""
    for line in Path("/proc/self/mountinfo").read_text().splitlines():
        words = line.split(" ")
        source = words[words.index("-") + 2]
        yield source, Path(words[4].encode().decode("unicode_escape"))


def mount(kind: str, device: str, folder: Path, options: str) -> None:
    command = ["mount", "-t", kind, "-o", options, device, str(folder)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise MountError(done.stderr.strip())


def unmount(folder: Path) -> None:
    """If a process is still there, the mount ends with it."""
    if subprocess.run(["umount", str(folder)], capture_output=True, check=False).returncode:
        subprocess.run(["umount", "-l", str(folder)], check=False)


@contextlib.contextmanager
def mounted(kind: str, device: str, folder: Path, options: str) -> Iterator[Path]:
    folder.mkdir(exist_ok=True)
    mount(kind, device, folder, options)
    try:
        yield folder
    finally:
        unmount(folder)


@contextlib.contextmanager
def mounted_directly(kind: str, file: Path, folder: Path, options: str) -> Iterator[Path]:
    """Through a loop device that passes every request on to the file as it is, past the page cache."""
    command = ["losetup", "--find", "--show", "--direct-io=on", str(file)]
    device = subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()
    with contextlib.ExitStack() as stack:
        try:
            stack.enter_context(mounted(kind, device, folder, options))
        finally:
            # A device in use is detached when it is unmounted, even if nobody is left to ask for it.
            subprocess.run(["losetup", "-d", device], check=True)
        yield folder


def release_beneath(folder: Path) -> None:
    """Unmount and detach all that stands in the folder, whatever interrupted the test that put it there."""
    for _, place in reversed([*mounts()]):
        if place.is_relative_to(folder) and place != folder:
            unmount(place)
    listed = subprocess.run(
        ["losetup", "-l", "-n", "-O", "NAME,BACK-FILE"], capture_output=True, text=True, check=True
    )
    for line in listed.stdout.splitlines():
        device, _, file = line.partition(" ")
        if Path(file.strip()).is_relative_to(folder):
            subprocess.run(["losetup", "-d", device], capture_output=True, check=False)


def _release(folder: Path) -> None:
    release_beneath(folder)
    unmount(folder)
    folder.rmdir()


def release_leftovers() -> None:
    """A run that was killed left its mounts; whose process is gone, they are nobody's."""
    for source, folder in [*mounts()]:
        if source.startswith(SOURCE) and not Path("/proc", source.removeprefix(SOURCE)).exists():
            _release(folder)


@contextlib.contextmanager
def scratch() -> Iterator[Path]:
    """A tmpfs, in which images are copied fast and no flush waits for a real disk.

    It is not in pytest's folder, which is emptied before anything could be unmounted there; nor in /tmp, which another
    test has nsq_to_file look through: these disks fail, and one file system cannot be listed.
    """
    release_leftovers()
    folder = Path(tempfile.mkdtemp(prefix=SOURCE, dir="/var/tmp"))
    try:
        mount("tmpfs", f"{SOURCE}{os.getpid()}", folder, f"size={SCRATCH_SIZE}")
    except MountError:
        folder.rmdir()
        raise
    try:
        # A process in another boot, which has mounts of its own, sees what is mounted here later.
        subprocess.run(["mount", "--make-shared", str(folder)], check=True)
        yield folder
    finally:
        _release(folder)


@contextlib.contextmanager
def emptied(folder: Path) -> Iterator[Path]:
    """A folder within the scratch folder, for a test; what it holds costs memory."""
    folder.mkdir()
    try:
        yield folder
    finally:
        release_beneath(folder)
        shutil.rmtree(folder)
