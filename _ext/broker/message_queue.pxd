"""What a topic and a channel have in common: messages that wait, and limits to them."""

from libc.stdint cimport int64_t, uint64_t

from nsqfast._ext.broker.dead_letters cimport Reason
from nsqfast._ext.core.budget cimport Budget
from nsqfast._ext.core.heap cimport Timed, Timers
from nsqfast._ext.core.memory cimport Account
from nsqfast._ext.core.message cimport Delivery
from nsqfast._ext.storage.engine cimport ChannelStore


cdef class MessageQueue(Timed):
    cdef ChannelStore backlog
    cdef readonly bint exiting    # it is deleted, or the broker stops: nothing is put into it, nothing taken
    cdef Account *account         # of the broker, which the store keeps
    cdef Timers timers
    cdef public object policy     # who set the limits keeps here what for; None = there are none
    cdef readonly int64_t max_messages     # that wait, deferred ones, too; 0 = any number
    cdef readonly int64_t max_bytes        # of what waits in the backlog; 0 = any
    cdef readonly bint drops_head          # beyond these the oldest are dropped; else publishes are refused
    cdef readonly int64_t max_age_ns       # of what waits, since it was due; 0 = any
    cdef readonly uint64_t dropped_count   # for the first two
    cdef readonly uint64_t expired_count

    cdef int rearm(self, int64_t deadline_ns) except -1
    cdef int64_t oldest(self) except -2
    cdef int64_t waiting_count(self) noexcept
    cdef bint is_limited(self) noexcept
    cdef bint has_room(self, uint64_t count, uint64_t size) noexcept
    cdef int drop_excess(self) except -1
    cdef bint may_drop(self) except -1
    cdef bint drop(self, Delivery *delivery, Reason reason) except -1
    cdef bint is_old(self, const Delivery *delivery) noexcept
    cdef int drop_old(self) except -1
    cdef bint drop_next_old(self) except -1
    cdef bint drop_some(self, Budget *budget) except -1
