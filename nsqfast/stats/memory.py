"""Memory and garbage-collection figures under the names that NSQ reports from Go's runtime.

The nearest equivalents in a Python program:

    heap_objects          memory blocks that the interpreter holds
    heap_in_use_bytes     resident memory without what malloc holds unused: the compiled core's messages are in it
    heap_idle_bytes       unused bytes that malloc holds, and those of the next line
    heap_released_bytes   resident at the peak, but no longer
                          (in use + idle - released is what it has of the system now, as with Go)
    gc_pause_usec_*       largest, 99 % and 95 % quantile of the last 256 collections
    next_gc_bytes         always 0: collections are triggered by counts of objects, not by bytes
    gc_total_runs         collections so far, of all generations
"""

import ctypes
import gc
import os
import resource
import sys
import time
from collections import deque
from pathlib import Path

_PAGE_SIZE = os.sysconf("SC_PAGE_SIZE")
_PAUSES_COUNT_MAX = 256


class _MallInfo2(ctypes.Structure):
    """The result of mallinfo2(3)."""

    _fields_ = tuple(
        (name, ctypes.c_size_t)
        for name in (
            "arena ordblks smblks hblks hblkhd usmblks fsmblks uordblks fordblks keepcost".split()
        )
    )


class GcPauses:
    """Durations of the last collections, recorded from construction on."""

    def __init__(self) -> None:
        self._begun_ns = 0
        self._pauses_ns: deque[int] = deque(maxlen=_PAUSES_COUNT_MAX)
        gc.callbacks.append(self._watch)

    def _watch(self, phase: str, _info: dict[str, int]) -> None:
        now_ns = time.perf_counter_ns()
        if phase == "start":
            self._begun_ns = now_ns
        else:
            self._pauses_ns.append(now_ns - self._begun_ns)

    def quantile_us(self, quantile: float) -> int:
        """The quantile in microseconds; 0 before the first collection."""
        ordered = sorted(self._pauses_ns)
        if not ordered:
            return 0
        return ordered[min(int(quantile * len(ordered)), len(ordered) - 1)] // 1000


_pauses = GcPauses()


def resident_bytes() -> int:
    """Memory of this process that is now in RAM."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * _PAGE_SIZE


def _free_bytes() -> int:
    mallinfo2 = getattr(ctypes.CDLL(None), "mallinfo2", None)
    if mallinfo2 is None:
        return 0  # not glibc
    mallinfo2.restype = _MallInfo2
    return int(mallinfo2().fordblks)


def memory_stats() -> dict[str, int]:
    """All figures, in NSQ's order."""
    resident = resident_bytes()
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    released = max(peak - resident, 0)
    unused = min(_free_bytes(), resident)
    return {
        "heap_objects": sys.getallocatedblocks(),
        "heap_idle_bytes": unused + released,
        "heap_in_use_bytes": resident - unused,
        "heap_released_bytes": released,
        "gc_pause_usec_100": _pauses.quantile_us(1.0),
        "gc_pause_usec_99": _pauses.quantile_us(0.99),
        "gc_pause_usec_95": _pauses.quantile_us(0.95),
        "next_gc_bytes": 0,
        "gc_total_runs": sum(generation["collections"] for generation in gc.get_stats()),
    }
