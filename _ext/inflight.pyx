"""Open addressing with linear probing; a removal shifts back what follows, so there are no tombstones.

Equal ids can come from a clock that was set back over a restart. Go drops the second from its books; here both are
kept, and the owner tells them apart.
"""

from libc.stdlib cimport calloc, free

from nsqfast._ext.message cimport Message, delivery_free, delivery_new, message_new


cdef enum:
    CAPACITY_MIN = 16


cdef class InFlightTable:

    def __dealloc__(self):
        free(self.entries)

    cdef inline size_t home(self, uint64_t id) noexcept:
        # Fibonacci hashing: ids of one tick differ only in their lowest bits.
        return <size_t> ((id * <uint64_t> 0x9E3779B97F4A7C15) >> self.shift)

    cdef int insert(self, Delivery *delivery) except -1:
        if (self.size + 1) * 2 > self.capacity:
            self.rehash(self.capacity * 2 if self.capacity else CAPACITY_MIN)
        self.place(delivery.message.id, delivery)
        self.size += 1
        return 0

    cdef void place(self, uint64_t id, Delivery *delivery) noexcept:
        cdef size_t i = self.home(id)
        while self.entries[i].delivery is not NULL:
            i = (i + 1) & (self.capacity - 1)
        self.entries[i].id = id
        self.entries[i].delivery = delivery

    cdef int rehash(self, size_t capacity) except -1:
        cdef Entry *old = self.entries
        cdef size_t old_capacity = self.capacity, i
        cdef Entry *entries = <Entry *> calloc(capacity, sizeof(Entry))
        if entries is NULL:
            raise MemoryError
        self.entries = entries
        self.capacity = capacity
        self.shift = 64
        while capacity > 1:
            self.shift -= 1
            capacity >>= 1
        for i in range(old_capacity):
            if old[i].delivery is not NULL:
                self.place(old[i].id, old[i].delivery)
        free(old)
        return 0

    cdef Entry *find(self, uint64_t id, uint64_t owner) noexcept:
        """The entry of that id and that owner; else another one of that id, else NULL. Good until the next change."""
        cdef Entry *other = NULL
        cdef size_t i
        if self.size == 0:
            return NULL
        i = self.home(id)
        while self.entries[i].delivery is not NULL:
            if self.entries[i].id == id:
                if self.entries[i].delivery.owner == owner:
                    return &self.entries[i]
                other = &self.entries[i]
            i = (i + 1) & (self.capacity - 1)
        return other

    cdef void remove(self, Delivery *delivery) noexcept:
        """Take out a delivery that is in the table."""
        cdef size_t i = self.home(delivery.message.id)
        while self.entries[i].delivery is not delivery:
            i = (i + 1) & (self.capacity - 1)
        self.remove_at(&self.entries[i])

    cdef void remove_at(self, Entry *entry) noexcept:
        cdef size_t mask = self.capacity - 1
        cdef size_t hole = <size_t> (entry - self.entries), i
        self.size -= 1
        i = (hole + 1) & mask
        while self.entries[i].delivery is not NULL:
            # An entry may move into the hole unless its home lies cyclically behind the hole.
            if ((i - self.home(self.entries[i].id)) & mask) >= ((i - hole) & mask):
                self.entries[hole] = self.entries[i]
                hole = i
            i = (i + 1) & mask
        self.entries[hole].delivery = NULL


cdef class TestTable:
    """An InFlightTable of numbered deliveries; for tests."""
    cdef InFlightTable table

    def __init__(self):
        self.table = InFlightTable()

    def insert(self, uint64_t id, uint64_t owner):
        cdef Message *message = message_new(NULL, 0, 0, id)
        cdef Delivery *delivery = delivery_new(message)
        delivery.owner = owner
        self.table.insert(delivery)

    def find(self, uint64_t id, uint64_t owner):
        """The owner found, or None."""
        cdef Entry *entry = self.table.find(id, owner)
        return None if entry is NULL else entry.delivery.owner

    def remove(self, uint64_t id, uint64_t owner):
        """Whether that very delivery was there; it is gone now."""
        cdef Entry *entry = self.table.find(id, owner)
        if entry is NULL or entry.delivery.owner != owner:
            return False
        delivery = entry.delivery
        if id & 1:
            self.table.remove(delivery)
        else:
            self.table.remove_at(entry)
        delivery_free(delivery)
        return True

    def __len__(self):
        return self.table.size
