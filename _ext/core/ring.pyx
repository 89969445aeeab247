"""Doubles when full and shrinks when nearly empty; the backlog limits the number of messages."""

from libc.stdint cimport int64_t
from libc.stdlib cimport free, realloc
from libc.string cimport memcpy

from nsqfast._ext.core.memory cimport Memory, account_of, charge, leave_account


cdef class Ring:
    """Holds pointers only; whoever pushed them owns what they point to."""

    def __cinit__(self, Memory memory=None):
        self.account = account_of(memory)

    def __dealloc__(self):
        leave_account(self.account, <int64_t> (self.capacity * sizeof(void *)))
        free(self.slots)

    cdef void *pop_last(self) noexcept:
        """Remove and return the newest, or NULL."""
        if self.size == 0:
            return NULL
        self.size -= 1
        return self.slots[(self.head + self.size) & (self.capacity - 1)]

    cdef Ring take_all(self):
        """Move everything into a new ring and return that."""
        cdef Ring taken = Ring(<Memory> self.account.owner)
        taken.slots, taken.head, taken.size, taken.capacity = self.slots, self.head, self.size, self.capacity
        self.slots = NULL
        self.head += self.size
        self.size = self.capacity = 0
        return taken

    cdef int64_t number(self) noexcept:
        """The number of the oldest; each item that is pushed has the next one, and keeps it until older ones leave from
        between."""
        return <int64_t> (self.base + self.head)

    cdef void take_out(self, size_t count) noexcept:
        """Leave a gap where `ahead` finds an item; close_gaps has to follow before anything else."""
        self.slots[(self.head + count) & (self.capacity - 1)] = NULL

    cdef void close_gaps(self, size_t begin, size_t end) noexcept:
        """All gaps are in [begin, end): what is older moves up, so that what comes later keeps its number."""
        cdef size_t mask = self.capacity - 1, source = end, place = end
        while source > begin or (source and source != place):
            source -= 1
            if self.slots[(self.head + source) & mask] is not NULL:
                place -= 1
                self.slots[(self.head + place) & mask] = self.slots[(self.head + source) & mask]
        self.head += place - source
        self.size -= place - source
        if self.size == 0 and self.capacity > CAPACITY_MIN:
            self.drop_slots()

    cdef int grow(self) except -1:
        """Double the slots. realloc extends a large block without copying it, so at most half of the slots are."""
        cdef size_t before = self.capacity, capacity = before * 2 if before else CAPACITY_MIN
        cdef size_t newer = self.head & (before - 1) if before else 0   # at the front, because they wrapped around
        cdef size_t older = before - newer
        cdef void **slots = <void **> realloc(self.slots, capacity * sizeof(void *))
        if slots is NULL:
            raise MemoryError
        charge(self.account, <int64_t> ((capacity - before) * sizeof(void *)))
        self.slots = slots
        self.capacity = capacity
        self.base += self.head
        if newer <= older:
            memcpy(slots + before, slots, newer * sizeof(void *))
            self.head = newer
        else:
            memcpy(slots + capacity - older, slots + newer, older * sizeof(void *))
            self.head = capacity - older
        self.base -= self.head
        return 0

    cdef void drop_slots(self) noexcept:
        charge(self.account, -<int64_t> (self.capacity * sizeof(void *)))
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
