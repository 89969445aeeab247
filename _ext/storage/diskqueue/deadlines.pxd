"""The file that keeps the due times of a queue's deferred messages over a clean stop."""

from libc.stdint cimport int64_t, uint64_t

from nsqfast._ext.storage.diskqueue.syncer cimport OpenFile


cdef struct Entry:
    uint64_t id
    int64_t due_ns              # Unix time


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
    cdef OpenFile *write(self, str path) except NULL
    cdef int widen(self, size_t capacity) except -1
    cdef uint64_t check(self) noexcept
    cdef bint parse(self, bytes data) except *


cdef Deadlines take_deadlines(str name, str path)
