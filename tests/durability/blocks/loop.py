"""File systems of a test's own on a loop device: filled to the last byte, shut down, mounted read-only."""

from __future__ import annotations

import contextlib
import fcntl
import os
import struct
import subprocess
import time
from typing import TYPE_CHECKING

import pytest

from durability.blocks import machine
from durability.blocks.filesystems import FILE_SYSTEMS

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

SHUT_DOWN = 0x8004587D
WITHOUT_FLUSH = struct.pack("I", 2)


@contextlib.contextmanager
def mounted(name: str) -> Iterator[Path]:
    """The folder of an empty one; the test is skipped where this machine has none."""
    kind = FILE_SYSTEMS[name]
    if os.geteuid() or not os.access("/dev/loop-control", os.R_OK | os.W_OK):
        pytest.skip("loop devices need root and /dev/loop-control")
    if not kind.is_there():
        pytest.skip(f"{kind.make[0]} is missing: apt install {kind.package}")
    with contextlib.ExitStack() as stack:
        try:
            scratch = stack.enter_context(machine.scratch())
            kind.make_on(scratch / "image")
            options = f"loop,{kind.options}"
            folder = machine.mounted(name, str(scratch / "image"), scratch / "disk", options)
            yield stack.enter_context(folder)
        except machine.MountError as error:
            pytest.skip(f"{name} is not mounted here: {str(error).splitlines()[0]}")


def fill(folder: Path) -> Path:
    """Not one byte is left; the file that took them."""
    filler = folder / "filler"
    with filler.open("wb", buffering=0) as file:
        for size in (1 << 20, 65536, 4096, 1):
            with contextlib.suppress(OSError):
                while file.write(os.urandom(size)):
                    pass
        with contextlib.suppress(OSError):
            os.fsync(file.fileno())
    return filler


def remount(folder: Path, option: str, seconds_max: float = 10.0) -> None:
    """As soon as nothing in it is open for writing."""
    command = ["mount", "-o", f"remount,{option}", str(folder)]
    end = time.monotonic() + seconds_max
    while (done := subprocess.run(command, capture_output=True, check=False)).returncode:
        assert time.monotonic() < end, done.stderr


def shut_down(folder: Path) -> None:
    """As after an error from which it does not recover; what is not flushed is dropped."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        fcntl.ioctl(descriptor, SHUT_DOWN, WITHOUT_FLUSH)
    finally:
        os.close(descriptor)


def mount_again(folder: Path, name: str) -> None:
    """As after a reboot.

    What the disk holds is copied: whoever still has a file or a namespace there keeps what was shut down, and a mount
    of the same disk would be the same, shut down.
    """
    machine.unmount(folder)
    image = folder.parent / "image again"
    subprocess.run(["cp", "--sparse=always", str(folder.parent / "image"), str(image)], check=True)
    machine.mount(name, str(image), folder, f"loop,{FILE_SYSTEMS[name].options}")
