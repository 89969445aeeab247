"""Deferred messages are kept in a heap by their time and in no table by their id, which would cost every one of them.
So all are examined, a part of them in each call, while the heap keeps changing.

Only pointers are kept between calls. Deliveries are pinned meanwhile (see `message`), so a pointer can always be
followed, even to a delivery that was freed: only then is it checked whether it is still deferred in this channel.
"""

from libc.stdlib cimport free, malloc
from libc.string cimport memcpy

from nsqfast._ext.core.heap cimport HeapNode
from nsqfast._ext.core.message cimport id_from_hex, prefetch

from nsqfast._ext.core.message import pin_deliveries, unpin_deliveries

cdef enum:
    # Examined in one call.
    SOME = 16384
    # How many messages ahead the processor prefetches; for deliveries, twice as many.
    AHEAD_COUNT = 16


cdef class Deferral:
    """`id` is 16 hex digits; ValueError if not. Finds any one if several share the id.

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
        """All were examined."""
        return self.examined == self.count

    def run(self):
        """Examine some; queue the message if it is among them. Return whether it was."""
        cdef Delivery *delivery = self.find_some()
        if delivery is NULL:
            return False
        self.channel.deferred.remove(<HeapNode *> delivery)
        self.channel.backlog.requeue(delivery)
        self.channel.pump()
        return True

    def cancel(self):
        """Examine some; finish the message undelivered if it is among them. Return whether it was."""
        cdef Delivery *delivery = self.find_some()
        if delivery is NULL:
            return False
        self.channel.deferred.remove(<HeapNode *> delivery)
        self.channel.backlog.done(delivery)
        return True

    cdef Delivery *find_some(self) noexcept:
        cdef uint32_t i, end = min(self.examined + SOME, self.count)
        for i in range(self.examined, end):
            if i + 2 * AHEAD_COUNT < end:
                prefetch(self.suspects[i + 2 * AHEAD_COUNT])
                prefetch(self.suspects[i + AHEAD_COUNT].message)
            if self.is_deferred(self.suspects[i]) and self.suspects[i].message.id == self.id:
                self.examined = i + 1
                return self.suspects[i]
        self.examined = end
        return NULL

    cdef bint is_deferred(self, Delivery *delivery) noexcept:
        """Whether it is still deferred in this channel."""
        cdef uint32_t index = delivery.heap_index
        return index < self.channel.deferred.size and self.channel.deferred.nodes[index] is <HeapNode *> delivery
