"""How long messages took from publish to FIN over the last minutes."""

from libc.stdint cimport int64_t, uint32_t, uint64_t


cdef class Latency:
    #   values in ns:  0 .. 63 | 64 steps for each doubling from there on
    # Two histograms, each filled for half of the window; a query adds both.
    cdef uint32_t *counts[2]     # NULL until the first value
    cdef int64_t half_window_ns
    cdef int current
    cdef int64_t rotate_ns       # when the histograms swap and the older one is cleared

    cdef int record(self, int64_t value_ns, int64_t now_ns) except -1
    cdef int rotate(self, int64_t now_ns) noexcept
    cdef int add_to(self, uint64_t *sums) noexcept
