"""A ring of four files in which batches of records are committed, one write at a time."""


cdef class CommitRing:
    cdef char *append(self, uint8_t kind, uint8_t flags, uint16_t extra, uint32_t subject, size_t size) except NULL:
        raise MemoryError

    cdef size_t room(self) noexcept:
        return 0

    cdef bint commit(self, int64_t wall_ns) except -1:
        return False

    cdef bint end_write(self) except -1:
        return False

    cdef int fileno(self):
        return -1

    cdef bint wait(self, uint64_t sequence, int timeout_ms) except -1:
        return False

    cdef int checkpoint(self, uint64_t needed_from) except -1:
        return 0

    cdef bint is_full(self) noexcept:
        return False

    cdef double fill(self):
        return 0.0

    cdef int close(self):
        return 0

    cdef bint step(self) except -1:
        return False
