"""A ring of four files in which batches of records are committed, one write at a time."""

from libc.stdint cimport int64_t, uint8_t, uint16_t, uint32_t, uint64_t

from nsqfast._ext.commitlog.files cimport Files


cdef class CommitRing:
    cdef readonly uint64_t filling       # the number of the batch that records go to now
    cdef readonly uint64_t committed     # all records that went to batches up to this one are on disk
    cdef readonly uint64_t needed_from   # no record of a batch before this one is needed any more
    cdef readonly int failed             # the errno that ended it for good; 0 = none
    cdef readonly Files files

    # Reserve a record and return where its payload goes, which the caller fills before anything else is called.
    # OSError: the ring has failed, or the record does not fit (EMSGSIZE; see room()). MemoryError.
    cdef char *append(
        self, uint8_t kind, uint8_t flags, uint16_t extra, uint32_t subject, size_t size
    ) except NULL
    # Bytes of payload that one more record may have in the filling batch.
    cdef size_t room(self) noexcept
    # The end of a turn: hand the filling batch to the thread, unless it is empty, one is in flight, or it has to wait
    # for a checkpoint. Return whether a write runs. Before a batch that finds no free quarter an empty batch may be
    # written: that one takes the filling batch's number, and `filling` grows by one although nothing was handed over.
    cdef bint commit(self, int64_t wall_ns) except -1
    # When fileno() is readable: take the result; after an error the batch is submitted again elsewhere. Return whether
    # `committed` moved or `failed` was set.
    cdef bint end_write(self) except -1
    # An eventfd; -1 when stepped.
    cdef int fileno(self)
    # Block until the batch is committed, at most so long; < 0: as long as it takes. Return whether it is. Hands over
    # the filling batch if need be.
    cdef bint wait(self, uint64_t sequence, int timeout_ms) except -1
    # Nothing before this batch is needed any more. A smaller number than before changes nothing; a larger one than
    # `filling` is our fault.
    cdef int checkpoint(self, uint64_t needed_from) except -1
    # Whether the filling batch has to wait until checkpoint() moves.
    cdef bint is_full(self) noexcept
    # Share of the ring that is needed, 0 to 1: it cannot be written to before checkpoint() moves.
    cdef double fill(self)
    # End the thread, after the write in flight, and close the files. What was not handed over is lost.
    cdef int close(self)
    # Of a ring with is_stepped=True, which has no thread: run the write in flight now. Return whether there was one.
    cdef bint step(self) except -1
