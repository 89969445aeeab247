"""Whether an event loop turns on for a moment instead of going to sleep."""

from libc.stdint cimport int64_t, uint32_t


cdef class Look:
    cdef bint is_on              # turns are asked for although nothing has come
    cdef int64_t until_ns
    cdef uint32_t misses         # looks in a row in which nothing came
    cdef uint32_t left_out       # since the last one

    cdef void begin(self) noexcept
    cdef void find(self) noexcept
    cdef void check(self) noexcept
    cdef void stop(self) noexcept
