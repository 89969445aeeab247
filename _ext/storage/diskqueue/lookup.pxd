"""Records of a queue on disk that were taken from it, read again by their ordinals."""

from libc.stdint cimport int64_t, uint64_t

from nsqfast._ext.core.memory cimport Account
from nsqfast._ext.core.message cimport Message
from nsqfast._ext.storage.diskqueue.cold_reads cimport ColdRead, ReadOwner
from nsqfast._ext.storage.diskqueue.reader cimport DiskReader, Spot
from nsqfast._ext.storage.scan cimport Reads


cdef class Lookup(ReadOwner):
    cdef Account *account
    cdef DiskReader reader
    cdef char *data              # of the file, from `start` on
    cdef int64_t capacity
    cdef int64_t file
    cdef int64_t start
    cdef int64_t size
    cdef int64_t want            # the size of the last read
    cdef int64_t pending_file
    cdef int error               # errno of the last cold read, if the next fill() has to mind it

    cdef Message *find(self, uint64_t ordinal, uint64_t id) except? NULL
    cdef bint fill(self, int64_t file, int64_t position, int64_t size) except -1
    cdef bint read(self, int fd, int64_t position, int64_t size) except -1
    cdef int widen(self, int64_t size) except -1
    cdef int drop_pending(self) noexcept
    cdef int end_read(self, ColdRead *done) except -1


cdef class DiskReads(Reads):
    cdef DiskReader reader
    cdef bytes prefix
    cdef const char *prefix_text
    cdef Spot *spots
    cdef size_t count
    cdef size_t capacity
    cdef int fd                  # of the file of the last read; -1 = none
    cdef int64_t file

    cdef bint open(self, int64_t file) noexcept nogil
