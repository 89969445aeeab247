"""Those whose publisher was told the id are also in a table, so that nobody searches a hundred thousand for one. The
others cost nothing: not a byte more, and one comparison.

A message that was delivered and is deferred again is not in the table: whoever gives it back has a reason.
"""

from libc.stdint cimport int64_t, uint32_t

from nsqfast._ext.core.in_flight cimport Entry
from nsqfast._ext.core.heap cimport HeapNode
from nsqfast._ext.core.message cimport delivery_free, delivery_new, message_keep


# What a channel keeps in memory of its deferred messages; what is more, and deferred for long, is on disk alone.
cdef int64_t KEPT_SIZE = 16777216
cdef int64_t kept_count = 1000


cdef void keep_deferred_count(int64_t count) noexcept:
    global kept_count
    kept_count = count


cdef inline bint is_listed(Delivery *delivery) noexcept:
    return delivery.is_told and delivery.attempts == 0


cdef class DeferredHeap(DeadlineHeap):
    """What a channel defers, by the time when it is due."""

    def __dealloc__(self):
        # A broker that is dropped without close() must not leak.
        cdef uint32_t i
        for i in range(self.size):
            delivery_free(<Delivery *> self.nodes[i])

    cdef int push(self, HeapNode *node) except -1:
        if is_listed(<Delivery *> node):
            if self.told is None:
                self.told = InFlightTable(<Memory> self.account.owner)
            self.told.insert(<Delivery *> node)
        self.body_size += (<Delivery *> node).message.size
        return DeadlineHeap.push(self, node)

    cdef bint is_crowded(self) noexcept:
        return self.size > kept_count or (self.body_size > KEPT_SIZE and self.size > 1)

    cdef bint show(self, Checkpoint checkpoint, int64_t to_wall_ns, Budget *budget) except -1:
        """Show all, a part in each call (False: more); what a removal moves in front of the others is shown then."""
        self.checkpoint, self.to_wall_ns = checkpoint, to_wall_ns
        while self.shown < self.size:
            self.show_at(self.shown)
            self.shown += 1
            if self.shown < self.size and checkpoint.ends_part(
                    budget, (<Delivery *> self.nodes[self.shown - 1]).message.size):
                return False
        self.shown, self.checkpoint = 0, None
        return True

    cdef void show_at(self, uint32_t index) noexcept:
        self.checkpoint.add_deferred(<Delivery *> self.nodes[index], self.to_wall_ns + self.nodes[index].deadline_ns)

    cdef void remove(self, HeapNode *node) noexcept:
        if self.shown:
            self.show_at(self.size - 1)
            self.show_at(self.passing(node.heap_index, self.shown))
        DeadlineHeap.remove(self, node)
        self.body_size -= (<Delivery *> node).message.size
        if is_listed(<Delivery *> node):
            self.told.remove(<Delivery *> node)


cdef class DeferredList:
    """What a topic defers until it has a channel, in the order in which it came."""

    def __init__(self, Memory memory not None):
        self.memory = memory
        self.queue = InFlightQueue(memory)

    cdef int push(self, Delivery *delivery) except -1:
        if is_listed(delivery):
            if self.told is None:
                self.told = InFlightTable(self.memory)
            self.told.insert(delivery)
        return self.queue.push(delivery)

    cdef Delivery *pop(self) noexcept:
        """Remove and return the oldest, or NULL."""
        cdef Delivery *delivery = self.queue.peek()
        if delivery is not NULL:
            self.remove(delivery)
        return delivery

    cdef void remove(self, Delivery *delivery) noexcept:
        self.queue.remove(delivery)
        if is_listed(delivery):
            self.told.remove(delivery)

    cdef InFlightQueue take_all(self):
        """Move everything into a queue and return that."""
        self.told = None
        return self.queue.take_all()


cdef Delivery *find_told(InFlightTable told, uint64_t id) noexcept:
    """Return the one with that id, or NULL."""
    cdef Entry *entry = told.find(id, 0) if told is not None else NULL
    return entry.delivery if entry is not NULL else NULL


cdef Delivery *begin_deferral(ChannelStore backlog, Message *message) except NULL:
    """Return a delivery to be kept outside the queue until it is due. OSError: its storage does not take it."""
    cdef Delivery *delivery = delivery_new(backlog.memory.account, message)
    message_keep(message)
    backlog.defer(delivery, True, 0)
    return delivery
