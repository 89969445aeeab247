"""Deadlines of what is kept elsewhere: a heap of small entries, with no pointer to them."""

from libc.stdint cimport int64_t, uint8_t, uint16_t, uint32_t, uint64_t

from nsqfast._ext.core.memory cimport Account


ctypedef struct Due:
    int64_t deadline_ns
    uint64_t ordinal         # of the record that has the message
    uint64_t id              # of the message
    uint32_t size            # of its body
    uint16_t attempts
    uint8_t failures
    uint8_t is_told          # somebody may know its id


cdef class DueHeap:
    cdef Account *account
    cdef Due *entries
    cdef size_t size
    cdef size_t capacity

    cdef int push(self, Due due) except -1
    cdef Due *peek(self) noexcept
    cdef void remove_at(self, size_t index) noexcept
    cdef int grow(self) except -1
    cdef void up(self, size_t index) noexcept
    cdef void down(self, size_t index) noexcept
    cdef size_t passing(self, size_t index, size_t limit) noexcept
