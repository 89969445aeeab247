"""Deadlines mostly arrive in growing order, so a push is one comparison; removing the earliest walks down the heap."""

import logging

from cpython.ref cimport Py_DECREF, Py_INCREF
from libc.stdlib cimport free, realloc

from nsqfast._ext.core.budget cimport Budget, begin_part, is_spent
from nsqfast._ext.core.debug cimport NSQFAST_DEBUG
from nsqfast._ext.core.memory cimport Memory, account_of, charge, leave_account

log = logging.getLogger("nsqd")

cdef enum:
    # Units that the call of a Timed counts for: the clock is read after every fourth call.
    TIMED_UNITS = 16


cdef class DeadlineHeap:
    """A binary heap of nodes; their owners keep them alive."""

    def __cinit__(self, Memory memory=None):
        self.account = account_of(memory)

    def __dealloc__(self):
        leave_account(self.account, <int64_t> (self.capacity * sizeof(HeapNode *)))
        free(self.nodes)

    cdef int push(self, HeapNode *node) except -1:
        if self.size == self.capacity:
            self.grow()
        node.heap_index = self.size
        self.nodes[self.size] = node
        self.size += 1
        self.up(node.heap_index)
        return 0

    cdef int grow(self) except -1:
        cdef uint32_t capacity = self.capacity * 2 if self.capacity else 16
        cdef HeapNode **nodes = <HeapNode **> realloc(self.nodes, capacity * sizeof(HeapNode *))
        if nodes is NULL:
            raise MemoryError
        charge(self.account, <int64_t> ((capacity - self.capacity) * sizeof(HeapNode *)))
        self.nodes = nodes
        self.capacity = capacity
        return 0

    cdef HeapNode *peek(self) noexcept:
        """Return the earliest, or NULL."""
        return self.nodes[0] if self.size else NULL

    cdef void remove(self, HeapNode *node) noexcept:
        cdef uint32_t index = node.heap_index
        if NSQFAST_DEBUG:
            assert index < self.size and self.nodes[index] is node
        self.size -= 1
        if index == self.size:
            return
        self.nodes[index] = self.nodes[self.size]
        self.nodes[index].heap_index = index
        self.moved(self.nodes[index])

    cdef void moved(self, HeapNode *node) noexcept:
        """Restore the order after the owner changed the node's deadline."""
        self.up(node.heap_index)
        self.down(node.heap_index)

    cdef void up(self, uint32_t index) noexcept:
        cdef HeapNode *node = self.nodes[index]
        cdef uint32_t parent
        while index:
            parent = (index - 1) >> 1
            if self.nodes[parent].deadline_ns <= node.deadline_ns:
                break
            self.nodes[index] = self.nodes[parent]
            self.nodes[index].heap_index = index
            index = parent
        self.nodes[index] = node
        node.heap_index = index

    cdef void down(self, uint32_t index) noexcept:
        cdef HeapNode *node = self.nodes[index]
        cdef uint32_t child = 2 * index + 1
        while child < self.size:
            if child + 1 < self.size and self.nodes[child + 1].deadline_ns < self.nodes[child].deadline_ns:
                child += 1
            if self.nodes[child].deadline_ns >= node.deadline_ns:
                break
            self.nodes[index] = self.nodes[child]
            self.nodes[index].heap_index = index
            index = child
            child = 2 * index + 1
        self.nodes[index] = node
        node.heap_index = index

    cdef uint32_t passing(self, uint32_t index, uint32_t limit) noexcept:
        """The one at that place leaves it. Of those that follow upwards at most one comes from `limit` or behind it to
        before it: return its index, or the last one's, which may come to that place itself."""
        cdef uint32_t child = 2 * index + 1, last = self.size - 1
        while child < last:
            if child + 1 < last and self.nodes[child + 1].deadline_ns < self.nodes[child].deadline_ns:
                child += 1
            if child >= limit:
                return child
            child = 2 * child + 1
        return last


cdef class Timed:
    """Timers.arm sets its deadline; once called it is not armed any more."""

    cdef int on_deadline(self, int64_t now_ns) except -1:
        raise AssertionError("a Timed without on_deadline")


cdef class Timers:
    """All deadlines of one broker, by its clock: the loop needs a single timer, for the earliest of them."""

    def __init__(self, Memory memory=None):
        self.clock = Clock()
        self.heap = DeadlineHeap(memory)
        self.on_deadline = None

    cdef int arm(self, Timed timed, int64_t deadline_ns) except -1:
        """Call `timed` at this deadline; it replaces an earlier one."""
        timed.node.deadline_ns = deadline_ns
        if timed.is_armed:
            self.heap.moved(<HeapNode *> &timed.node)
        else:
            timed.node.timed = <void *> timed
            self.heap.push(<HeapNode *> &timed.node)
            timed.is_armed = True
            Py_INCREF(timed)
        if self.on_deadline is not None and (self.announced_ns == 0 or deadline_ns < self.announced_ns):
            self.announced_ns = deadline_ns
            self.on_deadline(deadline_ns)
        return 0

    cdef int disarm(self, Timed timed) except -1:
        if timed.is_armed:
            self.heap.remove(<HeapNode *> &timed.node)
            timed.is_armed = False
            Py_DECREF(timed)
        return 0

    def close(self):
        """Call nothing any more, and keep nothing alive that is armed."""
        while self.heap.size:
            self.disarm(<Timed> (<TimedNode *> self.heap.peek()).timed)

    def run(self, int64_t now_ns):
        """Call those whose deadline has passed; return the next deadline, 0 for none.

        The result is in the past if the part ended before all of them were called: the next part begins with the rest.
        """
        cdef Budget budget = begin_part()
        cdef TimedNode *node
        cdef Timed timed
        self.announced_ns = now_ns  # what is armed meanwhile need not be announced
        while self.heap.size:
            node = <TimedNode *> self.heap.peek()
            if node.deadline_ns > now_ns:
                break
            timed = <Timed> node.timed
            self.disarm(timed)
            try:
                timed.on_deadline(now_ns)
            except Exception:
                # A bug of ours must not keep the other deadlines from being served.
                log.exception("a deadline could not be kept")
            if is_spent(&budget, TIMED_UNITS):
                break
        node = <TimedNode *> self.heap.peek()
        self.announced_ns = 0 if node is NULL else node.deadline_ns
        return self.announced_ns
