"""The contents of a ring's folder: its head and its quarters, opened and read. Nothing here writes."""

from libc.stdint cimport int64_t, uint32_t, uint64_t

from nsqfast._ext.commitlog.files cimport Files, FileTable
from nsqfast._ext.commitlog.format cimport Head


cdef class RingContents:
    cdef readonly str path
    cdef Files files
    cdef FileTable *table
    cdef int head_fd                 # -1 = not open
    cdef int[4] fds                  # of the quarters
    cdef readonly uint64_t quarter_size
    cdef Head head                   # as it was read, or written last
    cdef uint32_t epoch_seed
    cdef char *block                 # a head, aligned to 4096

    # Bytes of the ring, which stay as they were when it was made.
    cdef uint64_t size(self) noexcept
    # Open the head with the flags `access`, and `direct` if these are not 0 and the file system takes them; return
    # whether it does.
    cdef bint open_head(self, int access, int direct, uint32_t align) except -1
    cdef int open_quarter(self, int quarter, int flags) except -1
    cdef int read_head(self) except -1
    cdef str quarter_path(self, int quarter)
    cdef bint is_bad(self, int quarter) noexcept
    cdef bytes epoch(self)
    cdef int count_good(self) noexcept
    # Bytes of the good quarters, and how many of them are needed. last: the last batch in each; the next one begins in
    # `quarter`.
    cdef uint64_t good_size(self) noexcept
    cdef uint64_t needed(self, const uint64_t *last, uint64_t needed_from, int quarter, uint64_t offset) noexcept
    # The share of that, 0 to 1.
    cdef double fill(self, const uint64_t *last, uint64_t needed_from, int quarter, uint64_t offset) noexcept
    # Read a part of a quarter, which begins and ends on multiples of 4096, into aligned memory. What cannot be read
    # becomes zeros; a list is given to note their (path, start, end, (0, 0)).
    cdef int read_quarter(self, int quarter, uint64_t start, char *data, size_t size, list unreadable) except -1
    cdef bint read_piece(self, int quarter, uint64_t start, char *data, size_t size) noexcept
    cdef void close(self) noexcept

    cdef bint try_direct(self, str path, int flags, uint32_t align) except -1
    cdef int read_pages(self, int quarter, uint64_t start, char *data, size_t size, list unreadable) except -1
    cdef int refuse(self, str path, str what) except -1
    cdef int refuse_missing(self, str path) except -1
    cdef int check(self, int result, str path) except -1
    cdef int raise_error(self, int error, str path) except -1
