"""Reads a file through a moving window, and notes unreadable ranges instead of raising."""

from libc.stdint cimport int64_t


cdef enum:
    WINDOW_SIZE = 262144


ctypedef struct Range:
    int64_t start
    int64_t end


cdef class FileWindow:
    cdef readonly str path
    cdef readonly int64_t size      # of the file, or of its valid part; decreases if the file is truncated
    cdef readonly int error         # errno of the last read that failed; 0 = none did
    cdef int fd
    cdef char *window
    cdef int64_t window_start       # in the file
    cdef int64_t window_end
    cdef int64_t step_size          # of the last read
    cdef Range *lost                # unreadable as far as was tried; in order, not adjacent
    cdef size_t lost_count

    cdef const char *at(self, int64_t position, int64_t size) noexcept
    cdef bint load(self, int64_t position, int64_t size) noexcept
    cdef int64_t read_into(self, char *out, int64_t start, int64_t end) noexcept
    cdef bint note_lost(self, int64_t start, int64_t end, bint is_hopeless) noexcept
    cdef bint can_read(self, int64_t start, int64_t end) noexcept
    cdef void add_lost(self, int64_t start, int64_t end) noexcept
    cdef bint touches_lost(self, int64_t start, int64_t end) noexcept
    cdef int64_t skip_lost(self, int64_t position) noexcept
    cdef int64_t next_lost(self, int64_t position) noexcept
