"""Frees emptied and deleted messages, a part at a time, and lets an engine remove their files likewise."""

from libc.stdint cimport int64_t

from nsqfast._ext.core.budget cimport Budget
from nsqfast._ext.core.heap cimport Timed, Timers
from nsqfast._ext.core.ring cimport Ring


cdef class Disposal(Timed):
    cdef Timers timers
    cdef object on_freed         # called when all is freed: its memory can be returned
    cdef list left               # what was given to free_later()
    cdef list callbacks          # for the moment when no file is left to be removed
    cdef Py_ssize_t deletion_count   # deletions that go on in later turns, and then have files to be removed

    cdef int free_later(self, object held) except -1
    cdef int note_topic_deleted(self) except -1
    cpdef int begin(self) except -1
    cdef int when_removed(self, object callback) except -1
    cdef bint has_files(self) noexcept
    cdef bint remove_files(self, Budget *budget) except -1
    cdef int call_waiting(self) except -1
    cdef bint free_some(self, Budget *budget) except -1
    cdef int finish(self) except -1
    cdef int on_deadline(self, int64_t now_ns) except -1


cdef bint drop_ring(Ring ring, Budget *budget) noexcept
