"""The folder of a ring: made whole, opened, and written but for its batches.

A ring is made in a folder of another name, whose files and names are synced before it gets its own: a ring that exists
is whole. Writes of zeros fill the quarters; blocks that were only allocated would cost a commit of the file system's
own journal at each first write.
"""

from libc.errno cimport EIO, ENOENT, errno
from libc.string cimport memcpy, memset
from posix.fcntl cimport O_CREAT, O_DIRECTORY, O_DSYNC, O_EXCL, O_RDONLY, O_RDWR

import os

from nsqfast._ext.commitlog.files cimport O_DIRECT
from nsqfast._ext.commitlog.format cimport EPOCH_SIZE, HEAD_SIZE, QUARTER_COUNT, crc_prepare, head_seal
from nsqfast._ext.core.limits cimport RING_QUARTER_SIZE_MAX, RING_QUARTER_SIZE_MIN
from nsqfast.errors import OptionsError

cdef enum:
    PAGE_SIZE = 4096
    PIECE_SIZE = 1048576        # of the file, in one call
    # Of a new one. The kernel keeps it in units of that size, and a write that is smaller than its unit costs a look at
    # all of its pages: 2 us in one of 1 MiB.
    FILL_SIZE = 65536

crc_prepare()


cdef uint64_t quarter_size_of(uint64_t size) noexcept:
    """Bytes of a quarter of a ring that is made with so many."""
    return size // QUARTER_COUNT // PAGE_SIZE * PAGE_SIZE


