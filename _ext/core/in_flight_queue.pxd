"""What is in flight to one consumer, by the time it is taken back."""

cimport cython
from libc.stdint cimport int64_t, uint32_t

from nsqfast._ext.core.heap cimport DeadlineHeap
from nsqfast._ext.core.message cimport Delivery


@cython.final
cdef class InFlightQueue:
    #   first ─ … ─ last      deadlines that came in order: a list
    #   others                those that did not: a heap
    cdef Delivery *first
    cdef Delivery *last
    cdef DeadlineHeap others
    cdef size_t size
    cdef bint is_borrowed    # whoever made it frees what is in it

    cdef int push(self, Delivery *delivery) except -1
    cdef Delivery *peek(self) noexcept
    cdef void remove(self, Delivery *delivery) noexcept
    cdef void unlink(self, Delivery *delivery) noexcept
    cdef InFlightQueue take_all(self)
    cdef int64_t oldest(self, uint32_t most) noexcept
