"""Deferred messages stand in a heap by their time and in no table by their id, which would cost every one of them. So
all have to be looked at, a part of them in each call, while the heap goes on.

Only pointers are kept meanwhile. Deliveries are pinned as long (see `message`), so such a pointer can always be
followed, to one that may have been freed: whether it is deferred in this channel is asked then.
"""

from libc.stdlib cimport free, malloc
from libc.string cimport memcpy

from nsqfast._ext.core.heap cimport HeapNode
from nsqfast._ext.core.message cimport id_from_hex, prefetch

from nsqfast._ext.core.message import pin_deliveries, unpin_deliveries

cdef enum:
    # Looked at in one call.
    SOME = 16384
    # How far ahead the processor is told of a message, and twice as far of a delivery.
    AHEAD_COUNT = 16


cdef class Deferral:
    """`id` is 16 hex digits; ValueError if not. Of several with one id, any.

        while not deferral.run() and not deferral.is_over: let others go on
    """

    def __init__(self, Channel channel not None, bytes id not None):
        assert self.suspects is NULL
        if len(id) != 16 or not id_from_hex(id, &self.id):
            raise ValueError("an id has 16 lower-case hex digits")
        self.channel = channel
        self.count = channel.deferred.size
        self.suspects = <Delivery **> malloc((<size_t> self.count + 1) * sizeof(Delivery *))
        if self.suspects is NULL:
            raise MemoryError
        pin_deliveries()
        if self.count:
            memcpy(self.suspects, channel.deferred.nodes, self.count * sizeof(Delivery *))

    def __dealloc__(self):
        if self.suspects is not NULL:
            free(self.suspects)
            unpin_deliveries()

    @property
    def is_over(self):
        """All were looked at."""
        return self.looked_at == self.count

    def run(self):
        """Look at some; the one is queued as if its time had come. Whether it was among them."""
        cdef Delivery *delivery = self.find_some()
        if delivery is NULL:
            return False
        self.channel.deferred.remove(<HeapNode *> delivery)
        self.channel.backlog.requeue(delivery)
        self.channel.pump()
        return True

    def cancel(self):
        """Look at some; the one is finished without having been delivered. Whether it was among them."""
        cdef Delivery *delivery = self.find_some()
        if delivery is NULL:
            return False
        self.channel.deferred.remove(<HeapNode *> delivery)
        self.channel.backlog.done(delivery)
        return True

    cdef Delivery *find_some(self) noexcept:
        cdef uint32_t i, end = min(self.looked_at + SOME, self.count)
        for i in range(self.looked_at, end):
            if i + 2 * AHEAD_COUNT < end:
                prefetch(self.suspects[i + 2 * AHEAD_COUNT])
                prefetch(self.suspects[i + AHEAD_COUNT].message)
            if self.is_deferred(self.suspects[i]) and self.suspects[i].message.id == self.id:
                self.looked_at = i + 1
                return self.suspects[i]
        self.looked_at = end
        return NULL

    cdef bint is_deferred(self, Delivery *delivery) noexcept:
        """In this channel, now."""
        cdef uint32_t index = delivery.heap_index
        return index < self.channel.deferred.size and self.channel.deferred.nodes[index] is <HeapNode *> delivery
