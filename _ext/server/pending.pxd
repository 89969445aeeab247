"""Answers that wait for the disk, in the order of their commands."""

from libc.stdint cimport uint64_t


cdef class PendingAnswers:
    # A deque of [ticket, number of OKs, command, other bytes or error text]; None = none ever waited.
    cdef object entries
    cdef Py_ssize_t size

    cdef int begin(self, uint64_t ticket, uint64_t count, str command) except -1
    cdef int add_ok(self, uint64_t ticket, str command) except -1
    cdef int add_frame(self, bytes frame) except -1
    cdef int add_ticket(self, uint64_t ticket, str command) except -1
    cdef int refuse_oks(self, uint64_t count, str error) except -1
    cdef list take_done(self, uint64_t done_ticket)
    cdef int clear(self) except -1


# Remove the last `count` of [ticket, number, ...]; return the entry that contained the first of them.
cdef list cut_tail(object entries, uint64_t count)
