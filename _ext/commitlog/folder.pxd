"""The folder of a ring: made whole, opened, and written but for its batches."""

from libc.stdint cimport int64_t, uint32_t, uint64_t

from nsqfast._ext.commitlog.contents cimport RingContents


cdef class RingFolder(RingContents):
    cdef bint is_dsync               # opened with O_DIRECT and O_DSYNC: what is written is on disk at once
    cdef bint is_new                 # made just now

    # Whether a ring that is made with `size` has as many bytes.
    # Overwrite a quarter with zeros from there on, before this batch is written. Where that fails it is noted as bad.
    cdef int erase(self, int quarter, uint64_t start, uint64_t sequence) except -1
    # Write a batch again, with the same bytes, if the disk may not have it: the write was not synced when its process
    # was killed, or the sync failed, and what is read is the kernel's copy. It is on disk after sync_quarter().
    cdef int write_again(self, int quarter, uint64_t start, const char *data, size_t size) except -1
    cdef int sync_quarter(self, int quarter) except -1
    # Let the head say that all batches before this one are on disk, and that it and later ones may be synced by time.
    cdef int note_interval(self, uint64_t sequence) except -1
    cdef int note_bad(self, int quarter, uint64_t sequence) except -1
    # Put the next head into `block`; return where it belongs in the file.
    cdef int64_t draft_head(self, uint64_t needed_from) noexcept

    cdef int write_durably(self, int fd, const char *data, size_t size, int64_t at) noexcept
    cdef int draft_first_heads(self) except -1
    cdef int make_file(self, str path, uint64_t size) except -1
    cdef int sync_folder(self, str path) except -1
    cdef int remove(self, str draft) except -1
    cdef bint exists(self) except -1
    cdef int erase_page(self, int quarter, uint64_t start) except -1
    cdef int write_head(self) except -1
    cdef int keep_head(self) except -1
    cdef int check_write(self, ssize_t written, size_t size, str path) except -1
