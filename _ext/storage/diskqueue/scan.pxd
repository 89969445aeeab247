"""Reads the waiting records of a queue on disk without moving the queue's reader."""

from libc.stdint cimport int64_t, uint64_t

from nsqfast._ext.storage.diskqueue.reader cimport DiskReader
from nsqfast._ext.storage.scan cimport Quest, Scan


cdef class DiskScan(Scan):
    # The state when it was created
    cdef bytes prefix
    cdef const char *prefix_text
    cdef int64_t write_file
    cdef int64_t write_position
    cdef uint64_t first              # index of the record where it starts
    cdef uint64_t shift              # the reader's: another one means that its indexes are others
    cdef int64_t record_count        # from the first on; at most RECORDS_MAX
    cdef bint is_cut                 # there are more than that
    cdef uint64_t *passed            # bitmap: finished, or deferred; these do not wait here

    # The position
    cdef int fd
    cdef int64_t file
    cdef int64_t position
    cdef int64_t end                 # of the valid part of the file
    cdef int64_t number              # of the record at that position, relative to the first
    cdef char *window
    cdef int64_t window_start
    cdef int64_t window_size
    cdef bint is_sparse              # records are large: only the needed part of each is read

    cdef int start(self, DiskReader reader, uint64_t index, int64_t file, int64_t position) except -1
    cdef int end_before(self, uint64_t index) except -1
    cdef int note_passed(self, DiskReader reader) except -1
    cdef bint examine(self, Quest *quest, int64_t size) noexcept nogil
    cdef int64_t next_size(self) noexcept nogil
    cdef bint is_record(self, int64_t size) noexcept nogil
    cdef const char *data_here(self) noexcept nogil
    cdef bint contains(self, Quest *quest, int64_t start, int64_t size) noexcept nogil
    cdef bint keep(self, Quest *quest, int64_t size) noexcept nogil
    cdef bint copy(self, char *out, int64_t start, int64_t size) noexcept nogil
    cdef bint next_file(self) noexcept nogil
    cdef bint open(self) noexcept nogil
    cdef bint fill(self, int64_t position, int64_t size) noexcept nogil
