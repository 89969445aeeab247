"""Writes what a queue holds in memory to disk when the broker stops."""

from libc.stdint cimport int64_t

from nsqfast._ext.core.message cimport Delivery
from nsqfast._ext.storage.diskqueue.backlog cimport Backlog
from nsqfast._ext.storage.diskqueue.deadlines cimport Deadlines


cdef class Flush:
    cdef Backlog backlog
    cdef int64_t batch_size      # bytes of the open batch
    cdef int64_t batch_count     # its messages that have no other record
    cdef readonly int64_t lost_count
    cdef readonly object error   # the OSError that lost messages; None = nothing is lost

    cdef Deadlines deadlines

    cdef int add(self, Delivery *delivery) except -1
    cdef int begin_deferred(self) except -1
    cdef int add_deferred(self, Delivery *delivery, int64_t due_ns) except -1
    cdef int add_memory(self) except -1
    cdef int end(self) except -1
