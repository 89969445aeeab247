"""Min-heap of deadlines whose members store their index, so that any of them can be moved or removed."""

from libc.stdint cimport int64_t, uint32_t

from nsqfast._ext.core.clock cimport Clock
from nsqfast._ext.core.memory cimport Account


ctypedef struct HeapNode:
    # The first fields of every heap member: Delivery and TimedNode begin with them.
    int64_t deadline_ns
    uint32_t heap_index


cdef class DeadlineHeap:
    cdef Account *account
    cdef HeapNode **nodes
    cdef uint32_t size
    cdef uint32_t capacity

    cdef int push(self, HeapNode *node) except -1
    cdef HeapNode *peek(self) noexcept
    cdef void remove(self, HeapNode *node) noexcept
    cdef void moved(self, HeapNode *node) noexcept
    cdef int grow(self) except -1
    cdef void up(self, uint32_t index) noexcept
    cdef void down(self, uint32_t index) noexcept
    cdef uint32_t passing(self, uint32_t index, uint32_t limit) noexcept


ctypedef struct TimedNode:
    int64_t deadline_ns
    uint32_t heap_index
    void *timed              # the Timed that contains this node; alive while armed


cdef class Timed:
    """Base of everything that is called at a deadline."""
    cdef TimedNode node
    cdef bint is_armed

    cdef int on_deadline(self, int64_t now_ns) except -1


cdef class Timers:
    cdef readonly Clock clock
    cdef DeadlineHeap heap
    cdef public object on_deadline   # called with the earliest deadline when that moves forward
    cdef int64_t announced_ns        # the deadline that the loop was told; 0 = none

    cdef int arm(self, Timed timed, int64_t deadline_ns) except -1
    cdef int disarm(self, Timed timed) except -1
