"""A message that is deferred for days, or in flight for long, keeps its record on disk, and by that all files that came
later. When most of what they hold is finished, such records are written again behind all others, and the files go.

First the stale ones are counted: at least half of the bytes before the limit have to be finished, or else more would be
written than is freed. Deadlines and owners stay as they are. What moves from a slot to one that was seen already is
found by the next renewal, which its record brings about.
"""

from libc.stdint cimport uintptr_t

from nsqfast._ext.broker.stored_deferrals cimport AWAITED, READ, Recall
from nsqfast._ext.core.budget cimport is_spent
from nsqfast._ext.core.due_heap cimport Due
from nsqfast._ext.core.limits cimport MESSAGE_HEADER_SIZE
from nsqfast._ext.core.message cimport delivery_free

cdef enum:
    # Units of writing a record, and the bytes of it that cost one more.
    WRITE_UNITS = 32
    UNIT_SIZE = 512


cdef class Renewal:
    def __init__(self, ChannelStore backlog not None):
        self.backlog = backlog
        self.before, self.size = backlog.stale_before, backlog.stale_size
        backlog.stale_before = 0

    cdef bint go_on(self, InFlightTable table, DeferredHeap deferred, StoredDeferrals stored, Budget *budget) except -1:
        """False: the part ended first, or is_waiting."""
        self.is_waiting = False
        while self.place < NOWHERE:
            if self.left == 0:
                self.left = self.slot_count(table, deferred, stored)
            if not self.see_place(table, deferred, stored, budget):
                return False
            self.place += 1
            if self.place == NOWHERE and not self.is_writing and 0 < self.kept_size <= self.size // 2:
                self.is_writing, self.place = True, DEFERRED
        return True

    cdef bint see_place(self, InFlightTable table, DeferredHeap deferred, StoredDeferrals stored,
                        Budget *budget) except -1:
        cdef Delivery *delivery
        cdef int64_t units
        self.left = min(self.left, self.slot_count(table, deferred, stored))
        if self.place == STORED:
            return self.see_stored(stored, budget)
        while self.left:
            self.left -= 1
            delivery = self.at(table, deferred)
            units = self.see(delivery) if delivery is not NULL and 0 < delivery.ordinal < self.before else 1
            if is_spent(budget, units) and self.left:
                return False
        return True

    cdef size_t slot_count(self, InFlightTable table, DeferredHeap deferred, StoredDeferrals stored) noexcept:
        if self.place == STORED:
            return stored.heap.size
        if self.place == DEFERRED:
            return deferred.size
        return table.capacity if self.place == IN_FLIGHT else self.backlog.memory.size

    cdef Delivery *at(self, InFlightTable table, DeferredHeap deferred) noexcept:
        """Return what is in the slot that comes next; NULL: none that was taken from the queue."""
        cdef uintptr_t item
        if self.place == DEFERRED:
            return <Delivery *> deferred.nodes[self.left]
        if self.place == IN_FLIGHT:
            return table.entries[self.left].delivery
        item = <uintptr_t> self.backlog.memory.ahead(self.left)
        return NULL if item & 1 else <Delivery *> item

    cdef int64_t see(self, Delivery *delivery) except -1:
        """Count one, or write it again; return the units that took."""
        if not self.is_writing:
            self.kept_size += MESSAGE_HEADER_SIZE + <int64_t> delivery.message.size
            return 1
        if not self.backlog.renew(delivery, self.place == DEFERRED):
            self.place, self.left = STORED, 0     # the disk takes nothing more
        return WRITE_UNITS + <int64_t> delivery.message.size // UNIT_SIZE

    cdef bint see_stored(self, StoredDeferrals stored, Budget *budget) except -1:
        cdef Due *due
        cdef int64_t units
        while self.left:
            self.left -= 1
            due = &stored.heap.entries[self.left]
            units = 1
            if due.ordinal < self.before and self.backlog.is_unfinished(due.ordinal):
                if self.is_writing:
                    units = self.write_stored(stored)
                    if self.is_waiting:
                        return False
                else:
                    self.kept_size += MESSAGE_HEADER_SIZE + <int64_t> due.size
            if is_spent(budget, units) and self.left:
                return False
        return True

    cdef int64_t write_stored(self, StoredDeferrals stored) except -1:
        """Write one again that is on disk alone; return the units that took."""
        cdef Delivery *delivery = NULL
        cdef Recall recall = stored.load(self.left, &delivery)
        cdef int64_t size
        if recall == AWAITED:
            self.left += 1
            self.is_waiting = True
        if recall != READ:
            return 1
        size = delivery.message.size
        if self.backlog.renew(delivery, True):
            stored.note_moved(self.left, delivery.ordinal)
        else:
            self.left = 0
        delivery_free(delivery)
        return WRITE_UNITS + size // UNIT_SIZE
