"""The queues that a publish goes to: a topic's own, or those of all its channels. All of them have it, or none."""

from libc.stdint cimport uint64_t

from nsqfast._ext.backlog cimport Backlog


cdef class Fanout:
    cdef Backlog backlog
    cdef list channels           # the topic's own list
    cdef uint64_t fresh_count    # messages put off and not counted yet
    cdef uint64_t fresh_bytes

    cdef int begin(self) except -1
    cdef int write(self) except -1
    cdef int take_back(self) except -1
    cdef bint is_large(self) noexcept
    cdef int count_put_off(self, uint64_t count, uint64_t size, bint is_spread) except -1
    cdef tuple take_counts(self)
