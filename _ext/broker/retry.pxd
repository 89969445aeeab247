"""How long a failed message waits before it is delivered again, by a policy."""

from libc.stdint cimport int64_t, uint16_t


cdef class Retry:
    cdef readonly int64_t min_ns
    cdef readonly int64_t max_ns
    cdef readonly double multiplier
    cdef readonly double jitter

    cdef int64_t delay_ns(self, uint16_t attempts, double share) noexcept
