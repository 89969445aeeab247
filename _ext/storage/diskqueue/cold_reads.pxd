"""Reads that would have to wait for a disk, done by a thread."""

from libc.stdint cimport int64_t

from nsqfast._ext.core.heap cimport Timed, Timers
from nsqfast._ext.storage.diskqueue.syncer cimport Syncer


cdef extern from "storage/diskqueue/cold_reads.h" nogil:
    ctypedef struct ColdRead "nsq_cold_read":
        ColdRead *next
        void *owner
        int fd
        char *data
        int64_t position, size, got
        int error

    ctypedef struct Thread "nsq_cold_reader":
        pass

    ssize_t read_cached "nsq_read_cached"(int fd, char *data, size_t size, int64_t position)


cdef class ReadOwner:
    cdef ColdRead *pending           # what it waits for; NULL = nothing
    cdef Timed taker                 # is armed when it is there

    cdef int end_read(self, ColdRead *done) except -1


cdef class ColdReads:
    cdef Thread *thread              # NULL until it is needed
    cdef Syncer syncer               # its event tells the loop
    cdef Timers timers

    cdef bint request(self, ReadOwner owner, int fd, int64_t position, int64_t size) except -1
    cdef int collect(self) except -1
    cdef void stop(self) noexcept
