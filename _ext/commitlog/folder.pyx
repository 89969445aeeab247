"""The folder of a ring: its head and its quarters, made whole, opened and read.

A ring is made in a folder of another name, whose files and names are synced before it gets its own: a ring that exists
is whole. Writes of zeros fill the quarters; blocks that were only allocated would cost a commit of the file system's
own journal at each first write.
"""

from libc.errno cimport EINVAL, EIO, ENOENT, EOPNOTSUPP, errno
from libc.string cimport memcpy, memset
from posix.fcntl cimport O_CREAT, O_DIRECTORY, O_DSYNC, O_EXCL, O_RDONLY, O_RDWR

import os

from nsqfast._ext.commitlog.files cimport O_DIRECT
from nsqfast._ext.commitlog.format cimport (
    EPOCH_SIZE, HEAD_SIZE, QUARTER_COUNT, RING_VERSION, SEQUENCE_MAX, crc_prepare, epoch_seed, head_seal, is_head,
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


cdef uint64_t quarter_size_of(uint64_t size) noexcept:
    """Bytes of a quarter of a ring that is made with so many."""
    return size // QUARTER_COUNT // PAGE_SIZE * PAGE_SIZE


cdef class RingFolder:
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

    def open(self, uint64_t size, uint32_t align, bint is_interval=False):
        """Open the ring; make one of `size` bytes if there is none. align: what its writes are aligned to.
        is_interval: they go to the kernel's cache."""
        self.remove(f"{self.path}.new")
        if not self.exists():
            self.make(f"{self.path}.new", quarter_size_of(size))
            self.is_new = True
        # Whoever renamed the ring may have been killed before the name was on disk.
        self.sync_folder(os.path.dirname(os.path.abspath(self.path)))
        self.open_head(align, is_interval)
        self.read_head()
        self.keep_head()
        for i in range(QUARTER_COUNT):
            self.open_quarter(i)

    # Making

    def make(self, str draft, uint64_t quarter_size):
        if not RING_QUARTER_SIZE_MIN <= quarter_size <= RING_QUARTER_SIZE_MAX:
            least, most = [<uint64_t> size * QUARTER_COUNT for size in (RING_QUARTER_SIZE_MIN, RING_QUARTER_SIZE_MAX)]
            raise OptionsError(f"{self.path}: a commit log has between {least} and {most} bytes")
        self.quarter_size = quarter_size
        self.check(self.table.mkdir(self.table, os.fsencode(draft)), draft)
        for i in range(QUARTER_COUNT):
            memset(self.block, 0, PIECE_SIZE)
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
                part = min(size - at, <uint64_t> PIECE_SIZE)
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

    cdef int open_head(self, uint32_t align, bint is_interval) except -1:
        """Open it, and find out whether the file system writes past its cache, if it shall."""
        cdef str path = f"{self.path}/head"
        self.is_dsync = not is_interval and self.try_direct(path, align)
        if not self.is_dsync:
            if self.head_fd >= 0:
                self.table.close(self.table, self.head_fd)
            self.head_fd = self.table.open(self.table, os.fsencode(path), O_RDWR, 0)
        if self.head_fd < 0:
            self.refuse_missing(path)
        return 0

    cdef bint try_direct(self, str path, uint32_t align) except -1:
        """Open it so; return whether that is not refused. Some file systems, and disks with larger sectors, refuse only
        the access itself."""
        self.head_fd = self.table.open(self.table, os.fsencode(path), O_RDWR | O_DIRECT | O_DSYNC, 0)
        if self.head_fd < 0:
            return errno not in (EINVAL, EOPNOTSUPP)
        return self.table.pread(self.table, self.head_fd, self.block, align, align) >= 0 or errno != EINVAL

    cdef int open_quarter(self, int quarter) except -1:
        cdef str path = self.quarter_path(quarter)
        cdef int flags = O_RDWR | O_DIRECT | O_DSYNC if self.is_dsync else O_RDWR
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

    cdef int check_write(self, ssize_t written, size_t size, str path) except -1:
        """A short write is an error."""
        self.check(-1 if written < 0 else 0, path)
        return self.raise_error(EIO if <size_t> written < size else 0, path)

    cdef int raise_error(self, int error, str path) except -1:
        if error:
            raise OSError(error, os.strerror(error), path)
        return 0

    # In use

    cdef str quarter_path(self, int quarter):
        return f"{self.path}/{quarter}.ring"

    cdef bint is_bad(self, int quarter) noexcept:
        return self.head.failed[quarter] > 0

    cdef int count_good(self) noexcept:
        cdef int i, count = 0
        for i in range(QUARTER_COUNT):
            count += not self.is_bad(i)
        return count

    cdef uint64_t size(self) noexcept:
        return self.quarter_size * QUARTER_COUNT

    cdef bint has_size(self, uint64_t size) noexcept:
        return self.quarter_size == quarter_size_of(size)

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
