"""Bytes that the disk does not return: how long they are tried for, and how they are kept for the next start."""

from libc.stdint cimport int64_t

from nsqfast._ext.storage.diskqueue.cold_reads cimport ColdRead, ColdReads, ReadOwner
from nsqfast._ext.storage.diskqueue.segment cimport Segment
from nsqfast._ext.storage.health cimport Health


cdef class DeviceProbe(ReadOwner):
    cdef Health health
    cdef size_t count       # of the pages asked for

    cdef int ask(self, str prefix, str path, int64_t position, ColdReads cold) except -1
    cdef bint read_page(self, str path, int64_t position, ColdReads cold) except -1


cdef class Unreadable:
    # Of one queue.
    cdef Health health
    cdef str prefix
    cdef dict since         # (file, start) -> (end, when it failed first, ns): whole pages; None = nothing fails
    cdef int64_t failed_ns  # when a read failed last
    cdef DeviceProbe probe  # None until it is needed

    cdef bint is_lasting(self, int64_t file, int64_t start, int64_t end, ColdReads cold) except -1
    cdef int64_t note(self, int64_t file, int64_t start, int64_t end, int64_t now_ns) except -1
    cdef int begin_try(self) except -1
    cdef bint is_any_new(self) except -1
    cdef int forget_before(self, int64_t file, int64_t position) except -1


cdef str keep_unread(str name, Segment segment, int64_t start, int64_t end)
cdef bint wait_at_start(str name, Segment segment) except -1
