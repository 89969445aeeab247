"""What a start finds in a ring, and making one."""

from libc.stdint cimport uint8_t, uint16_t, uint32_t, uint64_t

from nsqfast._ext.commitlog.ring cimport CommitRing

ctypedef struct Record:
    uint8_t kind                # this, flags, extra, subject and payload are as they were appended
    uint8_t flags
    uint16_t extra
    uint32_t subject
    const char *payload
    size_t size                 # of the payload
    uint64_t sequence           # of its batch


cdef class Recovery:
    cdef readonly uint64_t first         # the first batch that is handed out: the last needed_from that was committed
    cdef readonly uint64_t last          # the last whole batch; first - 1 = there is none
    cdef readonly bint is_torn           # the beginning of a batch behind it was found, which was cut off
    # (path, start, end, (first sequence, last sequence)) of what was damaged: bytes of that file, and the batches that
    # they belong to; (0, 0) for bytes that cannot be read and may belong to none. Complete when next() returned False.
    cdef readonly list damaged
    cdef CommitRing ring

    # The records from `first` on, in the order of their batches and in these as they were appended. False: there are no
    # more. The record is valid until the next call. Appending and committing may go on meanwhile; closing may not.
    cdef bint next(self, Record *record) except -1
