"""First in, first out: pointers in a ring buffer whose capacity is a power of two and follows its size."""

cimport cython
from libc.stdint cimport int64_t

from nsqfast._ext.core.memory cimport Account


cdef enum:
    CAPACITY_MIN = 16


@cython.final
cdef class Ring:
    cdef Account *account
    cdef void **slots
    cdef size_t head         # slot = head & mask
    cdef size_t base         # base + head only grows: the number of the oldest item
    cdef size_t size
    cdef size_t capacity

    # What is done to each message is inline.

    cdef inline int push(self, void *item) except -1:
        if self.size == self.capacity:
            self.grow()
        self.slots[(self.head + self.size) & (self.capacity - 1)] = item
        self.size += 1
        return 0

    cdef inline void *pop(self) noexcept:
        """Remove and return the oldest, or NULL."""
        cdef void *item
        if self.size == 0:
            return NULL
        item = self.slots[self.head & (self.capacity - 1)]
        self.head += 1
        self.size -= 1
        if self.size == 0 and self.capacity > CAPACITY_MIN:
            self.drop_slots()
        return item

    cdef inline void *ahead(self, size_t count) noexcept:
        """Return what `pop` would return after `count` others, or NULL."""
        return self.slots[(self.head + count) & (self.capacity - 1)] if count < self.size else NULL

    cdef void *pop_last(self) noexcept
    cdef Ring take_all(self)
    cdef int64_t number(self) noexcept
    cdef void take_out(self, size_t count) noexcept
    cdef void close_gaps(self, size_t begin, size_t end) noexcept
    cdef int grow(self) except -1
    cdef void drop_slots(self) noexcept
