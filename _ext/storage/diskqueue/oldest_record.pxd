"""Finds when the next record of a queue on disk was published."""

from libc.stdint cimport int64_t

from nsqfast._ext.storage.diskqueue.reader cimport DiskReader


cdef enum:
    UNREADABLE = -1


cdef class OldestRecord:
    # Where the last result was read.
    cdef int64_t file
    cdef int64_t position
    cdef int64_t timestamp_ns    # 0: not read yet

    cdef int64_t find_timestamp_ns(self, DiskReader reader) except -2
