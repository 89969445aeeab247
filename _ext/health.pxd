"""The last disk error, shared by all queues of one process; `/ping` shows it."""


cdef class Health:
    cdef str error          # '' = fine
    cdef bint failed

    cdef OSError fail(self, str operation, str path, int error)    # to be raised by the caller
    cdef void clear(self) noexcept
