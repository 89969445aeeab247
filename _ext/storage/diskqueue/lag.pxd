"""How far the first unfinished record of a queue on disk is behind the reader."""

from libc.stdint cimport int64_t, uint64_t

from nsqfast._ext.storage.diskqueue.reader cimport DiskReader


# For tests: so many bytes before the reader are recent, and twice as many make older ones stale.
cdef void set_recent_size(int64_t size) noexcept


cdef class Lag:
    cdef DiskReader reader
    cdef dict sizes              # of files before the reader's, by number: these do not change
    cdef int64_t looked_up       # sizes that this call has looked up
    cdef uint64_t next_try       # no stale record is looked for before the reader has come to this index

    # Set by find():
    cdef int64_t size            # bytes of all records before that ordinal, from the cursor on

    cdef uint64_t find(self) except? 0
    cdef uint64_t search(self) except? 0
    cdef int64_t size_of(self, int64_t file) except -2
    cdef uint64_t index_at(self, int64_t file, int64_t position) noexcept
    cdef int forget(self) except -1
