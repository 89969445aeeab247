"""One data file: its name, and where its whole records start and end.

A record has no checksum and no magic:

    size (4) │ timestamp (8) │ attempts (2) │ id (16 lower-case hex digits) │ body (size - 26)

so after damage the next record is found by its look: a size that fits into the file, an id of hex digits, and behind it
the end of the file, another such record, or at least a sane time and number of attempts. The search begins inside the
record before the damage, since it is that one whose size may have been wrong and hidden its neighbours.
"""

from libc.stdint cimport int64_t, uint64_t

import os

from nsqfast._ext.message cimport get_be16, get_be32, get_be64, id_from_hex


cdef extern from "sys/mman.h" nogil:
    enum:
        MAP_PRIVATE
        PROT_READ
    void *mmap(void *address, size_t size, int protection, int flags, int fd, int64_t offset)
    int munmap(void *address, size_t size)


# 2001 and 2200 as Unix time in nanoseconds: what a damaged timestamp will hardly fall between.
cdef uint64_t TIMESTAMP_MIN = 1000000000000000000
cdef uint64_t TIMESTAMP_MAX = 7258118400000000000
cdef uint64_t ATTEMPTS_MAX = 1000


def segment_path(str prefix, int64_t number):
    """prefix is '<data path>/<queue>.diskqueue.'."""
    return f"{prefix}{number:06d}.dat"


def segment_numbers(str prefix):
    """The numbers of the data files that exist, ascending."""
    folder, start = os.path.split(prefix)
    numbers = []
    for name in os.listdir(folder or "."):
        if name.startswith(start) and name.endswith(".dat"):
            digits = name[len(start):].removesuffix(".dat")
            if len(digits) >= 6 and digits.isascii() and digits.isdigit() and int(digits) < 1 << 62:
                numbers.append(int(digits))
    return sorted(numbers)


def segments_between(str prefix, int64_t first, int64_t end):
    """Those numbers of [first, end) that have a file; damaged metadata may name an end that counting never reaches."""
    if end - first == 1:
        return [first] if os.path.exists(segment_path(prefix, first)) else []
    return [number for number in segment_numbers(prefix) if first <= number < end]


def save_damaged(str path, data):
    """Append bytes that are no record to '<path>.bad'."""
    with open(path + ".bad", "ab", opener=private) as file:
        file.write(data)


def private(path, flags):
    return os.open(path, flags, 0o600)


cdef class Segment:
    def __cinit__(self, str path, int64_t size=-1):
        """size: how much of the file counts; the rest is not published yet."""
        self.path = path
        self.data = NULL
        self.size = 0
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        cdef void *data
        try:
            real = os.fstat(fd).st_size
            self.size = real if size < 0 or size > real else size
            if self.size:
                data = mmap(NULL, self.size, PROT_READ, MAP_PRIVATE, fd, 0)
                if data == <void *>-1:
                    self.size = 0
                    raise MemoryError(f"cannot map {path}")
                self.data = <const unsigned char *>data
        finally:
            os.close(fd)

    def __dealloc__(self):
        if self.data is not NULL:
            munmap(<void *>self.data, self.size)

    cdef bint fits(self, int64_t position) noexcept:
        """A size field stands there that a record may have, and the file holds that much."""
        if position < 0 or position + RECORD_SIZE_MIN > self.size:
            return False
        cdef int64_t size = get_be32(<const char *>self.data + position)
        return size >= RECORD_SIZE_MIN - RECORD_HEADER_SIZE and position + RECORD_HEADER_SIZE + size <= self.size

    cdef bint looks(self, int64_t position) noexcept:
        cdef uint64_t id
        return self.fits(position) and id_from_hex(<const char *>self.data + position + 14, &id)

    cdef int64_t end_of(self, int64_t position) noexcept:
        return position + RECORD_HEADER_SIZE + get_be32(<const char *>self.data + position)

    cdef bint accepted(self, int64_t position) noexcept:
        """Right behind a sound record: ids that NSQ never wrote are welcome if all else is right."""
        if self.looks(position):
            return True
        if not self.fits(position):
            return False
        cdef int64_t end = self.end_of(position)
        return end == self.size or self.looks(end)

    cdef bint plausible(self, int64_t position) noexcept:
        """Amid damage: what could be any bytes must prove that it is a record."""
        if not self.looks(position):
            return False
        cdef int64_t end = self.end_of(position)
        cdef uint64_t timestamp_ns = get_be64(<const char *>self.data + position + 4)
        return (end == self.size or self.looks(end)
                or (TIMESTAMP_MIN < timestamp_ns < TIMESTAMP_MAX
                    and get_be16(<const char *>self.data + position + 12) < ATTEMPTS_MAX))

    cdef Span next_record(self, int64_t position, int64_t previous) noexcept:
        """The first whole record at or after position; previous: where the one before started, or -1."""
        cdef Span span
        cdef int64_t at
        span.damaged = -1
        if self.accepted(position):
            span.start = position
            span.end = self.end_of(position)
            return span
        span.start = span.end = self.size
        if position >= self.size:
            return span
        span.damaged = position if previous < 0 else previous
        at = position if previous < 0 else previous + RECORD_SIZE_MIN
        while at + RECORD_SIZE_MIN <= self.size:
            if self.plausible(at):
                span.start = at
                span.end = self.end_of(at)
                break
            at += 1
        if span.start >= position:
            span.damaged = position
        return span

    cdef int64_t walk(self, int64_t position, int64_t limit, int64_t *count, int64_t *damages) noexcept:
        """The end of the last whole record that starts before limit; how many, and how often bytes were skipped."""
        cdef int64_t previous = -1, end = position
        cdef Span span
        count[0] = damages[0] = 0
        while True:
            span = self.next_record(position, previous)
            if span.end <= span.start or span.start >= limit:
                return end
            count[0] += 1
            damages[0] += span.damaged >= 0
            previous = span.start
            position = end = span.end

    def torn(self, int64_t position):
        """The bytes there are the beginning of a record, or room the file system gave to a write that never came."""
        cdef int64_t at
        if self.size - position < RECORD_HEADER_SIZE or <int64_t>get_be32(<const char *>self.data + position) >= 26:
            return True
        for at in range(position, self.size):
            if self.data[at]:
                return False
        return True

    def bytes(self, int64_t start, int64_t end):
        return (<const char *>self.data)[start:end]

    def records(self, int64_t position=0):
        """(start, end) of the whole records from there on, for tests and tools."""
        cdef int64_t previous = -1
        cdef Span span
        found = []
        while True:
            span = self.next_record(position, previous)
            if span.end <= span.start:
                return found
            found.append((span.start, span.end))
            previous, position = span.start, span.end
