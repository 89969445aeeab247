"""Iterate over a heap, or over many queues, the earliest deadline first, without changing them."""

from libc.stdint cimport int64_t, uint32_t

from nsqfast._ext.core.due_heap cimport DueHeap
from nsqfast._ext.core.heap cimport DeadlineHeap, HeapNode, TimedNode
from nsqfast._ext.core.in_flight cimport InFlightQueue
from nsqfast._ext.core.message cimport Delivery


ctypedef struct Candidate:
    int64_t deadline_ns
    uint32_t index           # in the heap that is iterated


cdef class DueOrder:
    # Candidates for the next result: members of the other heap whose parents were returned, the earliest at the top.
    cdef DeadlineHeap heap   # one of these two
    cdef DueHeap dues
    cdef Candidate *candidates
    cdef uint32_t size
    cdef uint32_t capacity

    cdef HeapNode *peek(self) noexcept
    cdef HeapNode *next(self) except? NULL
    cdef int64_t next_index(self) except -2
    cdef int64_t deadline_ns(self) noexcept
    cdef int add(self, uint32_t index) except -1
    cdef void drop_first(self) noexcept


cdef class QueueOrder:
    # The order of one queue.
    cdef TimedNode node      # in the heap of QueuesOrder, with the deadline of the queue's next delivery
    cdef Delivery *in_list   # the next one from the queue's list
    cdef DueOrder others

    cdef Delivery *peek(self) noexcept
    cdef int skip(self) except -1


cdef class QueuesOrder:
    cdef list orders         # those whose nodes are in the heap
    cdef DeadlineHeap heap

    cdef Delivery *next(self) except? NULL
