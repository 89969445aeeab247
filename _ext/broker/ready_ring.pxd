"""The consumers of a channel that are ready: the nearest first, in turn among those that are equally near."""

cimport cython

from nsqfast._ext.broker.consumer cimport Consumer


cdef inline void close_alone(Consumer consumer) noexcept:
    consumer.next_ready = consumer
    consumer.previous_ready = consumer


cdef inline void insert(Consumer consumer, Consumer before) noexcept:
    """Last in turn of the circle whose next is `before`."""
    consumer.next_ready = before
    consumer.previous_ready = before.previous_ready
    before.previous_ready.next_ready = consumer
    before.previous_ready = consumer


@cython.final
cdef class ReadyRing:
    cdef Consumer first      # the next message is for it; None: nobody is ready
    cdef list farther        # by distance: the next of those that are not as near as `first`; None while nobody was

    cdef int add_elsewhere(self, Consumer consumer) except -1
    cdef int remove_elsewhere(self, Consumer consumer) except -1

    cdef inline int add(self, Consumer consumer) except -1:
        """It joins, last in turn; nothing happens where it is in already."""
        cdef Consumer first
        if consumer.is_linked:
            return 0
        consumer.is_linked = True
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
        if not consumer.is_linked:
            return 0
        consumer.is_linked = False
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
