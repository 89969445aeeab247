"""Whether an event loop, or a thread that waits for a peer, turns on for a moment instead of going to sleep."""

from libc.stdint cimport int64_t, uint32_t


cdef class BusyPoll:
    cdef bint is_on              # turns are asked for although nothing has come
    cdef int64_t until_ns
    cdef uint32_t misses         # looks in a row in which nothing came
    cdef uint32_t left_out       # since the last one

    cdef void begin(self, int64_t now_ns) noexcept nogil
    cdef void find(self) noexcept nogil
    cdef void check(self, int64_t now_ns) noexcept nogil
    cdef void stop(self) noexcept nogil
