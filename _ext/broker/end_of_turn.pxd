"""What is left to the end of a loop turn: consumers that take more, memory to give back, work on topics."""

from libc.stdint cimport int64_t

from nsqfast._ext.broker.consumer cimport Consumer
from nsqfast._ext.core.heap cimport Timed, Timers
from nsqfast._ext.storage.diskqueue.backlog cimport Storage


cdef class PutOff(Timed):
    cdef Timers timers
    cdef list consumers          # Consumer

    cdef int add(self, Consumer consumer) except -1
    cdef int call(self, Consumer consumer) except -1
    cdef int on_deadline(self, int64_t now_ns) except -1


cdef class CutOff(PutOff):
    pass


cdef class Release(Timed):
    cdef Timers timers

    cdef int check(self) except -1
    cdef int on_deadline(self, int64_t now_ns) except -1


cdef class TopicStorage(Storage):
    cdef list unwritten          # topics that postponed a write in this turn
    cdef list uncounted          # (ticket, topic, its counts) of messages that wait for an fsync
    cdef dict deleting           # name -> topic whose channels are still being deleted
    cdef object on_mixed         # does the postponed writes; None without a registry

    cdef int begin_deletion(self, str name, object topic) except -1
    cdef int end_deletion(self, str name) except -1
    cdef int write_batch(self) except -1
    cdef int close(self) except -1
