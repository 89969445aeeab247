"""The deliveries in flight to one consumer, ordered by the time they expire."""

cimport cython
from libc.stdint cimport int64_t, uint32_t

from nsqfast._ext.core.heap cimport DeadlineHeap
from nsqfast._ext.core.message cimport Delivery


@cython.final
cdef class InFlightQueue:
    #   first ─ … ─ last      a list of deliveries whose deadlines came in order
    #   others                a heap of the others
    cdef Delivery *first
    cdef Delivery *last
    cdef DeadlineHeap others
    cdef size_t size
    cdef bint is_borrowed    # its maker frees the deliveries

    cdef int push(self, Delivery *delivery) except -1
    cdef Delivery *peek(self) noexcept
    cdef void remove(self, Delivery *delivery) noexcept
    cdef void unlink(self, Delivery *delivery) noexcept
    cdef InFlightQueue take_all(self)
    cdef int64_t oldest(self, uint32_t most, bint by_delivery) noexcept


cdef int64_t oldest_published(list queues) noexcept
