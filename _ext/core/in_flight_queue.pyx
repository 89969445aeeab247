"""A consumer has one message timeout, so a later delivery has a later deadline, and a list will do: adding and removing
cost the same however many are in flight. A delivery whose TOUCH leads to an earlier deadline goes to a heap beside it.
"""

cimport cython
from libc.stdint cimport int64_t, uint32_t

from nsqfast._ext.core.debug cimport NSQFAST_DEBUG
from nsqfast._ext.core.heap cimport HeapNode
from nsqfast._ext.core.message cimport delivery_free

cdef enum:
    # Messages that are examined to find the oldest; a part of a turn has time for some more.
    OLDEST_SCAN_MAX = 4096

cdef uint32_t IN_LIST = 0xFFFFFFFF   # a heap_index that no heap reaches


@cython.final
@cython.no_gc_clear  # the heap is needed until the deliveries are freed
cdef class InFlightQueue:
    """Deliveries, the earliest deadline first; the queue frees those still in it when it is freed itself."""

    def __cinit__(self):
        self.others = DeadlineHeap()

    def __dealloc__(self):
        cdef Delivery *delivery
        while self.size and not self.is_borrowed:
            delivery = self.peek()
            self.remove(delivery)
            delivery_free(delivery)

    cdef int push(self, Delivery *delivery) except -1:
        if self.last is not NULL and delivery.deadline_ns < self.last.deadline_ns:
            self.others.push(<HeapNode *> delivery)
        else:
            delivery.heap_index = IN_LIST
            delivery.next = NULL
            delivery.previous = self.last
            if self.last is NULL:
                self.first = delivery
            else:
                self.last.next = delivery
            self.last = delivery
        self.size += 1
        return 0

    cdef Delivery *peek(self) noexcept:
        """Return the earliest, or NULL."""
        cdef Delivery *other = <Delivery *> self.others.peek()
        if other is NULL or (self.first is not NULL and self.first.deadline_ns <= other.deadline_ns):
            return self.first
        return other

    cdef void remove(self, Delivery *delivery) noexcept:
        """Remove a delivery. Call it before changing a deadline, too, and push the delivery again."""
        self.size -= 1
        if delivery.heap_index == IN_LIST:
            self.unlink(delivery)
        else:
            self.others.remove(<HeapNode *> delivery)

    cdef void unlink(self, Delivery *delivery) noexcept:
        if NSQFAST_DEBUG:
            assert (delivery.previous is NULL) == (delivery is self.first), "not in this line"
            assert (delivery.next is NULL) == (delivery is self.last), "not in this line"
        if delivery.previous is NULL:
            self.first = delivery.next
        else:
            delivery.previous.next = delivery.next
        if delivery.next is NULL:
            self.last = delivery.previous
        else:
            delivery.next.previous = delivery.previous
        delivery.next = delivery.previous = NULL

    cdef InFlightQueue take_all(self):
        """Move everything into a new queue and return that."""
        cdef InFlightQueue taken = InFlightQueue()
        taken.first, taken.last, taken.size = self.first, self.last, self.size
        taken.others, self.others = self.others, taken.others
        self.first = self.last = NULL
        self.size = 0
        return taken

    cdef int64_t oldest(self, uint32_t most, bint by_delivery) noexcept:
        """When the oldest message was published, or delivered; 0 = the queue is empty. A requeued or touched message
        may stand anywhere, so all are examined; if there are more than `most`, only about so many, those with the
        earliest deadlines first."""
        cdef int64_t oldest_ns = 0, time_ns
        cdef Delivery *delivery = self.first
        cdef uint32_t i, _, others = self.others.size
        if self.size > most:
            others = min(others, most // 2)
        for i in range(others):
            time_ns = time_of(<Delivery *> self.others.nodes[i], by_delivery)
            if oldest_ns == 0 or time_ns < oldest_ns:
                oldest_ns = time_ns
        for _ in range(most - min(most, others)):
            if delivery is NULL:
                break
            time_ns = time_of(delivery, by_delivery)
            if oldest_ns == 0 or time_ns < oldest_ns:
                oldest_ns = time_ns
            delivery = delivery.next
        return oldest_ns


cdef int64_t oldest_published(list queues) noexcept:
    """When the oldest message in these queues was published; 0 = they are empty."""
    cdef InFlightQueue queue
    cdef int64_t oldest_ns = 0, queue_ns
    cdef uint32_t most = OLDEST_SCAN_MAX
    cdef size_t size = 0
    for queue in queues:
        size += queue.size
    if size > OLDEST_SCAN_MAX:
        most = max(1, OLDEST_SCAN_MAX // <uint32_t> len(queues))
    for queue in queues:
        queue_ns = queue.oldest(most, False)
        if oldest_ns == 0 or 0 < queue_ns < oldest_ns:
            oldest_ns = queue_ns
    return oldest_ns


cdef inline int64_t time_of(Delivery *delivery, bint by_delivery) noexcept:
    return delivery.delivered_ns if by_delivery else delivery.message.timestamp_ns
