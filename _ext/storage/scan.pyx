"""The classes of the contract: what each method promises stands in scan.pxd."""


cdef class Reads:
    cdef bint add(self, uint64_t ordinal) except -1:
        pass

    cdef char *read(self, size_t number, size_t *size) noexcept nogil:
        pass


cdef class Scan:
    cdef void run(self, Quest *quest) noexcept nogil:
        pass

    cdef bint has_all(self) noexcept nogil:
        pass

    cdef void go_behind(self, const Record *last, QueuePlace *place) noexcept:
        pass

    cdef size_t sort_out(self) except? 0:
        pass

    cdef int requeue(self, size_t count) except -1:
        pass

    cdef int finish(self, size_t count) except -1:
        pass
