"""The writing half of a queue on disk."""

from libc.stdint cimport int64_t, uint32_t, uint64_t

from nsqfast._ext.core.message cimport Message
from nsqfast._ext.storage.diskqueue.position cimport DiskPosition
from nsqfast._ext.storage.diskqueue.reader cimport DiskReader
from nsqfast._ext.storage.diskqueue.syncer cimport OpenFile


ctypedef struct Gathered:
    uint32_t size       # of the record, including its size field
    bint taken


cdef class LeftFile:
    cdef int64_t file_number
    cdef OpenFile *file

    @staticmethod
    cdef LeftFile of(int64_t file_number, OpenFile *file)
    cdef OpenFile *take(self) noexcept


cdef class DiskWriter:
    cdef DiskPosition position          # of its queue
    cdef DiskReader reader              # is told of published records
    cdef int64_t file_size_max
    cdef str data_path
    cdef int64_t sync_every
    cdef bint is_ending                 # a clean stop has begun
    cdef int64_t unsynced               # records appended since the last request_sync
    cdef int64_t synced_position        # where the write file ended then, or was opened
    cdef uint64_t sync_ticket           # covers all records appended before that
    cdef bint new_entry                 # a file was created since the directory was synced
    cdef int64_t sync_file              # the file whose data sync_ticket covers

    # Writer
    cdef OpenFile *output               # the write file; NULL = not open
    cdef list left_files                # earlier files of the batch

    # Batch: encoded records, gathered until they are written.
    cdef char *batch
    cdef size_t batch_size
    cdef size_t batch_capacity
    cdef Gathered *gathered
    cdef size_t gathered_count
    cdef size_t gathered_capacity
    cdef bint is_written                # to the files, and not confirmed
    cdef bint is_single                 # nobody began it
    cdef int64_t batch_file             # where it began
    cdef int64_t batch_position

    cdef uint64_t append(self, Message *message, uint32_t tries, bint taken) except 0
    cdef uint64_t move(self, uint64_t ordinal, Message *message, uint32_t tries, bint taken) except 0
    cdef uint64_t add(self, const char *payload, size_t size, Message *message, uint32_t tries,
                      bint taken) except 0
    cdef uint64_t gather(self, const char *payload, size_t size, Message *message, uint32_t tries,
                         bint taken) except 0
    cdef char *room(self, size_t size) except NULL
    cpdef int begin_batch(self) except -1
    cpdef int end_batch(self) except -1
    cdef int commit(self) except -1
    cdef int write(self) except -1
    cdef int store(self) except -1
    cdef int confirm(self) except -1
    cdef int revoke(self) except -1
    cdef int drop_batch(self) except -1
    cdef int prepare(self) except -1
    cdef int open_write_file(self, bint fresh) except -1
    cdef int write_all(self) except -1
    cdef bint is_file_full(self, int64_t position, int64_t size) noexcept
    cdef int write_run(self, const char *data, size_t size) except -1
    cdef int open_next_file(self) except -1
    cdef bint is_missing(self) except -1
    cdef int leave_output(self) except -1
    cdef int undo(self, int64_t file, int64_t position) except -1
    cdef int truncate_output(self) except -1
    cdef int count_records(self, int64_t file, int64_t position) except -1
    cdef int after_write(self) except -1
    cdef bint has_much_unsynced(self) noexcept
    cpdef uint64_t request_sync(self) except? 0
    cdef int close_output(self) except -1
    cdef bint is_busy(self) noexcept
