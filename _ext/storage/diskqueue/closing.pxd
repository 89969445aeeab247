"""A clean stop: what a queue holds in memory goes to disk, then all queues are synced and closed."""

from libc.stdint cimport int64_t, uint64_t

from nsqfast._ext.core.message cimport Delivery
from nsqfast._ext.storage.diskqueue.backlog cimport Backlog
from nsqfast._ext.storage.diskqueue.deferred cimport Deadlines
from nsqfast._ext.storage.diskqueue.syncer cimport Syncer
from nsqfast._ext.storage.engine cimport Closing


cdef class DiskClosing(Closing):
    cdef Backlog backlog
    cdef int64_t batch_size      # bytes of the open batch
    cdef int64_t batch_count     # its messages that have no other record
    cdef Deadlines deadlines

    cdef int begin_deferred(self) except -1
    cdef int lose(self, int64_t count) except -1


cdef class GroupClosing:
    cdef Syncer syncer
    cdef object on_progress         # called often: how many are on disk as a whole, and how many are closed
    cdef Py_ssize_t synced_count
    cdef Py_ssize_t closed_count
    cdef list errors                # raised by closing

    cdef list run(self, object queues)
    cdef int close_group(self, list group) except -1
    cdef int close_all(self, list group, int step) except -1
    cdef uint64_t close_some(self, list queues, int step) except? 0
    cdef int wait(self, uint64_t ticket) except -1
    cdef int tell(self) except -1
