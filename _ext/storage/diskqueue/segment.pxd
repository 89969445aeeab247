"""One data file: its name, and the start and end of its whole records."""

from libc.stdint cimport int64_t


cdef enum:
    WINDOW_SIZE = 262144        # of a file
    RECORD_HEADER_SIZE = 4      # the size of what follows, big endian
    RECORD_SIZE_MIN = 30        # with an empty body
    NEAR_COUNT = 64             # up to so many files are looked up by name rather than by listing the folder


cdef extern from "storage/diskqueue/segment_file.h" nogil:
    int open_segment "nsq_segment_open"(const char *prefix, int64_t number)
    int64_t read_at_least "nsq_read_at_least"(int fd, char *out, int64_t least, int64_t most, int64_t at)


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


ctypedef struct Span:
    int64_t start       # of the next whole record; the end of the file if there is none
    int64_t end
    int64_t damaged     # start of the bytes skipped to reach it; -1 = none


cdef class Segment(FileWindow):
    """Random access to a file; used for recovery only, never for sound records."""
    cdef char *large        # a record that does not fit into the window

    cdef bint has_record_head(self, int64_t position) noexcept
    cdef int64_t end_of(self, int64_t position) noexcept
    cdef bint fits(self, int64_t position) noexcept
    cdef bint is_accepted_record(self, int64_t position) noexcept
    cdef bint is_plausible_record(self, int64_t position) noexcept
    cdef Span next_record(self, int64_t position, int64_t previous) noexcept
    cdef int64_t search_start(self, int64_t position, int64_t previous) noexcept
    cdef int64_t walk(self, int64_t position, int64_t limit, int64_t *count, int64_t *damages) noexcept
    cdef bint is_readable(self, int64_t position) noexcept
    cdef bint try_range(self, int64_t start, int64_t end) noexcept
    cdef const char *record(self, int64_t position, size_t *size) except? NULL
    cpdef bint is_hollow_at(self, int64_t position) except -1
    cpdef bint is_sealed_at(self, int64_t position) except -1
    cpdef bint is_cut_at(self, int64_t position) except -1
    cdef bint is_head_left(self, int64_t position) noexcept
