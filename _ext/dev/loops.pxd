"""Loops for benchmarks: many messages through one structure per call."""

from libc.stdint cimport int64_t, uint32_t, uint64_t

from nsqfast._ext.broker.channel cimport Channel
from nsqfast._ext.broker.consumer cimport Consumer
from nsqfast._ext.core.guid cimport GuidFactory
from nsqfast._ext.core.heap cimport DeadlineHeap
from nsqfast._ext.core.in_flight cimport InFlightQueue, InFlightTable
from nsqfast._ext.core.message cimport Delivery
from nsqfast._ext.protocol.buffer cimport WriteBuffer


cdef class Loop:
    """Deliveries for one structure; what passes through it is taken from them and put back."""
    cdef Delivery **deliveries
    cdef uint32_t count
    cdef uint32_t next_index         # whose turn it is in a round
    cdef uint64_t dice
    cdef GuidFactory ids
    cdef int64_t now_ns

    cdef uint64_t random_below(self, uint64_t end) noexcept
    cdef uint32_t choose(self, bint scattered) noexcept


cdef class FrameLoop(Loop):
    cdef WriteBuffer out
    cdef readonly bytes written      # by the last turn


cdef class HeapLoop(Loop):
    cdef DeadlineHeap heap


cdef class InFlightQueueLoop(Loop):
    cdef InFlightQueue in_flight_queue
    cdef bint is_mixed

    cdef int64_t timeout_ns(self, uint32_t index) noexcept


cdef class TableLoop(Loop):
    cdef InFlightTable table
    cdef uint64_t *known             # ids as a client would name them: not read from the messages


cdef class Taker(Consumer):
    cdef readonly Channel channel
    cdef uint64_t *taken             # ids in flight to it
    cdef uint32_t taken_size
    cdef readonly uint64_t taken_sum

    cdef int finish(self) except -1
    cdef bint wants(self) noexcept
    cdef int deliver(self, Delivery *delivery) except -1
