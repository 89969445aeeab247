"""Emptied and deleted messages disappear from all figures at once. Freeing millions of them takes as long as delivering
them, so a part is freed in each turn of the loop; until then their memory counts as used. Files are removed likewise.
"""

from libc.stdint cimport INT64_MAX, uintptr_t

from nsqfast._ext.core.budget cimport begin_part, is_spent
from nsqfast._ext.core.clock cimport monotonic_ns
from nsqfast._ext.core.heap cimport DeadlineHeap
from nsqfast._ext.core.in_flight cimport InFlightQueue
from nsqfast._ext.core.message cimport Delivery, Message, delivery_free, message_drop


cdef class Disposal(Timed):
    """One for all queues of a broker. An engine that has files overrides has_files and remove_files."""

    def __init__(self, Timers timers, object on_freed):
        self.timers = timers
        self.on_freed = on_freed
        self.left = []
        self.callbacks = []

    cdef int free_later(self, object held) except -1:
        """Free the messages and deliveries of a Ring, an InFlightQueue or a DeadlineHeap."""
        self.left.append(held)
        return self.begin()

    cdef int note_topic_deleted(self) except -1:
        """All files of one of them were added."""
        self.deletion_count -= 1
        return self.begin()

    cpdef int begin(self) except -1:
        if not self.is_armed:
            self.timers.arm(self, monotonic_ns())
        return 0

    cdef int on_deadline(self, int64_t now_ns) except -1:
        cdef Budget budget = begin_part()
        cdef bint is_over = self.remove_files(&budget)
        if is_over:
            self.call_waiting()
        if not self.free_some(&budget) or not is_over:
            return self.timers.arm(self, now_ns + 1)  # the rest follows in later turns
        self.on_freed()
        return 0

    cdef int when_removed(self, object callback) except -1:
        """Call callback() once the files of everything emptied or deleted so far are gone."""
        if self.has_files() or self.deletion_count:
            self.callbacks.append(callback)
        else:
            callback()
        return 0

    cdef bint has_files(self) noexcept:
        """Whether there are files to be removed."""
        return False

    cdef bint remove_files(self, Budget *budget) except -1:
        """False: the part ended before all files were removed, or there are more than enough to be closed."""
        return True

    cdef int call_waiting(self) except -1:
        if self.deletion_count:
            return 0        # their files will be added
        callbacks, self.callbacks = self.callbacks, []
        for callback in callbacks:
            callback()
        return 0

    cdef bint free_some(self, Budget *budget) except -1:
        """False: the part ended before all was freed."""
        while self.left:
            if not drop(self.left[len(self.left) - 1], budget):
                return False
            self.left.pop()
        return True

    cdef int finish(self) except -1:
        """Free what is left, at the end of the process."""
        cdef Budget endless = Budget(0, INT64_MAX)
        self.timers.disarm(self)
        self.remove_files(&endless)
        self.call_waiting()
        self.free_some(&endless)
        return 0


cdef bint drop(object held, Budget *budget) except -1:
    """False: the part ended first; the same below."""
    if isinstance(held, Ring):
        return drop_ring(held, budget)
    return drop_queue(held, budget) if isinstance(held, InFlightQueue) else drop_heap(held, budget)


cdef bint drop_ring(Ring ring, Budget *budget) noexcept:
    cdef uintptr_t item
    while ring.size:
        item = <uintptr_t> ring.pop()
        if item & 1:
            message_drop(<Message *> (item & ~<uintptr_t> 1))
        else:
            delivery_free(<Delivery *> item)
        if is_spent(budget, 1):
            return False
    return True


cdef bint drop_queue(InFlightQueue queue, Budget *budget) noexcept:
    cdef Delivery *delivery = queue.peek()
    while delivery is not NULL:
        queue.remove(delivery)
        delivery_free(delivery)
        if is_spent(budget, 1):
            return False
        delivery = queue.peek()
    return True


cdef bint drop_heap(DeadlineHeap heap, Budget *budget) noexcept:
    while heap.size:
        heap.size -= 1
        delivery_free(<Delivery *> heap.nodes[heap.size])
        if is_spent(budget, 1):
            return False
    return True
