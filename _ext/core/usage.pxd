"""What the connections of one identity use together."""

from libc.stdint cimport int64_t


cdef class Usage:
    cdef object __weakref__
    cdef public int64_t connections_max   # 0 = any number; the same below
    cdef public int64_t rate_max          # messages published in a second
    cdef readonly int64_t connection_count
    cdef int64_t paid_until_ns            # each message advances it by its share of a second

    cdef bint join(self) noexcept
    cdef int leave(self) except -1
    cdef int64_t pay(self, int64_t count, int64_t now_ns) noexcept
