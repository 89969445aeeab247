"""Recognizes records seen before: a set of 128-bit hashes in bounded memory.

    young       takes new hashes until it is full
    old         the previous young table; it is forgotten when young is full and takes its place

A record is thus remembered for at least as many other records as fit into one table.
"""

from libc.stdint cimport int64_t, uint64_t


cdef struct Hash:
    uint64_t low
    uint64_t high


cdef struct Table:
    Hash *slots             # open addressing; zero = free
    uint64_t slot_count     # a power of two
    uint64_t count


cdef class Seen:
    cdef uint64_t keys[2]   # random per process: nobody can prepare records that collide
    cdef Table young
    cdef Table old
    cdef uint64_t slot_count_max
    cdef readonly int64_t duplicates
    cdef readonly int64_t forgotten     # number of hashes

    cdef bint add(self, Hash hash) except -1
    cdef int rotate(self) except -1


cdef Hash hash_128(const char *data, Py_ssize_t size, uint64_t key_low, uint64_t key_high) noexcept nogil
