"""Limits the log lines that one peer may cause."""

from libc.stdint cimport int64_t, uint64_t


cdef class Allowance:
    cdef int64_t used_ns    # each line advances it by a step; it may run a limited number of steps ahead of the clock
    cdef int64_t line_ns    # a step
    cdef int64_t ahead_ns
    cdef uint64_t left_out  # lines since the last one that was logged

    cdef bint has_line(self, int64_t now_ns) noexcept


cdef class LogQuota:
    cdef Allowance own
    cdef Allowance of_address
