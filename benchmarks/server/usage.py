"""CPU time and resident memory of a process, as the operating system counts them."""

from __future__ import annotations

import contextlib
import os
import time
from pathlib import Path

# A clock id computed from a process id: the CPU time of all threads of that process (see CPUCLOCK_SCHED in Linux'
# posix-timers.h; clock_getcpuclockid(3) computes the same number).
_PROCESS_CLOCK = 2
_RESET_PEAK = "5"


def cpu_ns(pid: int) -> int:
    """Return user and system time of all threads since the process began."""
    return time.clock_gettime_ns((~pid << 3) | _PROCESS_CLOCK)


def resident_bytes(pid: int) -> int:
    """Return the memory of the process that is in RAM now."""
    pages = int(Path(f"/proc/{pid}/statm").read_text(encoding="ascii").split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


def peak_resident_bytes(pid: int) -> int:
    """Return the maximum in RAM since `reset_peak`."""
    for line in Path(f"/proc/{pid}/status").read_text(encoding="ascii").splitlines():
        name, _, value = line.partition(":")
        if name == "VmHWM":
            return int(value.split()[0]) * 1024
    raise ProcessLookupError(f"process {pid} has no VmHWM: it has ended")


def reset_peak(pid: int) -> None:
    """Start a new peak; if the kernel refuses, the peak remains that of the process's whole life."""
    with contextlib.suppress(PermissionError, FileNotFoundError):
        Path(f"/proc/{pid}/clear_refs").write_text(_RESET_PEAK, encoding="ascii")


class Meter:
    """Measures the cost of one broker from here on."""

    def __init__(self, pid: int) -> None:
        self._pid = pid
        reset_peak(pid)
        self._cpu_ns = cpu_ns(pid)

    def spent(self, messages: float) -> dict[str, float]:
        """Return what was used since the meter was created, per message."""
        used_ns = cpu_ns(self._pid) - self._cpu_ns
        return {
            "broker_cpu_us": used_ns / 1000 / messages,
            "peak_rss_bytes": float(peak_resident_bytes(self._pid)),
        }
