"""Decisions at the end of a loop turn: which consumers take more later, and what memory to give back."""

from libc.stdint cimport int64_t

from nsqfast._ext.broker.consumer cimport Consumer
from nsqfast._ext.core.heap cimport Timed, Timers


cdef class PutOff(Timed):
    cdef Timers timers
    cdef list consumers

    cdef int add(self, Consumer consumer) except -1
    cdef int call(self, Consumer consumer) except -1
    cdef int on_deadline(self, int64_t now_ns) except -1


cdef class CutOff(PutOff):
    pass


cdef class Release(Timed):
    cdef Timers timers

    cdef int check(self) except -1
    cdef int on_deadline(self, int64_t now_ns) except -1
