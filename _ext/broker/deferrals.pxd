"""Deferred messages, found by the id that their publisher was told."""

from libc.stdint cimport uint64_t

from nsqfast._ext.broker.in_flight_table cimport InFlightTable
from nsqfast._ext.core.heap cimport DeadlineHeap
from nsqfast._ext.core.message cimport Delivery
from nsqfast._ext.core.ring cimport Ring


cdef class DeferredHeap(DeadlineHeap):
    cdef InFlightTable told      # id -> delivery, of those that were not delivered yet; None = there were none

    cdef Delivery *find(self, uint64_t id) noexcept


cdef class DeferredRing(Ring):
    cdef InFlightTable told      # the same

    cdef Delivery *find(self, uint64_t id) noexcept
    cdef void leave_out(self, Delivery *delivery) noexcept
