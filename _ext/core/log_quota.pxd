"""Limits the log lines that one peer may cause."""

from libc.stdint cimport int64_t, uint64_t


cdef class LogQuota:
    cdef int64_t used_ns  # each line advances it by a step; it may run a limited number of steps ahead of the clock
    cdef readonly uint64_t left_out   # lines since the last one that was logged
