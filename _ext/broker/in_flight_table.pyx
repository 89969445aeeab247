"""Open addressing with linear probing; a removal shifts the entries behind it back, so there are no tombstones.

A half-used table grows step by step, since moving a million entries takes 100 ms: each insert copies a few of them into
one of twice the size, home by home, and lookups use the old table until the last one was copied. By then the old table
is a little more than half used.

Equal ids can come from a clock that was set back before a restart. Go forgets the second; here both are kept, and the
owner tells them apart.
"""

from libc.stdint cimport int64_t
from libc.stdlib cimport calloc, free

from nsqfast._ext.core.memory cimport account, charge


cdef enum:
    CAPACITY_MIN = 16
    # Homes whose entries one insert copies.
    COPY_COUNT = 16


cdef inline size_t home(uint64_t id, int shift) noexcept:
    # Fibonacci hashing: ids of one tick differ only in their lowest bits.
    return <size_t> ((id * <uint64_t> 0x9E3779B97F4A7C15) >> shift)


cdef inline void place(Entry *entries, size_t mask, int shift, uint64_t id, Delivery *delivery) noexcept:
    cdef size_t i = home(id, shift)
    while entries[i].delivery is not NULL:
        i = (i + 1) & mask
    entries[i].id = id
    entries[i].delivery = delivery


cdef inline void erase(Entry *entries, size_t mask, int shift, size_t hole) noexcept:
    cdef size_t i = (hole + 1) & mask
    while entries[i].delivery is not NULL:
        # An entry may move into the hole unless its home lies cyclically behind the hole.
        if ((i - home(entries[i].id, shift)) & mask) >= ((i - hole) & mask):
            entries[hole] = entries[i]
            hole = i
        i = (i + 1) & mask
    entries[hole].delivery = NULL


cdef class InFlightTable:

    def __dealloc__(self):
        charge(&account, -<int64_t> (self.total_capacity() * sizeof(Entry)))
        free(self.entries)
        free(self.larger)

    cdef int insert(self, Delivery *delivery) except -1:
        if (self.size + 1) * 2 > self.capacity or self.larger is not NULL:
            return self.insert_growing(delivery)
        place(self.entries, self.capacity - 1, self.shift, delivery.message.id, delivery)
        self.size += 1
        return 0

    cdef int insert_growing(self, Delivery *delivery) except -1:
        cdef uint64_t id = delivery.message.id
        self.grow()
        place(self.entries, self.capacity - 1, self.shift, id, delivery)
        if self.larger is not NULL and home(id, self.shift) < self.copied:
            place(self.larger, self.capacity * 2 - 1, self.shift - 1, id, delivery)
        self.size += 1
        return 0

    cdef int grow(self) except -1:
        """Take one step."""
        cdef size_t capacity = self.capacity * 2 if self.capacity else CAPACITY_MIN
        if self.larger is NULL:
            self.larger = <Entry *> calloc(capacity, sizeof(Entry))
            if self.larger is NULL:
                raise MemoryError
            charge(&account, <int64_t> (capacity * sizeof(Entry)))
            self.copied = 0
        if self.capacity:
            self.copy_some()
        if self.copied == self.capacity:
            self.end_growth()
        return 0

    cdef void copy_some(self) noexcept:
        """An entry stands at its home or behind it, with no free slot between, possibly wrapping around."""
        cdef size_t mask = self.capacity - 1, end = self.copied + COPY_COUNT, i, its_home
        cdef Entry *entry
        for i in range(self.copied, self.copied + self.capacity):
            entry = &self.entries[i & mask]
            if entry.delivery is not NULL:
                its_home = home(entry.id, self.shift)
                if self.copied <= its_home < end:
                    place(self.larger, mask * 2 + 1, self.shift - 1, entry.id, entry.delivery)
            elif i >= end:
                break
        self.copied = end

    cdef void end_growth(self) noexcept:
        cdef size_t capacity = self.capacity * 2 if self.capacity else CAPACITY_MIN
        charge(&account, -<int64_t> (self.capacity * sizeof(Entry)))
        free(self.entries)
        self.entries, self.capacity, self.larger = self.larger, capacity, NULL
        self.shift = 64
        while capacity > 1:
            self.shift -= 1
            capacity >>= 1

    cdef size_t total_capacity(self) noexcept:
        """The slots of both tables while it grows."""
        if self.larger is NULL:
            return self.capacity
        return self.capacity + (self.capacity * 2 if self.capacity else CAPACITY_MIN)

    cdef Entry *find(self, uint64_t id, uint64_t owner) noexcept:
        """Return the entry with that id and owner; else any with that id, else NULL. Valid until the next change."""
        cdef Entry *other = NULL
        cdef size_t i
        if self.size == 0:
            return NULL
        i = home(id, self.shift)
        while self.entries[i].delivery is not NULL:
            if self.entries[i].id == id:
                if self.entries[i].delivery.owner == owner:
                    return &self.entries[i]
                other = &self.entries[i]
            i = (i + 1) & (self.capacity - 1)
        return other

    cdef void remove(self, Delivery *delivery) noexcept:
        """Remove a delivery that is in the table."""
        cdef size_t i = home(delivery.message.id, self.shift)
        while self.entries[i].delivery is not delivery:
            i = (i + 1) & (self.capacity - 1)
        self.remove_at(&self.entries[i])

    cdef void remove_at(self, Entry *entry) noexcept:
        if self.larger is not NULL:
            self.remove_growing(entry)
            return
        self.size -= 1
        erase(self.entries, self.capacity - 1, self.shift, <size_t> (entry - self.entries))

    cdef void remove_growing(self, Entry *entry) noexcept:
        cdef size_t i, mask = self.capacity * 2 - 1
        if home(entry.id, self.shift) < self.copied:
            i = home(entry.id, self.shift - 1)
            while self.larger[i].delivery is not entry.delivery:
                i = (i + 1) & mask
            erase(self.larger, mask, self.shift - 1, i)
        self.size -= 1
        erase(self.entries, self.capacity - 1, self.shift, <size_t> (entry - self.entries))
