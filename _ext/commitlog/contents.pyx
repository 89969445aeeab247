"""The contents of a ring's folder: its head and its quarters, opened and read. Nothing here writes."""

from libc.errno cimport EINVAL, ENOENT, EOPNOTSUPP, errno
from libc.string cimport memcpy, memset
from posix.fcntl cimport O_NONBLOCK, O_RDONLY

import os

from nsqfast._ext.commitlog.files cimport O_DIRECT, O_NOFOLLOW
from nsqfast._ext.commitlog.format cimport (
    EPOCH_SIZE, HEAD_SIZE, QUARTER_COUNT, RING_VERSION, SEQUENCE_MAX, crc_prepare, epoch_seed, is_head,
)
from nsqfast._ext.core.limits cimport RING_QUARTER_SIZE_MAX, RING_QUARTER_SIZE_MIN
from nsqfast.errors import OptionsError

cdef enum:
    PAGE_SIZE = 4096
    PIECE_SIZE = 1048576        # of the file, in one call

cdef extern from "core/block.h" nogil:
    void block_free "nsq_block_free"(void *block, ptrdiff_t size)
    void *block_resize "nsq_block_resize"(void *block, ptrdiff_t before, ptrdiff_t size)

crc_prepare()


cdef class RingContents:
    def __cinit__(self, str path, Files files=None):
        cdef int i
        self.path = path
        self.files = Files() if files is None else files
        self.table = self.files.table
        self.head_fd = -1
        for i in range(QUARTER_COUNT):
            self.fds[i] = -1
        # A mapping, hence aligned.
        self.block = <char *> block_resize(NULL, 0, PIECE_SIZE)
        if self.block is NULL:
            raise MemoryError

    def __dealloc__(self):
        self.close()
        if self.block is not NULL:
            block_free(self.block, PIECE_SIZE)

    # Opening

    def open_to_read(self):
        """Open it for reading alone, while a broker may write to it.

        What that writes past the kernel's cache is read past it, too. Otherwise a direct read would have the kernel
        write what is in its cache first.
        """
        cdef int access = O_RDONLY | O_NOFOLLOW | O_NONBLOCK     # a pipe in a file's place must not block
        cdef bint is_direct = self.open_head(access, O_DIRECT, PAGE_SIZE)
        cdef int i
        self.read_head()
        if is_direct and not self.head.interval_from:
            access |= O_DIRECT
        for i in range(QUARTER_COUNT):
            self.open_quarter(i, access)

    cdef bint open_head(self, int access, int direct, uint32_t align) except -1:
        cdef str path = f"{self.path}/head"
        cdef bint is_direct = direct and self.try_direct(path, access | direct, align)
        if not is_direct:
            if self.head_fd >= 0:
                self.table.close(self.table, self.head_fd)
            self.head_fd = self.table.open(self.table, os.fsencode(path), access, 0)
        if self.head_fd < 0:
            self.refuse_missing(path)
        return is_direct

    cdef bint try_direct(self, str path, int flags, uint32_t align) except -1:
        """Open it so; return whether that is not refused. Some file systems, and disks with larger sectors, refuse only
        the access itself."""
        self.head_fd = self.table.open(self.table, os.fsencode(path), flags, 0)
        if self.head_fd < 0:
            return errno not in (EINVAL, EOPNOTSUPP)
        return self.table.pread(self.table, self.head_fd, self.block, align, align) >= 0 or errno != EINVAL

    cdef int open_quarter(self, int quarter, int flags) except -1:
        cdef str path = self.quarter_path(quarter)
        cdef int64_t size
        self.fds[quarter] = self.table.open(self.table, os.fsencode(path), flags, 0)
        if self.fds[quarter] < 0:
            self.refuse_missing(path)
        size = self.table.size(self.table, self.fds[quarter])
        self.check(-1 if size < 0 else 0, path)
        if <uint64_t> size != self.quarter_size:
            self.refuse(path, f"has {size} bytes instead of {self.quarter_size}")
        return 0

    cdef int read_head(self) except -1:
        """Of the blocks that are whole the later one counts; OptionsError if there is none that we understand."""
        cdef Head found
        cdef int i
        cdef bint is_found = False
        for i in range(2):
            if self.table.pread(self.table, self.head_fd, self.block, HEAD_SIZE, i * HEAD_SIZE) != HEAD_SIZE:
                continue
            memcpy(&found, self.block, sizeof(found))
            if not is_head(self.block):
                continue
            if found.version > RING_VERSION:
                self.head.version = found.version
                raise OptionsError(
                    f"{self.path}: a newer nsqfast wrote this commit log (format {found.version}): start that one"
                )
            if not is_found or found.generation > self.head.generation:
                self.head = found
            is_found = True
        if not is_found:
            self.refuse(f"{self.path}/head", "is damaged")
        self.quarter_size = self.head.quarter_size
        if self.quarter_size % PAGE_SIZE or not RING_QUARTER_SIZE_MIN <= self.quarter_size <= RING_QUARTER_SIZE_MAX:
            self.refuse(f"{self.path}/head", f"says that a quarter has {self.quarter_size} bytes")
        if not 1 <= self.head.needed_from < SEQUENCE_MAX:
            self.refuse(f"{self.path}/head", f"says that batch {self.head.needed_from} is needed")
        if self.head.interval_from > SEQUENCE_MAX:
            self.refuse(f"{self.path}/head", f"says that batches are synced by time from {self.head.interval_from} on")
        if self.count_good() == 0:
            self.refuse(f"{self.path}/head", "says that writing failed in every quarter")
        self.epoch_seed = epoch_seed(self.head.epoch)
        return 0

    cdef int refuse(self, str path, str what) except -1:
        raise OptionsError(
            f"{path} {what}: restore the folder from a copy, or move it away to start without what it holds"
        )

    cdef int refuse_missing(self, str path) except -1:
        if errno == ENOENT:
            self.refuse(path, "is missing")
        return self.check(-1, path)

    cdef int check(self, int result, str path) except -1:
        return self.raise_error(errno if result < 0 else 0, path)

    cdef int raise_error(self, int error, str path) except -1:
        if error:
            raise OSError(error, os.strerror(error), path)
        return 0

    # In use

    cdef str quarter_path(self, int quarter):
        return f"{self.path}/{quarter}.ring"

    cdef bint is_bad(self, int quarter) noexcept:
        return self.head.failed[quarter] > 0

    cdef bytes epoch(self):
        return self.head.epoch[:EPOCH_SIZE]

    cdef int count_good(self) noexcept:
        cdef int i, count = 0
        for i in range(QUARTER_COUNT):
            count += not self.is_bad(i)
        return count

    cdef uint64_t size(self) noexcept:
        return self.quarter_size * QUARTER_COUNT

    cdef uint64_t good_size(self) noexcept:
        return self.quarter_size * <uint64_t> self.count_good()

    cdef uint64_t needed(self, const uint64_t *last, uint64_t needed_from, int quarter, uint64_t offset) noexcept:
        cdef uint64_t needed = 0
        cdef int i
        for i in range(QUARTER_COUNT):
            if not self.is_bad(i) and last[i] >= needed_from:
                needed += offset if i == quarter else self.quarter_size
        return needed

    cdef double fill(self, const uint64_t *last, uint64_t needed_from, int quarter, uint64_t offset) noexcept:
        return self.needed(last, needed_from, quarter, offset) / <double> self.good_size()

    cdef int read_quarter(self, int quarter, uint64_t start, char *data, size_t size, list unreadable) except -1:
        cdef size_t done = 0, part
        while done < size:
            part = min(size - done, <size_t> PIECE_SIZE)
            if not self.read_piece(quarter, start + done, data + done, part):
                self.read_pages(quarter, start + done, data + done, part, unreadable)
            done += part
        return 0

    cdef bint read_piece(self, int quarter, uint64_t start, char *data, size_t size) noexcept:
        return self.table.pread(self.table, self.fds[quarter], data, size, start) == <ssize_t> size

    cdef int read_pages(self, int quarter, uint64_t start, char *data, size_t size, list unreadable) except -1:
        """One after the other, since a disk fails for a whole piece when it cannot read one of its sectors."""
        cdef size_t at
        for at in range(0, size, PAGE_SIZE):
            if self.read_piece(quarter, start + at, data + at, PAGE_SIZE):
                continue
            memset(data + at, 0, PAGE_SIZE)
            if unreadable is not None:
                unreadable.append((self.quarter_path(quarter), start + at, start + at + PAGE_SIZE, (0, 0)))
        return 0

    cdef void close(self) noexcept:
        cdef int i
        for i in range(QUARTER_COUNT):
            if self.fds[i] >= 0:
                self.table.close(self.table, self.fds[i])
                self.fds[i] = -1
        if self.head_fd >= 0:
            self.table.close(self.table, self.head_fd)
            self.head_fd = -1
