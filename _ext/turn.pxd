"""What the end of a loop turn decides: whether to look again at once, what to take later, what to give back."""

from libc.stdint cimport int64_t, uint32_t

from nsqfast._ext.consumer cimport Consumer
from nsqfast._ext.heap cimport Timed, Timers


cdef class Look:
    cdef bint is_on              # turns are asked for although nothing has come
    cdef int64_t until_ns
    cdef uint32_t misses         # looks in a row in which nothing came
    cdef uint32_t left_out       # since the last one

    cdef void begin(self, Py_ssize_t written_size) noexcept
    cdef void check(self) noexcept
    cdef void stop(self) noexcept


cdef class PutOff(Timed):
    cdef Timers timers
    cdef list consumers

    cdef int add(self, Consumer consumer) except -1
    cdef int on_deadline(self, int64_t now_ns) except -1


cdef class Release(Timed):
    cdef Timers timers

    cdef int check(self) except -1
    cdef int on_deadline(self, int64_t now_ns) except -1
