"""Messages that a channel took from its queue long ago, and whose records are written again."""

from libc.stdint cimport int64_t, uint64_t

from nsqfast._ext.broker.deferrals cimport DeferredHeap
from nsqfast._ext.broker.stored_deferrals cimport StoredDeferrals
from nsqfast._ext.core.budget cimport Budget
from nsqfast._ext.core.in_flight cimport InFlightTable
from nsqfast._ext.core.message cimport Delivery
from nsqfast._ext.storage.engine cimport ChannelStore


cdef enum Place:
    # Where a channel has what it took.
    DEFERRED = 0
    IN_FLIGHT = 1
    QUEUED = 2
    STORED = 3
    NOWHERE = 4


cdef class Renewal:
    cdef ChannelStore backlog
    cdef uint64_t before         # ordinals below this are stale
    cdef int64_t size            # bytes of all records before it, finished or not
    cdef int64_t kept_size       # of those that are not finished, as far as they are counted
    cdef bint is_writing         # all are counted
    cdef int place               # a Place
    cdef bint is_waiting         # for a disk; the channel goes on when that has answered
    cdef size_t left             # so many slots of that place are still to be seen, from the last to the first

    cdef bint go_on(self, InFlightTable table, DeferredHeap deferred, StoredDeferrals stored, Budget *budget) except -1
    cdef bint see_place(self, InFlightTable table, DeferredHeap deferred, StoredDeferrals stored,
                        Budget *budget) except -1
    cdef size_t slot_count(self, InFlightTable table, DeferredHeap deferred, StoredDeferrals stored) noexcept
    cdef Delivery *at(self, InFlightTable table, DeferredHeap deferred) noexcept
    cdef int64_t see(self, Delivery *delivery) except -1
    cdef bint see_stored(self, StoredDeferrals stored, Budget *budget) except -1
    cdef int64_t write_stored(self, StoredDeferrals stored) except -1
