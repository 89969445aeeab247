"""Finds the deferred messages of a queue on disk again after a clean stop."""

from libc.stdint cimport int64_t, uint64_t

from nsqfast._ext.core.message cimport Delivery
from nsqfast._ext.storage.diskqueue.deadlines cimport Deadlines
from nsqfast._ext.storage.diskqueue.reader cimport DiskReader
from nsqfast._ext.storage.diskqueue.segment cimport Segment


cdef class DiskDeferred:
    cdef DiskReader reader
    cdef Deadlines deadlines
    cdef Segment segment
    cdef uint64_t number            # of those checked
    cdef int64_t file
    cdef int64_t position

    cdef Delivery *next(self, int64_t *due_ns) except? NULL
    cdef bint find(self) except -1
    cdef bint open(self) except -1
