"""Those whose publisher was told the id are also in a table, so that nobody searches a hundred thousand for one. The
others cost nothing: not a byte more, and one comparison.

A message that was delivered and is deferred again is not in the table: whoever gives it back has a reason.
"""

from nsqfast._ext.broker.in_flight_table cimport Entry
from nsqfast._ext.core.heap cimport HeapNode


cdef inline bint is_listed(Delivery *delivery) noexcept:
    return delivery.is_told and delivery.attempts == 0


cdef inline Delivery *find_in(InFlightTable told, uint64_t id) noexcept:
    cdef Entry *entry = told.find(id, 0) if told is not None else NULL
    return entry.delivery if entry is not NULL else NULL


cdef class DeferredHeap(DeadlineHeap):
    """What a channel defers, by the time when it is due."""

    cdef int push(self, HeapNode *node) except -1:
        if is_listed(<Delivery *> node):
            if self.told is None:
                self.told = InFlightTable()
            self.told.insert(<Delivery *> node)
        return DeadlineHeap.push(self, node)

    cdef void remove(self, HeapNode *node) noexcept:
        DeadlineHeap.remove(self, node)
        if is_listed(<Delivery *> node):
            self.told.remove(<Delivery *> node)

    cdef Delivery *find(self, uint64_t id) noexcept:
        """Return the one with that id whose publisher was told it, or NULL."""
        return find_in(self.told, id)


cdef class DeferredRing(Ring):
    """What a topic defers until it has a channel, in the order in which it came."""

    cdef int push(self, void *item) except -1:
        if is_listed(<Delivery *> item):
            if self.told is None:
                self.told = InFlightTable()
            self.told.insert(<Delivery *> item)
        return Ring.push(self, item)

    cdef void *pop(self) noexcept:
        cdef void *item = Ring.pop(self)
        if item is not NULL and is_listed(<Delivery *> item):
            self.told.remove(<Delivery *> item)
        return item

    cdef Ring take_all(self):
        self.told = None
        return Ring.take_all(self)

    cdef Delivery *find(self, uint64_t id) noexcept:
        """As in DeferredHeap."""
        return find_in(self.told, id)

    cdef void leave_out(self, Delivery *delivery) noexcept:
        """Remove one that `find` found. That moves pointers, a million in a millisecond."""
        cdef size_t i = 0
        while self.slots[(self.head + i) & (self.capacity - 1)] is not delivery:
            i += 1
        self.told.remove(delivery)
        self.take_out(i)
        self.close_gaps(i, i + 1)
