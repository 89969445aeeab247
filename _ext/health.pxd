"""What the data files have seen: the last error and how many bytes; shared by all queues of one process."""

from libc.stdint cimport uint64_t


cdef class Health:
    cdef str error          # '' = fine
    cdef bint failed
    cdef readonly uint64_t written_bytes   # of records, since the start
    cdef readonly uint64_t read_bytes

    cdef OSError fail(self, str operation, str path, int error)    # to be raised by the caller
    cdef void clear(self) noexcept
