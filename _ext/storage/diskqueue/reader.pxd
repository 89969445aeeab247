"""The reading half of a queue on disk: it reads a file ahead, and knows how old its next record is."""

from libc.stdint cimport int64_t, uint16_t, uint32_t, uint64_t

from nsqfast._ext.core.memory cimport Account
from nsqfast._ext.core.message cimport Message
from nsqfast._ext.storage.diskqueue.cold_reads cimport ColdRead, ColdReads, ReadOwner
from nsqfast._ext.storage.diskqueue.position cimport DiskPosition
from nsqfast._ext.storage.diskqueue.segment cimport Segment
from nsqfast._ext.storage.diskqueue.unreadable cimport Unreadable


cdef class FileReader(ReadOwner):
    cdef Account *account
    cdef ColdReads cold                 # None: fill() waits for the disk
    cdef int cold_error                 # errno of the last cold read, if the next fill() has to mind it
    cdef DiskPosition position          # of its queue
    cdef int64_t read_file
    cdef int64_t read_position
    cdef int64_t read_end               # of the read file; write_position if that is the write file
    cdef int read_fd                    # -1: not open
    cdef char *ahead
    cdef int64_t ahead_capacity
    cdef int64_t ahead_size
    cdef int64_t ahead_start            # position in the file of ahead[0]
    cdef bint is_refused                # the last read failed and is tried again
    cdef Unreadable unreadable

    # Read
    cdef int fill(self, int64_t size) except -1
    cdef bint begin_read(self, int64_t size, int64_t want) except -1
    cdef int64_t read_ahead(self, int64_t size, int64_t want) except -1
    cdef int note_read(self, int64_t size) except -1
    cdef int note_success(self) except -1
    cdef int end_read(self, ColdRead *done) except -1
    cdef int close_reader(self) except -1
    cdef bint drop_pending(self) noexcept

    # Errors
    cdef object refuse(self, int64_t file, int error)
    cdef bint is_trying(self) noexcept
    cdef bint is_next_record_intact(self) except -1
    cdef int check_place(self, int error) except -1
    cdef int check_ranges(self, int64_t file, Segment segment, int64_t end) except -1
    cdef str name_damage(self, Segment segment, int64_t end)


cdef enum:
    # Finished records that are skipped at a time, or KiB of them: less than a millisecond.
    SKIPPED_MAX = 4096
    # In place of a time.
    UNREADABLE = -1


ctypedef struct Spot:
    int64_t file
    int64_t position


ctypedef struct Taken:
    uint64_t index
    int64_t file
    int64_t position
    int64_t end


cdef class DiskReader(FileReader):
    # One thread calls everything. An ordinal is index + shift; the files and the ack file count by index.
    cdef readonly int64_t depth         # unread: not delivered, not taken

    # Reader
    cdef uint64_t next_read             # index
    cdef bint is_uncounted              # the records from the reader on have to be counted before one is read
    cdef int64_t read_previous          # start of the previous record, in the same file; -1 = not known

    # Acknowledgements
    cdef Spot *spots                    # ring: where the records [cursor, next_read) start
    cdef uint64_t spots_mask
    cdef Taken *taken                   # ring: records before the reader that it must not return
    cdef uint64_t taken_mask
    cdef uint64_t taken_head
    cdef uint64_t taken_tail
    cdef uint64_t shift                 # of the ordinals from shift_from on
    cdef uint64_t shift_from
    cdef list shifts_before             # (first ordinal, end, shift), from before damage

    # Read
    cdef Message *pop(self, uint64_t *ordinal) except? NULL
    cdef int end_read(self, ColdRead *done) except -1
    cdef int end_reading(self) except -1
    cdef int peek(self, const char **payload, size_t *size) except -1
    cdef int go_to(self, int64_t file, int64_t position) except -1
    cdef int next_file(self) except -1
    cdef int leave_file(self) except -1
    cdef int leave_read_files(self) except -1
    cdef int rewind(self) except -1
    cdef int skip_taken(self) except -1
    cdef int skip_finished(self, int64_t most) except -1
    cdef int step(self, int64_t end) except -1
    cdef int take(self, uint64_t index, int64_t file, int64_t position, int64_t end) except -1
    cdef uint64_t take_found(self, uint64_t index, int64_t file, int64_t position, int64_t end) except 0
    cdef int resync(self) except -1
    cdef int log_skipped(self, Segment segment, int64_t end, str kept) except -1
    cdef int leave_write_file(self, int error) except -1
    cdef int recount(self) except -1
    cdef int64_t count_records(self, int64_t *end) except -1
    cdef int renumber(self, int64_t count) except -1

    # Finish
    cdef int ack(self, uint64_t ordinal) except -1
    cdef bint is_waiting(self, uint64_t index) noexcept
    cdef bint is_unfinished(self, uint64_t ordinal) noexcept
    cdef bint locate(self, uint64_t ordinal, Spot *spot) noexcept
    cdef uint64_t index_of(self, uint64_t ordinal) noexcept
    cdef int finish_waiting(self, uint64_t index) except -1
    cdef int ack_record(self, uint64_t index) except -1
    cdef uint64_t index_before(self, uint64_t ordinal) noexcept
    cdef int advance(self) except -1


cdef class OldestRecord:
    # Where the last result was read.
    cdef int64_t file
    cdef int64_t position
    cdef int64_t timestamp_ns    # 0: not read yet

    cpdef int64_t find_timestamp_ns(self, DiskReader reader) except -2
