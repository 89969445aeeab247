"""The members of a heap, or of many queues, the earliest first, while they stay as they are."""

from libc.stdint cimport int64_t, uint32_t

from nsqfast._ext.core.heap cimport DeadlineHeap, HeapNode, TimedNode
from nsqfast._ext.core.in_flight_queue cimport InFlightQueue
from nsqfast._ext.core.message cimport Delivery


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


cdef class QueueOrder:
    # Of one queue.
    cdef TimedNode node      # in the heap of QueuesOrder, with the deadline of what comes next
    cdef Delivery *in_list   # the next of its list
    cdef DueOrder others

    cdef Delivery *peek(self) noexcept
    cdef int skip(self) except -1


cdef class QueuesOrder:
    cdef list orders         # whose nodes are in the heap
    cdef DeadlineHeap heap

    cdef Delivery *next(self) except? NULL
