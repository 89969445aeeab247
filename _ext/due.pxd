"""The members of a heap, the earliest first, while the heap stays as it is."""

from libc.stdint cimport int64_t, uint32_t

from nsqfast._ext.heap cimport DeadlineHeap, HeapNode


ctypedef struct Candidate:
    int64_t deadline_ns
    uint32_t index           # in the heap that is looked at


cdef class DueOrder:
    # A heap of its own: of those next to what was given out, the earliest at its top.
    cdef DeadlineHeap heap
    cdef Candidate *candidates
    cdef uint32_t size
    cdef uint32_t capacity

    cdef HeapNode *peek(self) noexcept
    cdef HeapNode *next(self) except? NULL
    cdef int add(self, uint32_t index) except -1
    cdef void drop_first(self) noexcept
