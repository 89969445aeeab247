"""Hash table from message id to Delivery; two deliveries may carry the same id."""

from libc.stdint cimport uint64_t

from nsqfast._ext.message cimport Delivery


ctypedef struct Entry:
    uint64_t id
    Delivery *delivery       # NULL = free


cdef class InFlightTable:
    cdef Entry *entries
    cdef size_t size
    cdef size_t capacity     # a power of two, at most half used: probes stay short though FINs come in any order
    cdef int shift

    cdef int insert(self, Delivery *delivery) except -1
    cdef Entry *find(self, uint64_t id, uint64_t owner) noexcept
    cdef void remove(self, Delivery *delivery) noexcept
    cdef void remove_at(self, Entry *entry) noexcept
    cdef inline size_t home(self, uint64_t id) noexcept
    cdef void place(self, uint64_t id, Delivery *delivery) noexcept
    cdef int rehash(self, size_t capacity) except -1
