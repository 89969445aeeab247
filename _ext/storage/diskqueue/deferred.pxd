"""The deferred messages of a queue on disk over a clean stop."""

from libc.stdint cimport int64_t, uint64_t

from nsqfast._ext.core.message cimport Delivery
from nsqfast._ext.storage.diskqueue.reader cimport DiskReader
from nsqfast._ext.storage.diskqueue.segment cimport Segment
from nsqfast._ext.storage.diskqueue.syncer cimport OpenFile, Syncer


cdef enum:
    US_NS = 1000


cdef struct Entry:
    uint64_t id
    int64_t due_ns              # Unix time, see kept_due()


cdef struct Head:
    uint64_t magic
    uint64_t check              # of the following fields and the entries
    uint64_t count
    uint64_t first_index        # the messages' records are consecutive, the first one has this index...
    int64_t file                # ...and starts here
    int64_t position


cdef class Deadlines:
    cdef Head head
    cdef Entry *entries
    cdef size_t capacity

    cdef int add(self, uint64_t id, int64_t due_ns) except -1
    cdef OpenFile *write(self, str path, Syncer syncer) except NULL
    cdef int widen(self, size_t capacity) except -1
    cdef uint64_t check(self) noexcept
    cdef bint parse(self, bytes data) except *


cdef inline int64_t kept_due(int64_t due_ns, bint is_told) noexcept:
    """Return the time as it is kept on disk: whole microseconds, and 1 ns more if a publisher was told the id."""
    return (due_ns + US_NS - 1) // US_NS * US_NS + is_told


cdef inline bint was_told(int64_t due_ns) noexcept:
    """Earlier releases kept nanoseconds, and did not say."""
    return due_ns % US_NS != 0


cdef Deadlines take_deadlines(str name, str path, bint is_kept)


cdef struct Held:
    # The payload of HELD.
    uint64_t index
    int64_t file
    int64_t position
    int64_t due_ns


cdef class HeldRecords:
    cdef DiskReader reader
    cdef bytearray data
    cdef size_t number              # of those checked
    cdef size_t count
    cdef Segment segment            # None, or of that file
    cdef int64_t file
    cdef uint64_t last_index        # that was read; a checkpoint may have it twice

    cdef Delivery *next(self, int64_t *due_ns) except? NULL


cdef class DiskDeferred:
    cdef DiskReader reader
    cdef Deadlines deadlines
    cdef Segment segment
    cdef uint64_t number            # of those checked
    cdef int64_t file
    cdef int64_t position

    cdef Delivery *next(self, int64_t *due_ns) except? NULL
    cdef bint find(self) except -1
    cdef bint open(self) except -1
