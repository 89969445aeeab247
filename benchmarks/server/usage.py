"""What the operating system charges a process with: CPU time and resident memory."""

from __future__ import annotations

import contextlib
import os
import time
from pathlib import Path

# A clock id made of a process id: the CPU time of all threads of that process (see CPUCLOCK_SCHED in
# Linux' posix-timers.h; clock_getcpuclockid(3) makes the same number).
_PROCESS_CLOCK = 2
_RESET_PEAK = "5"


def cpu_ns(pid: int) -> int:
    """User and system time of all threads since the process began."""
    return time.clock_gettime_ns((~pid << 3) | _PROCESS_CLOCK)


def resident_bytes(pid: int) -> int:
    """Memory of the process that is in RAM now."""
    pages = int(Path(f"/proc/{pid}/statm").read_text(encoding="ascii").split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


def peak_resident_bytes(pid: int) -> int:
    """The most that was in RAM since `reset_peak`."""
    for line in Path(f"/proc/{pid}/status").read_text(encoding="ascii").splitlines():
        name, _, value = line.partition(":")
        if name == "VmHWM":
            return int(value.split()[0]) * 1024
    raise ProcessLookupError(f"process {pid} has no VmHWM: it has ended")


def reset_peak(pid: int) -> None:
    """Lets the peak begin anew; where a kernel refuses, the peak stays that of the whole life."""
    with contextlib.suppress(PermissionError, FileNotFoundError):
        Path(f"/proc/{pid}/clear_refs").write_text(_RESET_PEAK, encoding="ascii")


class Meter:
    """The cost of one broker from here on."""

    def __init__(self, pid: int) -> None:
        self._pid = pid
        reset_peak(pid)
        self._cpu_ns = cpu_ns(pid)

    def spent(self, messages: int) -> dict[str, float]:
        """What was used since the meter was made, per message."""
        used_ns = cpu_ns(self._pid) - self._cpu_ns
        return {
            "broker_cpu_us": used_ns / 1000 / messages,
            "peak_rss_bytes": float(peak_resident_bytes(self._pid)),
        }
