"""Decides whether an event loop, or a thread that waits for a peer, keeps polling for a moment instead of sleeping."""

from libc.stdint cimport int64_t, uint32_t


cdef class BusyPoll:
    cdef bint is_on              # the loop keeps turning although nothing has come
    cdef int64_t until_ns
    cdef uint32_t misses         # polls in a row in which nothing came
    cdef uint32_t skipped        # polls skipped since the last one

    cdef void begin(self, int64_t now_ns) noexcept nogil
    cdef void find(self) noexcept nogil
    cdef void check(self, int64_t now_ns) noexcept nogil
    cdef void stop(self) noexcept nogil
