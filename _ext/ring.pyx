"""Grows by doubling and shrinks when nearly empty; the bound on the number of messages is the backlog's business."""

from libc.stdint cimport int64_t
from libc.stdlib cimport free, malloc

from nsqfast._ext.memory cimport account, charge


cdef enum:
    CAPACITY_MIN = 16


cdef class Ring:
    """Holds pointers only; what they point to belongs to whoever pushed them."""

    def __dealloc__(self):
        self.drop_slots()

    cdef int push(self, void *item) except -1:
        if self.size == self.capacity:
            self.move(self.capacity * 2 if self.capacity else CAPACITY_MIN)
        self.slots[(self.head + self.size) & (self.capacity - 1)] = item
        self.size += 1
        return 0

    cdef void *pop(self) noexcept:
        """The oldest, or NULL."""
        cdef void *item
        if self.size == 0:
            return NULL
        item = self.slots[self.head & (self.capacity - 1)]
        self.head += 1
        self.size -= 1
        if self.size == 0 and self.capacity > CAPACITY_MIN:
            self.drop_slots()
        return item

    cdef void *pop_last(self) noexcept:
        """The newest, or NULL."""
        if self.size == 0:
            return NULL
        self.size -= 1
        return self.slots[(self.head + self.size) & (self.capacity - 1)]

    cdef void *ahead(self, size_t count) noexcept:
        """What `pop` gives after `count` others, or NULL."""
        return self.slots[(self.head + count) & (self.capacity - 1)] if count < self.size else NULL

    cdef int move(self, size_t capacity) except -1:
        cdef void **slots = <void **> malloc(capacity * sizeof(void *))
        cdef size_t i
        if slots is NULL:
            raise MemoryError
        for i in range(self.size):
            slots[i] = self.slots[(self.head + i) & (self.capacity - 1)]
        self.drop_slots()
        charge(&account, <int64_t> (capacity * sizeof(void *)))
        self.slots = slots
        self.capacity = capacity
        self.head = 0
        return 0

    cdef void drop_slots(self) noexcept:
        charge(&account, -<int64_t> (self.capacity * sizeof(void *)))
        free(self.slots)
        self.slots = NULL
        self.capacity = 0

    def put(self, size_t item):
        """Push a number; for tests."""
        self.push(<void *> item)

    def get(self):
        """Pop a number, or None; for tests."""
        return <size_t> self.pop() if self.size else None

    def __len__(self):
        return self.size
