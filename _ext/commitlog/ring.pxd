"""A ring of four files in which batches of records are committed: one write at a time, or synced by time."""

from libc.stdint cimport int64_t, uint8_t, uint16_t, uint32_t, uint64_t

from nsqfast._ext.commitlog.folder cimport RingFolder
from nsqfast._ext.commitlog.format cimport Batch
from nsqfast._ext.core.histogram cimport Steps
from nsqfast._ext.core.memory cimport Account


cdef extern from "commitlog/commit.h" nogil:
    ctypedef struct Committer "nsq_committer":
        pass


ctypedef struct CommitFigures:
    uint64_t commits            # batches committed; in interval mode written
    uint64_t records            # in them
    uint64_t bytes              # of these batches, with padding
    uint64_t failed_count       # writes that failed
    uint64_t largest            # bytes of the largest batch
    Steps times                 # that their writes took; in interval mode the syncs


ctypedef struct Buffer:
    char *data                  # begins with room for a batch's header; NULL = none yet
    size_t capacity


cdef class CommitRing:
    cdef readonly uint64_t filling       # the number of the batch that records go to now
    cdef readonly uint64_t committed     # all batches up to this one are on disk
    cdef readonly uint64_t written       # a killed process loses none up to this one; ahead in interval mode alone
    cdef readonly uint64_t needed_from   # no record of a batch before this one is needed any more
    cdef readonly int failed             # the errno that ended it for good; 0 = none
    cdef CommitFigures figures
    cdef RingFolder folder
    cdef Committer *committer            # NULL after close()
    cdef Account *account
    cdef Buffer[2] buffers
    cdef int side                        # which of them is filled; the other one is what is in flight
    cdef size_t used                     # bytes of the filling batch, its header included
    cdef uint32_t count                  # its records
    cdef uint32_t align                  # batches start on multiples of it
    cdef bint is_in_flight
    cdef bint is_second                  # what is in flight failed in another quarter
    cdef int failing                     # the errno that `failed` becomes when the head is written
    # Of interval mode, where a sync is what is in flight, and one buffer is enough.
    cdef readonly bint is_interval
    cdef uint64_t refused                # the batch that a quarter did not take; 0 = none
    cdef bint is_noted                   # the head that was submitted last knows all bad quarters
    cdef uint64_t quarter_first          # the first batch that this life wrote to `quarter`
    cdef bint[4] is_unsynced             # whether a quarter has batches that no sync began for
    cdef int quarter                     # behind the last batch that was handed over: where the next one begins ...
    cdef uint64_t offset                 # ... if it fits there
    cdef uint64_t[4] last                # the last batch in each quarter; 0 = none
    cdef uint64_t kept_from              # the needed_from that is on disk
    cdef uint32_t previous               # the CRC of the header of the last committed batch; 0 = unknown
    cdef int64_t latest_ns               # the wall time of the last batch: it never goes back

    # Go on from there: set by recovery, before the first append.
    cdef int go_on(
        self, uint64_t committed, uint64_t needed_from, uint32_t previous, int quarter, uint64_t offset
    ) except -1
    # Reserve a record and return where its payload goes, which the caller fills before anything else is called.
    # OSError: the ring has failed, or the record does not fit (EMSGSIZE; see room()). MemoryError.
    cdef char *append(
        self, uint8_t kind, uint8_t flags, uint16_t extra, uint32_t subject, size_t size
    ) except NULL
    # Take back what was appended to the filling batch since `used` was so many.
    cdef int cut(self, size_t used) except -1
    # Bytes of payload that one more record may have in the filling batch; at 0 not even an empty one may fit.
    cdef size_t room(self) noexcept
    # The end of a turn where each batch is synced: hand the filling batch to the thread, unless it is empty, one is in
    # flight, or it has to wait for a checkpoint. Return whether a write runs.
    cdef bint commit(self, int64_t wall_ns) except -1
    # In interval mode the end of a turn, before its output goes out: write the filling batch to the kernel's cache.
    # Return whether it did. False: there is none, or it waits for a checkpoint, or for a sync, which is begun: write
    # again when end_write() returned True.
    cdef bint write(self, int64_t wall_ns) except -1
    # In interval mode: let the thread sync all that is written, unless it does so already. Return whether a sync runs.
    cdef bint sync(self) except -1
    # When fileno() is readable: take the result; after an error the batch is submitted again elsewhere. Return whether
    # `committed` moved or `failed` was set.
    cdef bint end_write(self) except -1
    # An eventfd; -1 when stepped.
    cdef int fileno(self)
    # Block until the batch is committed, at most so long; < 0: as long as it takes. Return whether it is; False at once
    # where it has to wait for a checkpoint, or the ring has failed. Hands over the filling batch if need be.
    cdef bint wait(self, uint64_t sequence, int timeout_ms) except -1
    # Nothing before this batch is needed any more. A smaller number than before changes nothing; a larger one than
    # `filling` is our fault.
    cdef int checkpoint(self, uint64_t needed_from) except -1
    # Whether the filling batch has to wait until checkpoint() moves.
    cdef bint is_full(self) noexcept
    # Share of the good quarters that cannot be written to before checkpoint() moves, 0 to 1.
    cdef double fill(self)
    # The same in bytes.
    cdef uint64_t needed(self) noexcept
    # End the thread, after the write in flight, and close the files. What was not handed over is lost.
    cdef int close(self)
    # Of a ring with is_stepped=True, which has no thread: run the write in flight now. Return whether there was one.
    cdef bint step(self) except -1

    cdef int grow(self, size_t size) except -1
    cdef int find_quarter(self, size_t size) noexcept
    cdef int next_quarter(self) noexcept
    cdef int quarter_behind(self, int before) noexcept
    cdef int submit(self, int quarter, int64_t wall_ns) except -1
    cdef void place_job(self, int quarter) noexcept
    cdef void submit_again(self, int error) noexcept
    cdef void note_committed(self) noexcept
    cdef void count_batch(self, const Batch *header, size_t size) noexcept
    cdef void give_back(self, int side) noexcept
    cdef bint is_held(self, int quarter) noexcept
    cdef void fill_header(self, Batch *header, int64_t wall_ns) noexcept
    cdef void begin_filling(self) noexcept
    cdef bint write_to(self, int quarter, int64_t wall_ns) except -1
    cdef void note_written(self, const Batch *header, size_t size) noexcept
    cdef int leave_quarter(self, int error) except -1
    cdef int end_sync(self) except -1
    cdef bint start_write(self) except -1
    cdef int finish_write(self, int64_t until_ns) except -1
