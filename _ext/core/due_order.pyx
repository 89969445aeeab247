"""A member of a heap is never earlier than its parent, so the earliest that was not returned yet is a child of one that
was: k of them cost k log k, however large the heap is. The heap must not change meanwhile.
"""

from libc.stdint cimport INT64_MAX
from libc.stdlib cimport free, realloc

from nsqfast._ext.core.memory cimport Memory
from nsqfast._ext.core.message cimport prefetch


cdef class DueOrder:

    def __cinit__(self, DeadlineHeap heap, DueHeap dues=None):
        self.heap, self.dues = heap, dues
        self.add(0)

    def __dealloc__(self):
        free(self.candidates)

    cdef HeapNode *peek(self) noexcept:
        """Return what `next` would return, or NULL."""
        return self.heap.nodes[self.candidates[0].index] if self.size else NULL

    cdef HeapNode *next(self) except? NULL:
        """Return the earliest that was not returned yet, or NULL."""
        cdef int64_t index = self.next_index()
        return self.heap.nodes[index] if index >= 0 else NULL

    cdef int64_t next_index(self) except -2:
        """The same by its place in the heap; -1: none is left."""
        cdef uint32_t index
        if self.size == 0:
            return -1
        index = self.candidates[0].index
        self.drop_first()
        self.add(2 * index + 1)
        self.add(2 * index + 2)
        return index

    cdef int64_t deadline_ns(self) noexcept:
        """When the one that comes next is due; INT64_MAX: none is left."""
        return self.candidates[0].deadline_ns if self.size else INT64_MAX

    cdef int add(self, uint32_t index) except -1:
        cdef Candidate *candidates = self.candidates
        cdef uint32_t at = self.size, parent, capacity = self.capacity * 2 or 64
        cdef int64_t deadline_ns
        if index >= (self.heap.size if self.dues is None else self.dues.size):
            return 0
        if self.size == self.capacity:
            candidates = <Candidate *> realloc(self.candidates, capacity * sizeof(Candidate))
            if candidates is NULL:
                raise MemoryError
            self.candidates, self.capacity = candidates, capacity
        self.size += 1
        if self.dues is not None:
            deadline_ns = self.dues.entries[index].deadline_ns
        else:
            if 2 * index + 2 < self.heap.size:
                # The deadlines of its children are read when this one is returned.
                prefetch(self.heap.nodes[2 * index + 1])
                prefetch(self.heap.nodes[2 * index + 2])
            deadline_ns = self.heap.nodes[index].deadline_ns
        while at:
            parent = (at - 1) >> 1
            if candidates[parent].deadline_ns <= deadline_ns:
                break
            candidates[at] = candidates[parent]
            at = parent
        candidates[at] = Candidate(deadline_ns, index)
        return 0

    cdef void drop_first(self) noexcept:
        cdef Candidate *candidates = self.candidates
        cdef Candidate last
        cdef uint32_t at = 0, child = 1
        self.size -= 1
        last = candidates[self.size]
        while child < self.size:
            if child + 1 < self.size and candidates[child + 1].deadline_ns < candidates[child].deadline_ns:
                child += 1
            if candidates[child].deadline_ns >= last.deadline_ns:
                break
            candidates[at] = candidates[child]
            at = child
            child = 2 * at + 1
        candidates[at] = last


cdef class QueueOrder:

    def __cinit__(self, InFlightQueue queue not None):
        self.in_list = queue.first
        self.others = DueOrder(queue.others)

    cdef Delivery *peek(self) noexcept:
        """Return the earliest that was not returned yet, or NULL."""
        cdef Delivery *other = <Delivery *> self.others.peek()
        if other is NULL or (self.in_list is not NULL and self.in_list.deadline_ns <= other.deadline_ns):
            return self.in_list
        return other

    cdef int skip(self) except -1:
        """Step over the one that `peek` returned."""
        if self.peek() is self.in_list:
            self.in_list = self.in_list.next
        else:
            self.others.next()
        return 0


cdef class QueuesOrder:
    """The first k members of n queues cost n + k log n."""

    def __cinit__(self, list queues not None, Memory memory not None):
        cdef InFlightQueue queue
        cdef QueueOrder order
        self.heap = DeadlineHeap(memory)
        self.orders = [QueueOrder(queue) for queue in queues if queue.size]
        for order in self.orders:
            order.node.timed = <void *> order
            order.node.deadline_ns = order.peek().deadline_ns
            self.heap.push(<HeapNode *> &order.node)

    cdef Delivery *next(self) except? NULL:
        """Return the earliest that was not returned yet, or NULL."""
        cdef TimedNode *node = <TimedNode *> self.heap.peek()
        cdef QueueOrder order
        cdef Delivery *delivery
        cdef Delivery *after
        if node is NULL:
            return NULL
        order = <QueueOrder> node.timed
        delivery = order.peek()
        order.skip()
        after = order.peek()
        if after is NULL:
            self.heap.remove(<HeapNode *> node)
        else:
            node.deadline_ns = after.deadline_ns
            self.heap.moved(<HeapNode *> node)
        return delivery
