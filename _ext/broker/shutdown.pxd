"""A clean stop of all queues."""

from libc.stdint cimport uint64_t

from nsqfast._ext.storage.diskqueue.backlog cimport Storage


cdef class Shutdown:
    cdef Storage storage
    cdef list topics                # Topic
    cdef object on_progress         # (number of queues, those synced, those closed), called often; or None
    cdef Py_ssize_t count           # number of queues
    cdef Py_ssize_t synced_count    # those whose content is on disk
    cdef Py_ssize_t closed_count
    cdef list flushes               # (name, Flush) of those that have files
    cdef list errors                # raised by closing

    cdef int close_group(self, list group) except -1
    cdef int close_all(self, list group, int step) except -1
    cdef uint64_t close_some(self, list queues, int step) except? 0
    cdef int wait(self, uint64_t ticket) except -1
    cdef int tell(self) except -1
    cdef object losses(self)
