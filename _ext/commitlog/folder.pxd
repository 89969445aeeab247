"""The folder of a ring: its head and its quarters, made whole, opened and read."""

from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t

from nsqfast._ext.commitlog.files cimport Files, FileTable
from nsqfast._ext.commitlog.format cimport Head


cdef class RingFolder:
    cdef readonly str path
    cdef Files files
    cdef FileTable *table
    cdef int head_fd                 # -1 = not open
    cdef int[4] fds                  # of the quarters
    cdef bint is_dsync               # opened with O_DIRECT and O_DSYNC: what is written is on disk at once
    cdef readonly uint64_t quarter_size
    cdef Head head                   # as it was read, or written last
    cdef uint32_t epoch_seed
    cdef bint is_new                 # made just now
    cdef char *block                 # a head to be written, aligned to 4096

    # Bytes of the ring, which stay as they were when it was made; whether one that is made with `size` has as many.
    cdef uint64_t size(self) noexcept
    cdef bint has_size(self, uint64_t size) noexcept
    # Overwrite a quarter with zeros from there on, before this batch is written. Where that fails it is noted as bad.
    cdef int erase(self, int quarter, uint64_t start, uint64_t sequence) except -1
    # Write a batch again, with the same bytes, if the disk may not have it: the write was not synced when its process
    # was killed, or the sync failed, and what is read is the kernel's copy. It is on disk after sync_quarter().
    cdef int write_again(self, int quarter, uint64_t start, const char *data, size_t size) except -1
    cdef int sync_quarter(self, int quarter) except -1
    # Let the head say that all batches before this one are on disk, and that it and later ones may be synced by time.
    cdef int note_interval(self, uint64_t sequence) except -1
    cdef int note_bad(self, int quarter, uint64_t sequence) except -1
    cdef int write_durably(self, int fd, const char *data, size_t size, int64_t at) noexcept
    cdef int draft_first_heads(self) except -1
    cdef int make_file(self, str path, uint64_t size) except -1
    cdef int sync_folder(self, str path) except -1
    cdef int remove(self, str draft) except -1
    cdef bint exists(self) except -1
    cdef int open_head(self, uint32_t align, bint is_interval) except -1
    cdef bint try_direct(self, str path, uint32_t align) except -1
    cdef int erase_page(self, int quarter, uint64_t start) except -1
    cdef int write_head(self) except -1
    cdef int open_quarter(self, int quarter) except -1
    cdef int read_head(self) except -1
    cdef int keep_head(self) except -1
    cdef int refuse(self, str path, str what) except -1
    cdef int refuse_missing(self, str path) except -1
    cdef int check(self, int result, str path) except -1
    cdef int check_write(self, ssize_t written, size_t size, str path) except -1
    cdef int raise_error(self, int error, str path) except -1
    cdef str quarter_path(self, int quarter)
    cdef bint is_bad(self, int quarter) noexcept
    cdef int count_good(self) noexcept
    # Put the next head into `block`; return where it belongs in the file.
    cdef int64_t draft_head(self, uint64_t needed_from) noexcept
    # Read a part of a quarter, which begins and ends on multiples of 4096, into aligned memory. What cannot be read
    # becomes zeros; a list is given to note their (path, start, end, (0, 0)).
    cdef int read_quarter(self, int quarter, uint64_t start, char *data, size_t size, list unreadable) except -1
    cdef bint read_piece(self, int quarter, uint64_t start, char *data, size_t size) noexcept
    cdef int read_pages(self, int quarter, uint64_t start, char *data, size_t size, list unreadable) except -1
    cdef void close(self) noexcept
