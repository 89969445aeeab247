"""The ready consumers of a channel: the nearest first, taking turns among those that are equally near."""

cimport cython

from nsqfast._ext.broker.consumer cimport Consumer


cdef inline void close_alone(Consumer consumer) noexcept:
    consumer.next_ready = consumer
    consumer.previous_ready = consumer


cdef inline void insert(Consumer consumer, Consumer before) noexcept:
    """Insert it as the last in turn into the ring whose next is `before`."""
    consumer.next_ready = before
    consumer.previous_ready = before.previous_ready
    before.previous_ready.next_ready = consumer
    before.previous_ready = consumer


@cython.final
cdef class ReadyRing:
    cdef Consumer first      # gets the next message; None: none is ready
    cdef list farther        # by distance: the next of those not as near as `first`; None while there were none

    cdef int add_elsewhere(self, Consumer consumer) except -1
    cdef int remove_elsewhere(self, Consumer consumer) except -1

    cdef inline int add(self, Consumer consumer) except -1:
        """Insert it as the last in turn, unless it is in the ring already."""
        cdef Consumer first
        if consumer.is_in_ring:
            return 0
        consumer.is_in_ring = True
        first = self.first
        if first is None:
            close_alone(consumer)
            self.first = consumer
        elif consumer.distance == first.distance:
            insert(consumer, first)
        else:
            self.add_elsewhere(consumer)
        return 0

    cdef inline int remove(self, Consumer consumer) except -1:
        if not consumer.is_in_ring:
            return 0
        consumer.is_in_ring = False
        if self.farther is not None:
            self.remove_elsewhere(consumer)
        elif self.first is consumer:
            self.first = None if consumer.next_ready is consumer else consumer.next_ready
        if consumer.next_ready is not consumer:
            consumer.previous_ready.next_ready = consumer.next_ready
            consumer.next_ready.previous_ready = consumer.previous_ready
        consumer.next_ready = None
        consumer.previous_ready = None
        return 0
