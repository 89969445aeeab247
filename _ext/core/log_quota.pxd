"""How many lines of the log one peer may cause."""

from libc.stdint cimport int64_t, uint64_t


cdef class LogQuota:
    cdef int64_t used_ns              # each line takes a step of time, and so many may be taken in advance
    cdef readonly uint64_t left_out   # lines since the last that was written
