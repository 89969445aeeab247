"""An asynchronous iterator that callbacks fill and any number of tasks read."""

from libc.stdint cimport int64_t


cdef class MessageIterator:
    cdef object loop
    cdef object waiters         # deque of futures of those who wait for an item
    cdef Py_ssize_t left_count  # how many of them may be abandoned, at most, since the last clean-up
    cdef list thresholds        # of [count, future] of those who wait for so many
    cdef readonly bint is_stopped
    cdef int64_t loop_ran_ns    # when the loop last ran, as far as we know

    cdef object pop(self)
    cdef Py_ssize_t waiting(self) noexcept
    cdef int wake(self) except -1
    cdef int note_left(self) except -1


cdef class Next:
    cdef MessageIterator source
    cdef object waited          # iterator of a future, or None
    cdef bint must_yield
