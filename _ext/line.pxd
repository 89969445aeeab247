"""What is in flight, by the time it is taken back."""

from libc.stdint cimport int64_t, uint64_t

from nsqfast._ext.heap cimport DeadlineHeap
from nsqfast._ext.message cimport Delivery


cdef class InFlightLine:
    #   first ─ … ─ last      deadlines that came in order: a list
    #   others                those that did not: a heap
    cdef Delivery *first
    cdef Delivery *last
    cdef DeadlineHeap others
    cdef size_t size

    cdef int push(self, Delivery *delivery) except -1
    cdef Delivery *peek(self) noexcept
    cdef void remove(self, Delivery *delivery) noexcept
    cdef void unlink(self, Delivery *delivery) noexcept
    cdef int64_t oldest(self) noexcept
    cdef Delivery **owned_by(self, uint64_t owner, size_t *count) except NULL
