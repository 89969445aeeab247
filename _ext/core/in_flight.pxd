"""The deliveries in flight: by id for a channel, by the time they expire for a consumer."""

cimport cython
from libc.stdint cimport int64_t, uint32_t, uint64_t

from nsqfast._ext.core.heap cimport DeadlineHeap
from nsqfast._ext.core.memory cimport Account
from nsqfast._ext.core.message cimport Delivery


# By the message's id; two deliveries may carry the same one.
ctypedef struct Entry:
    uint64_t id
    Delivery *delivery       # NULL = free


cdef inline size_t home(uint64_t id, int shift) noexcept:
    # Fibonacci hashing: ids of one tick differ only in their lowest bits.
    return <size_t> ((id * <uint64_t> 0x9E3779B97F4A7C15) >> shift)


@cython.final
cdef class InFlightTable:
    cdef Account *account
    cdef Entry *entries
    cdef size_t size
    cdef size_t capacity     # a power of two, at most about half used: probes stay short in whatever order FINs come
    cdef int shift
    cdef Entry *larger       # of twice the capacity, into which the entries are copied; NULL = it does not grow
    cdef size_t copied       # entries whose home is before this are in both tables

    cdef int insert(self, Delivery *delivery) except -1
    cdef int insert_item(self, uint64_t id, Delivery *delivery) except -1
    cdef Entry *find_item(self, uint64_t id) noexcept
    cdef inline Entry *find(self, uint64_t id, uint64_t owner) noexcept:
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

    cdef void remove(self, Delivery *delivery) noexcept
    cdef void remove_at(self, Entry *entry) noexcept
    cdef void remove_growing(self, Entry *entry) noexcept
    cdef int insert_growing(self, uint64_t id, Delivery *delivery) except -1
    cdef int grow(self) except -1
    cdef size_t total_capacity(self) noexcept
    cdef void copy_some(self) noexcept
    cdef void end_growth(self) noexcept


@cython.final
cdef class InFlightQueue:
    #   first ─ … ─ last      a list of deliveries whose deadlines came in order
    #   others                a heap of the others
    cdef Delivery *first
    cdef Delivery *last
    cdef DeadlineHeap others
    cdef size_t size
    cdef bint is_borrowed    # its maker frees the deliveries
    cdef Delivery *cursor    # in the list: where somebody goes on who looks at a part of it at a time

    cdef int push(self, Delivery *delivery) except -1
    cdef Delivery *peek(self) noexcept
    cdef void remove(self, Delivery *delivery) noexcept
    cdef void unlink(self, Delivery *delivery) noexcept
    cdef InFlightQueue take_all(self)
    cdef int64_t oldest(self, uint32_t most, bint by_delivery) noexcept


cdef int64_t oldest_published(list queues) noexcept
