"""A queue on disk in go-diskqueue's format, with acknowledgements that survive a kill -9."""

from libc.stdint cimport int64_t, uint16_t, uint32_t, uint64_t

from nsqfast._ext.ackfile cimport AckFile
from nsqfast._ext.message cimport Message
from nsqfast._ext.syncer cimport Syncer


ctypedef struct Spot:
    int64_t file
    int64_t position


ctypedef struct Taken:
    uint64_t index
    int64_t file
    int64_t position
    int64_t end


ctypedef struct Gathered:
    uint32_t size       # of the record, its size field included
    bint taken


cdef class DiskQueue:
    # One thread calls everything. An ordinal is index + shift; the index is what the files and the ack file count.
    cdef readonly int64_t depth         # unread: not handed out, not taken
    cdef readonly int64_t unacked       # from the cursor on, whether read or not
    cdef readonly str name
    cdef str data_path
    cdef str prefix                     # <data_path>/<name>.diskqueue.
    cdef Syncer syncer
    cdef AckFile acks                   # None until there is something to remember
    cdef int64_t file_size_max
    cdef int64_t sync_every
    cdef int64_t unsynced               # records appended since the last request_sync
    cdef uint64_t sync_ticket           # what covers all appended before that
    cdef str meta_text                  # what is in the metadata file now
    cdef bint closed

    # Writer. Everything in front of write_position is published; bytes behind it are a failed write's.
    cdef uint64_t written               # index of the next record
    cdef int64_t write_file
    cdef int64_t write_position
    cdef int write_fd                   # -1: not open
    cdef bint tail_dirty                # a failed write could not be cut off yet

    # Batch: encoded records, gathered until they are written.
    cdef bint in_batch
    cdef char *batch
    cdef size_t batch_size
    cdef size_t batch_capacity
    cdef Gathered *gathered
    cdef size_t gathered_count
    cdef size_t gathered_capacity

    # Reader
    cdef uint64_t next_read             # index
    cdef int64_t read_file
    cdef int64_t read_position
    cdef int64_t read_end               # of the read file; write_position where that is the write file
    cdef int64_t read_previous          # start of the record before, in the same file; -1 = not known
    cdef int read_fd
    cdef char *ahead
    cdef size_t ahead_capacity
    cdef size_t ahead_size
    cdef int64_t ahead_start            # position in the file of ahead[0]

    # Acknowledgements
    cdef uint64_t cursor                # index of the first record not finished
    cdef int64_t cursor_file            # where it starts
    cdef int64_t cursor_position
    cdef Spot *spots                    # ring: where the records [cursor, next_read) start
    cdef uint64_t spots_mask
    cdef Taken *taken                   # ring: records in front of the reader that it must not return
    cdef uint64_t taken_mask
    cdef uint64_t taken_head
    cdef uint64_t taken_tail
    cdef uint64_t shift                 # of the ordinals from shift_from on
    cdef uint64_t shift_from
    cdef list shifts_before             # (first ordinal, end, shift); left behind by damage

    # Write
    cdef uint64_t append(self, Message *message, uint16_t attempts, bint taken) except 0
    cdef int begin_batch(self) except -1
    cdef int end_batch(self) except -1
    cdef uint64_t gather(self, const char *payload, size_t size, Message *message, uint16_t attempts,
                         bint taken) except 0
    cdef int commit(self) except -1
    cdef int write_all(self, list created) except -1
    cdef int write_run(self, const char *data, size_t size) except -1
    cdef int open_write_file(self, bint create) except -1
    cdef int roll(self, list created) except -1
    cdef int undo(self, int64_t file, int64_t position, list created) except -1
    cdef int publish(self, int64_t file, int64_t position) except -1
    cdef int prepare(self) except -1
    cdef int take(self, uint64_t index, int64_t file, int64_t position, int64_t end) except -1

    # Read
    cdef Message *pop(self, uint64_t *ordinal) except? NULL
    cdef int peek(self, const char **payload, size_t *size) except -1
    cdef int fill(self, size_t size) except -1
    cdef int open_read_file(self) except -1
    cdef int next_file(self) except -1
    cdef int settle_reader(self) except -1
    cdef int skip_taken(self) except -1
    cdef int step(self, int64_t end) except -1
    cdef int resync(self) except -1
    cdef int renumber(self, int64_t count) except -1

    # Finish
    cdef int ack(self, uint64_t ordinal) except -1
    cdef uint64_t index_of(self, uint64_t ordinal) noexcept
    cdef int advance(self) except -1
    cdef int move_cursor(self, int64_t file, int64_t position) except -1
    cdef int empty(self) except -1
    cdef int fill_holes(self) except -1

    # Keep
    cdef uint64_t request_sync(self) except? 0      # 0: nothing to wait for
    cdef int sync_meta(self) except -1
    cdef int close(self) except -1
    cdef int delete_files(self) except -1
    cdef int release(self) except -1
