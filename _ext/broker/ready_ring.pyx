"""One ring for each distance. `first` is in the nearest one that has members, so finding the next takes no search.

While all are equally near, as they are unless consumption is topology-aware, there is a single ring.
"""

cimport cython

from nsqfast._ext.broker.consumer cimport DISTANCE_COUNT, Consumer


@cython.final
cdef class ReadyRing:

    cdef int add_elsewhere(self, Consumer consumer) except -1:
        """Insert it when `first` is nearer, or not as near."""
        cdef Consumer first = self.first, other
        if self.farther is None:
            self.farther = [None] * DISTANCE_COUNT
        other = self.farther[consumer.distance]
        if consumer.distance < first.distance:
            self.farther[first.distance] = first
            close_alone(consumer)
            self.first = consumer
        elif other is None:
            close_alone(consumer)
            self.farther[consumer.distance] = consumer
        else:
            insert(consumer, other)
        return 0

    cdef int remove_elsewhere(self, Consumer consumer) except -1:
        """Remove it from its ring; if it was `first`, the nearest remaining one becomes that."""
        cdef Consumer after = None if consumer.next_ready is consumer else consumer.next_ready
        cdef int distance
        if self.first is not consumer:
            if self.farther[consumer.distance] is consumer:
                self.farther[consumer.distance] = after
            return 0
        self.first = after
        for distance in range(consumer.distance + 1, <int> DISTANCE_COUNT):
            if self.first is None:
                self.first = self.farther[distance]
                self.farther[distance] = None
        return 0
