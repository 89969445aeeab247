"""Reads a data file ahead, and decides what a read error means.

What the page cache has is there at once. For anything else a reader of a running broker asks `cold_reads`, and has
nothing until that comes; a start and a stop wait for the disk.

If only some bytes cannot be read, they are damaged: the reader skips them. If the device returns nothing at all, it may
come back: the reader skips nothing and tries again.
"""

from libc.errno cimport EBADMSG, EILSEQ, EINTR, EIO, ENODATA, errno
from libc.stdint cimport uint64_t
from libc.stdlib cimport free, malloc
from posix.stat cimport fstat, struct_stat
from posix.unistd cimport close, pread

import os

from nsqfast._ext.core.clock cimport monotonic_ns
from nsqfast._ext.core.memory cimport account, charge
from nsqfast._ext.storage.diskqueue.cold_reads cimport read_cached
from nsqfast._ext.storage.diskqueue.file_window import open_file
from nsqfast._ext.storage.diskqueue.segment import segment_path


cdef extern from "errno.h" nogil:
    int EUCLEAN


cdef enum:
    AHEAD_SIZE = 65536
    # The same where a disk has to be waited for.
    COLD_SIZE = 262144
    # If so many bytes from the reader on cannot be read, the device has failed, not a sector.
    DEAD_SIZE = 1048576


cdef class FileReader:
    def __cinit__(self):
        self.read_fd = -1

    def __dealloc__(self):
        if self.read_fd >= 0:
            close(self.read_fd)
        self.drop_pending()
        charge(&account, -self.ahead_capacity)
        free(self.ahead)

    cdef int fill(self, int64_t size) except -1:
        """Have so many bytes from the reader's position on in memory; 0 if the file or the disk does not return them,
        or, while there is a `pending` read, not yet."""
        cdef int64_t offset = self.read_position - self.ahead_start, want
        if 0 <= offset and offset + size <= self.ahead_size:
            return 1
        if self.read_position + size > self.read_end or self.pending is not NULL:
            return 0
        if self.cold_error:
            error, self.cold_error = self.cold_error, 0
            if not is_damage(error):
                raise self.refuse(error)
            return 0
        if size > self.ahead_capacity:
            charge(&account, -self.ahead_capacity)
            free(self.ahead)
            self.ahead_size = self.ahead_capacity = 0
            want = AHEAD_SIZE
            while want < size:
                want *= 2
            self.ahead = <char *>malloc(want)
            if self.ahead is NULL:
                raise MemoryError
            self.ahead_capacity = want
            charge(&account, want)
        if self.read_fd < 0:
            self.position.note_open()
            try:
                self.read_fd, _ = open_file(segment_path(self.position.prefix, self.read_file))
            except FileNotFoundError:
                return 0    # resync() continues with another one
        self.ahead_start = self.read_position
        self.ahead_size = 0
        want = min(self.ahead_capacity, self.read_end - self.read_position)
        if self.cold is not None and self.begin_read(size, want):
            return size <= self.ahead_size
        self.ahead_size = self.read_ahead(size, want)
        return size <= self.ahead_size

    cdef bint begin_read(self, int64_t size, int64_t want) except -1:
        """Read what is cached, or ask for what is not; False: read_ahead() has to find out what is wrong."""
        cdef ssize_t got = read_cached(self.read_fd, self.ahead, want, self.read_position)
        cdef struct_stat status
        if 0 < got < want and fstat(self.read_fd, &status) == 0 and status.st_size <= self.read_position + got:
            self.read_end = self.read_position + got    # someone truncated the file
            size = got
        if got > 0 and got >= size:
            self.ahead_size = got
            self.note_read(got)
            return True
        want = max(want, min(<int64_t> COLD_SIZE, self.read_end - self.read_position))
        return got != 0 and self.cold.request(self, self.read_fd, self.read_position, want)

    cdef int end_read(self, ColdRead *done) except -1:
        charge(&account, done.size - self.ahead_capacity)
        free(self.ahead)
        self.ahead, done.data = done.data, NULL
        self.ahead_capacity, self.ahead_start, self.ahead_size = done.size, done.position, done.got
        self.cold_error = done.error
        if done.error == 0 and done.got < done.size:
            self.read_end = min(self.read_end, done.position + done.got)    # someone truncated the file
        return self.note_read(done.got) if done.got else 0

    cdef int note_read(self, int64_t size) except -1:
        self.position.syncer.health.read_bytes += <uint64_t> size
        if self.is_refused:
            self.is_refused = False
            self.position.syncer.health.was_read(self.position.prefix)
        return 0

    cdef int64_t read_ahead(self, int64_t size, int64_t want) except -1:
        """Return how many bytes came; less than size: the rest is missing, or damaged."""
        cdef DiskPosition position = self.position
        cdef int64_t got = 0
        cdef ssize_t done
        while got < want:
            done = pread(self.read_fd, self.ahead + got, want - got, self.read_position + got)
            if done < 0 and errno == EINTR:
                continue
            if done < 0 and got < size < want:
                want = size     # the error may be behind it
                continue
            if done < 0:
                if got < size and not is_damage(errno):
                    raise self.refuse(errno)
                break
            if done == 0:
                # Someone truncated the file: what is left is all there is.
                self.read_end = self.read_position + got
                break
            got += done
            position.syncer.health.read_bytes += <uint64_t> done
        if self.is_refused and got >= size:
            self.is_refused = False
            position.syncer.health.was_read(position.prefix)
        return got

    cdef object refuse(self, int error):
        """Return the error to raise: it cannot be read now, which is no reason to skip it."""
        self.is_refused = True
        return self.position.syncer.health.fail("read", segment_path(self.position.prefix, self.read_file), error)

    cdef bint is_sound(self) except -1:
        cdef Segment segment
        try:
            segment = Segment(segment_path(self.position.prefix, self.read_file), self.read_end)
            return segment.is_accepted(self.read_position)
        except FileNotFoundError:
            return False

    cdef int check_device(self, Segment segment) except -1:
        """Raise unless it is damage: data is not lost because a device is unavailable now."""
        cdef int64_t size = segment.size - self.read_position
        if not is_damage(segment.error) or (
                size > DEAD_SIZE and segment.at(segment.size - 1, 1) is NULL
                and segment.at(segment.size - size // 2, 1) is NULL):
            raise self.refuse(segment.error)
        return 0

    cdef str name_damage(self, Segment segment, int64_t end):
        """Describe the damage for the log; report unreadable bytes before `end` to health."""
        ranges = [(first, behind) for first, behind in segment.unreadable if first < end]
        if not ranges:
            return "invalid message"
        lost = sum(behind - first for first, behind in ranges)
        self.position.syncer.health.give_up(segment.path, segment.error, lost)
        return f"{os.strerror(segment.error).lower()} at " + ", ".join(f"{first}-{behind}" for first, behind in ranges)

    cdef int close_reader(self) except -1:
        if self.read_fd >= 0:
            close(self.read_fd)
        self.read_fd = -1
        self.ahead_size = self.cold_error = 0
        if self.drop_pending() and self.taker is not None and not self.position.closed:
            self.cold.timers.arm(self.taker, monotonic_ns())    # to ask again, from another place
        return 0

    cdef bint drop_pending(self) noexcept:
        """Whether there was a read that nobody is told of now."""
        if self.pending is NULL:
            return False
        self.pending.owner = self.pending = NULL
        return True


cdef bint is_damage(int error) noexcept:
    """Whether only these bytes cannot be read; no: none can, at the moment."""
    return error in (EIO, ENODATA, EBADMSG, EUCLEAN, EILSEQ)
