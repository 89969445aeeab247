"""First in, first out: pointers in a ring buffer whose capacity is a power of two and follows its size."""

from libc.stdint cimport int64_t

from nsqfast._ext.core.memory cimport Account


cdef class Ring:
    cdef Account *account
    cdef void **slots
    cdef size_t head         # slot = head & mask
    cdef size_t base         # base + head only grows: the number of the oldest item
    cdef size_t size
    cdef size_t capacity

    cdef int push(self, void *item) except -1
    cdef void *pop(self) noexcept
    cdef void *pop_last(self) noexcept
    cdef Ring take_all(self)
    cdef void *ahead(self, size_t count) noexcept
    cdef int64_t number(self) noexcept
    cdef void take_out(self, size_t count) noexcept
    cdef void close_gaps(self, size_t begin, size_t end) noexcept
    cdef int grow(self) except -1
    cdef void drop_slots(self) noexcept
