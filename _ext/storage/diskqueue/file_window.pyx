"""Random access to a file without mapping it: a bad sector or a truncated file would kill a process that maps it.

When a read fails, smaller reads find the unreadable range: a page, and within it the first to the last failing sector.
The range is noted once and not read again. If somebody truncates the file, it ends there.
"""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize
from libc.errno cimport EINTR, ENOENT, errno
from libc.stdint cimport INT64_MAX
from libc.stdlib cimport free, malloc, realloc
from libc.string cimport memmove, memset
from posix.unistd cimport close, pread

import os
import stat

cdef enum:
    # The first read after a jump; each sequential read takes twice as much.
    STEP_SIZE_MIN = 512
    # Reading so much costs no more than another call: a shorter jump is not worth it.
    JUMP_SIZE = 8192
    PAGE_SIZE = 4096
    SECTOR_SIZE = 512
    # How often to retry a page that cannot be read though its sectors can.
    RETRIES_MAX = 3


def open_file(str path):
    """Return (descriptor, size). FileNotFoundError if it is not a regular file. Opening never waits."""
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    status = os.fstat(fd)
    if stat.S_ISREG(status.st_mode):
        return fd, status.st_size
    os.close(fd)
    raise FileNotFoundError(ENOENT, "Is a directory" if stat.S_ISDIR(status.st_mode) else "Not a regular file", path)


cdef class FileWindow:
    def __cinit__(self, str path, int64_t size=-1):
        """size: the valid part of the file; the rest is not published yet."""
        self.path = path
        self.fd = -1
        self.fd, real = open_file(path)
        self.size = real if size < 0 or size > real else size
        self.window = <char *>malloc(max(min(self.size, WINDOW_SIZE), 1))
        if self.window is NULL:
            raise MemoryError

    def __dealloc__(self):
        if self.fd >= 0:
            close(self.fd)
        free(self.window)
        free(self.lost)

    @property
    def unreadable(self):
        """(start, end) of each range found unreadable so far."""
        return [(self.lost[i].start, self.lost[i].end) for i in range(self.lost_count)]

    def bytes(self, int64_t start, int64_t end):
        """The file's bytes in that range; zeros where it cannot be read."""
        start, end = min(start, self.size), min(end, self.size)
        if start >= end:
            return b""
        cdef bytes data = PyBytes_FromStringAndSize(NULL, end - start)
        cdef int64_t stop = self.read_into(PyBytes_AS_STRING(data), start, end)
        return data if stop == end else data[:stop - start]

    cdef const char *at(self, int64_t position, int64_t size) noexcept:
        """Return so many bytes, at most WINDOW_SIZE, valid until the next call; NULL: missing or unreadable."""
        if position < self.window_start or position + size > self.window_end:
            if position < 0 or position + size > self.size or not self.load(position, size):
                return NULL
        if self.lost_count and self.touches_lost(position, position + size):
            return NULL
        return self.window + (position - self.window_start)

    cdef bint load(self, int64_t position, int64_t size) noexcept:
        """Move the window there. It widens during sequential reads, so that skipping a large body is a small read."""
        cdef bint follows = self.step_size > 0 and self.window_start <= position <= self.window_end + JUMP_SIZE
        self.step_size = min(2 * self.step_size, WINDOW_SIZE) if follows else STEP_SIZE_MIN
        self.window_start = position
        self.window_end = self.read_into(self.window, position, min(position + max(size, self.step_size), self.size))
        return position + size <= self.window_end

    cdef int64_t read_into(self, char *out, int64_t start, int64_t end) noexcept:
        """Return where it ended: at `end`, or where the file was truncated. Unreadable bytes become zeros, and are
        noted."""
        cdef int64_t position = start, stop
        cdef int retries = 0
        cdef bint is_careful = False
        cdef ssize_t done
        while position < end:
            stop = min(end, self.skip_lost(position))
            if stop > position:
                memset(out + (position - start), 0, stop - position)
                position = stop
                continue
            stop = min(end, self.next_lost(position))
            if is_careful:
                stop = min(stop, position - position % PAGE_SIZE + PAGE_SIZE)
            done = pread(self.fd, out + (position - start), stop - position, position)
            if done > 0:
                position += done
                is_careful = False
            elif done == 0:
                self.size = min(self.size, position)
                self.window_end = min(self.window_end, self.size)
                return position
            elif errno != EINTR:
                self.error = errno
                if is_careful:
                    retries = 0 if self.note_lost(position, stop, retries == RETRIES_MAX) else retries + 1
                is_careful = True
        return position

    cdef bint note_lost(self, int64_t start, int64_t end, bint is_hopeless) noexcept:
        """A page, or a part of one, cannot be read. False: its sectors can."""
        cdef int64_t stop
        while start < end and not is_hopeless:
            stop = min(end, start - start % SECTOR_SIZE + SECTOR_SIZE)
            if not self.can_read(start, stop):
                break
            start = stop
        while start < end and not is_hopeless:
            stop = max(start, end - 1 - (end - 1) % SECTOR_SIZE)
            if not self.can_read(stop, end):
                break
            end = stop
        if start < end:
            self.add_lost(start, end)
        return start < end

    cdef bint can_read(self, int64_t start, int64_t end) noexcept:
        """Try one sector."""
        cdef char data[SECTOR_SIZE]
        while pread(self.fd, data, end - start, start) < 0:
            if errno != EINTR:
                self.error = errno
                return False
        return True

    cdef void add_lost(self, int64_t start, int64_t end) noexcept:
        """Insert the range in order; adjacent ranges are merged."""
        cdef size_t i = self.lost_count
        cdef Range *grown
        while i and self.lost[i - 1].start > start:
            i -= 1
        if i and self.lost[i - 1].end >= start:
            self.lost[i - 1].end = max(self.lost[i - 1].end, end)
            return
        if i < self.lost_count and self.lost[i].start <= end:
            self.lost[i].start = start
            return
        if self.lost_count % 16 == 0:
            grown = <Range *>realloc(self.lost, (self.lost_count + 16) * sizeof(Range))
            if grown is NULL:
                self.size = min(self.size, start)    # no memory to continue behind it
                return
            self.lost = grown
        memmove(self.lost + i + 1, self.lost + i, (self.lost_count - i) * sizeof(Range))
        self.lost[i].start, self.lost[i].end = start, end
        self.lost_count += 1

    cdef bint touches_lost(self, int64_t start, int64_t end) noexcept:
        return self.skip_lost(start) > start or self.next_lost(start) < end

    cdef int64_t skip_lost(self, int64_t position) noexcept:
        """Return the end of the unreadable range that contains position, else position."""
        cdef size_t i
        for i in range(self.lost_count):
            if self.lost[i].start <= position < self.lost[i].end:
                position = self.lost[i].end
        return position

    cdef int64_t next_lost(self, int64_t position) noexcept:
        """Return where the next unreadable range begins; INT64_MAX: there is none."""
        cdef size_t i
        for i in range(self.lost_count):
            if self.lost[i].start >= position:
                return self.lost[i].start
        return INT64_MAX
