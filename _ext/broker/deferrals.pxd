"""Deferred messages, found by the id that their publisher was told."""

from libc.stdint cimport int64_t, uint32_t, uint64_t

from nsqfast._ext.core.budget cimport Budget
from nsqfast._ext.core.heap cimport DeadlineHeap
from nsqfast._ext.core.in_flight cimport InFlightQueue, InFlightTable
from nsqfast._ext.core.memory cimport Memory
from nsqfast._ext.core.message cimport Delivery, Message
from nsqfast._ext.storage.engine cimport ChannelStore, Checkpoint


# For tests: so many messages of a channel stay in memory.
cdef void keep_deferred_count(int64_t count) noexcept


cdef class DeferredHeap(DeadlineHeap):
    cdef int64_t body_size       # of all of them
    cdef InFlightTable told      # id -> delivery, of those that were not delivered yet; None = there were none
    cdef Checkpoint checkpoint   # which the first so many of its nodes were shown to
    cdef uint32_t shown
    cdef int64_t to_wall_ns

    cdef bint is_crowded(self) noexcept
    cdef bint show(self, Checkpoint checkpoint, int64_t to_wall_ns, Budget *budget) except -1
    cdef void show_at(self, uint32_t index) noexcept


cdef class DeferredList:
    cdef Memory memory
    cdef InFlightQueue queue     # of deliveries without a deadline, and so in the order of the pushes
    cdef InFlightTable told      # as above

    cdef int push(self, Delivery *delivery) except -1
    cdef Delivery *pop(self) noexcept
    cdef void remove(self, Delivery *delivery) noexcept
    cdef InFlightQueue take_all(self)


cdef Delivery *find_told(InFlightTable told, uint64_t id) noexcept
cdef Delivery *begin_deferral(ChannelStore backlog, Message *message) except NULL
