"""A consumer's time in the heap is not later than the first deadline of its in-flight queue. So a FIN costs nothing
here; a time that is too early is corrected when the consumer reaches the top.
"""

from nsqfast._ext.core.heap cimport HeapNode, TimedNode
from nsqfast._ext.core.message cimport Delivery


cdef class Timeouts:
    """Its consumers are kept alive by others."""

    def __init__(self):
        self.heap = DeadlineHeap()

    cdef int put(self, Consumer consumer, int64_t deadline_ns) except -1:
        """Nothing in its in-flight queue times out before that."""
        consumer.due.deadline_ns = deadline_ns
        if consumer.is_watched:
            self.heap.moved(<HeapNode *> &consumer.due)
            return 0
        consumer.due.timed = <void *> consumer
        self.heap.push(<HeapNode *> &consumer.due)
        consumer.is_watched = True
        return 0

    cdef int remove(self, Consumer consumer) except -1:
        if consumer.is_watched:
            consumer.is_watched = False
            self.heap.remove(<HeapNode *> &consumer.due)
        return 0

    cdef Consumer first(self):
        """Whose message times out first, at `due.deadline_ns`; None if nothing is in flight."""
        cdef TimedNode *node = <TimedNode *> self.heap.peek()
        cdef Consumer consumer
        cdef Delivery *delivery
        while node is not NULL:
            consumer = <Consumer> node.timed
            delivery = consumer.in_flight_queue.peek()
            if delivery is NULL:
                self.remove(consumer)
            elif delivery.deadline_ns > node.deadline_ns:
                self.put(consumer, delivery.deadline_ns)
            else:
                return consumer
            node = <TimedNode *> self.heap.peek()
        return None