cdef class RingFolder(RingContents):
    def open(self, uint64_t size, uint32_t align, bint is_interval=False):
        """Open the ring; make one of `size` bytes if there is none. align: what its writes are aligned to.
        is_interval: they go to the kernel's cache."""
        self.remove(f"{self.path}.new")
        if not self.exists():
            self.make(f"{self.path}.new", quarter_size_of(size))
            self.is_new = True
        # Whoever renamed the ring may have been killed before the name was on disk.
        self.sync_folder(os.path.dirname(os.path.abspath(self.path)))
        self.is_dsync = self.open_head(O_RDWR, 0 if is_interval else O_DIRECT | O_DSYNC, align)
        self.read_head()
        self.keep_head()
        for i in range(QUARTER_COUNT):
            self.open_quarter(i, O_RDWR | O_DIRECT | O_DSYNC if self.is_dsync else O_RDWR)

    # Making

    def make(self, str draft, uint64_t quarter_size):
        if not RING_QUARTER_SIZE_MIN <= quarter_size <= RING_QUARTER_SIZE_MAX:
            least, most = [<uint64_t> size * QUARTER_COUNT for size in (RING_QUARTER_SIZE_MIN, RING_QUARTER_SIZE_MAX)]
            raise OptionsError(f"{self.path}: a commit log has between {least} and {most} bytes")
        self.quarter_size = quarter_size
        self.check(self.table.mkdir(self.table, os.fsencode(draft)), draft)
        for i in range(QUARTER_COUNT):
            memset(self.block, 0, FILL_SIZE)
            self.make_file(f"{draft}/{i}.ring", quarter_size)
        self.draft_first_heads()
        self.make_file(f"{draft}/head", 2 * HEAD_SIZE)
        self.sync_folder(draft)
        self.check(self.table.rename(self.table, os.fsencode(draft), os.fsencode(self.path)), self.path)

    cdef int draft_first_heads(self) except -1:
        """Both blocks are valid from the beginning, so that the loss of either can be survived."""
        cdef bytes epoch = os.urandom(EPOCH_SIZE)
        cdef int i
        memset(&self.head, 0, sizeof(self.head))
        memcpy(self.head.epoch, <char *> epoch, EPOCH_SIZE)
        self.head.quarter_size = self.quarter_size
        self.head.needed_from = 1
        for i in range(2):
            self.head.generation = i
            head_seal(self.block + i * HEAD_SIZE, &self.head)
        return 0

    cdef int make_file(self, str path, uint64_t size) except -1:
        """Fill it with `block`, again and again."""
        cdef int fd = self.table.open(self.table, os.fsencode(path), O_RDWR | O_CREAT | O_EXCL, 0o600)
        cdef uint64_t at = 0, part
        cdef ssize_t written
        self.check(fd, path)
        try:
            while at < size:
                part = min(size - at, <uint64_t> FILL_SIZE)
                written = self.table.pwrite(self.table, fd, self.block, part, at)
                self.check_write(written, part, path)
                at += part
            self.check(self.table.fdatasync(self.table, fd), path)
        finally:
            self.table.close(self.table, fd)
        return 0

    cdef int sync_folder(self, str path) except -1:
        cdef int fd = self.table.open(self.table, os.fsencode(path), O_RDONLY | O_DIRECTORY, 0)
        self.check(fd, path)
        try:
            self.check(self.table.fsync(self.table, fd), path)
        finally:
            self.table.close(self.table, fd)
        return 0

    cdef int remove(self, str draft) except -1:
        """Remove what a killed process left of a ring that it made."""
        for name in ("head", *(f"{i}.ring" for i in range(QUARTER_COUNT))):
            if self.table.unlink(self.table, os.fsencode(f"{draft}/{name}")) < 0 and errno != ENOENT:
                self.check(-1, f"{draft}/{name}")
        if self.table.rmdir(self.table, os.fsencode(draft)) < 0 and errno != ENOENT:
            self.check(-1, draft)
        return 0

    # Opening

    cdef bint exists(self) except -1:
        cdef int fd = self.table.open(self.table, os.fsencode(self.path), O_RDONLY | O_DIRECTORY, 0)
        if fd < 0 and errno == ENOENT:
            return False
        self.check(fd, self.path)
        self.table.close(self.table, fd)
        return True

    cdef int keep_head(self) except -1:
        """Before anything follows from it: what was read may be the kernel's copy of a write that a kill left unsynced.
        Its own block is written again, with the same bytes, since the other one may be all that the disk has."""
        cdef int error
        head_seal(self.block, &self.head)
        if self.is_dsync:
            error = errno if self.table.fdatasync(self.table, self.head_fd) < 0 else 0
        else:
            error = self.write_durably(self.head_fd, self.block, HEAD_SIZE, self.head.generation % 2 * HEAD_SIZE)
        return self.raise_error(error, f"{self.path}/head")

    cdef int check_write(self, ssize_t written, size_t size, str path) except -1:
        """A short write is an error."""
        self.check(-1 if written < 0 else 0, path)
        return self.raise_error(EIO if <size_t> written < size else 0, path)

    # In use

    cdef int erase(self, int quarter, uint64_t start, uint64_t sequence) except -1:
        cdef size_t size
        if start % PAGE_SIZE:
            if self.erase_page(quarter, start):
                return self.note_bad(quarter, sequence)
            start += PAGE_SIZE - start % PAGE_SIZE
        memset(self.block, 0, PIECE_SIZE)
        while start < self.quarter_size:
            size = min(self.quarter_size - start, <uint64_t> PIECE_SIZE)
            if self.write_durably(self.fds[quarter], self.block, size, start):
                return self.note_bad(quarter, sequence)
            start += size
        return 0

    cdef int erase_page(self, int quarter, uint64_t start) except -1:
        """The rest of the page, behind what is left as it is: a disk may write no less. Return an errno or 0."""
        cdef uint64_t page = start // PAGE_SIZE * PAGE_SIZE
        if not self.read_piece(quarter, page, self.block, PAGE_SIZE):
            return EIO
        memset(self.block + (start - page), 0, PAGE_SIZE - (start - page))
        return self.write_durably(self.fds[quarter], self.block, PAGE_SIZE, page)

    cdef int write_again(self, int quarter, uint64_t start, const char *data, size_t size) except -1:
        if self.is_dsync:
            # What was written is in the disk, but perhaps not yet for good.
            return 0
        return self.check_write(
            self.table.pwrite(self.table, self.fds[quarter], data, size, start), size, self.quarter_path(quarter)
        )

    cdef int sync_quarter(self, int quarter) except -1:
        return self.check(self.table.fdatasync(self.table, self.fds[quarter]), self.quarter_path(quarter))

    cdef int note_bad(self, int quarter, uint64_t sequence) except -1:
        self.head.failed[quarter] = sequence
        return self.write_head()

    cdef int note_interval(self, uint64_t sequence) except -1:
        self.head.interval_from = sequence
        return self.write_head()

    cdef int write_head(self) except -1:
        cdef int64_t at = self.draft_head(self.head.needed_from)
        return self.raise_error(self.write_durably(self.head_fd, self.block, HEAD_SIZE, at), f"{self.path}/head")

    cdef int write_durably(self, int fd, const char *data, size_t size, int64_t at) noexcept:
        """Return an errno or 0."""
        cdef ssize_t written = self.table.pwrite(self.table, fd, data, size, at)
        if written < 0:
            return errno
        if <size_t> written < size:
            return EIO
        return errno if not self.is_dsync and self.table.fdatasync(self.table, fd) < 0 else 0

    cdef int64_t draft_head(self, uint64_t needed_from) noexcept:
        self.head.generation += 1
        self.head.needed_from = needed_from
        head_seal(self.block, &self.head)
        return self.head.generation % 2 * HEAD_SIZE
