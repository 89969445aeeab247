"""What is deferred for long is on disk alone, and read again when it is due, or when somebody asks for it.

Records that become due one after the other mostly lie one behind the other: reads that go on where the last one ended
become larger. No file stays open.
"""

from libc.errno cimport errno
from libc.stdint cimport INT32_MAX
from libc.stdlib cimport free, malloc, realloc
from posix.unistd cimport close

import os

from nsqfast._ext.core.limits cimport MESSAGE_HEADER_SIZE
from nsqfast._ext.core.memory cimport Memory, account_of, charge, leave_account
from nsqfast._ext.core.message cimport get_be32, id_of_record, message_load
from nsqfast._ext.storage.diskqueue.cold_reads cimport read_cached
from nsqfast._ext.storage.diskqueue.segment cimport RECORD_HEADER_SIZE, RECORD_SIZE_MIN, open_segment, read_at_least
from nsqfast._ext.storage.diskqueue.segment import open_file, segment_path

cdef enum:
    WANT_MIN = 4096
    WANT_MAX = 65536
    # A larger buffer is freed after use.
    KEPT_MAX = 65536


cdef class Lookup(ReadOwner):
    def __cinit__(self, DiskReader reader not None):
        self.account = account_of(<Memory> reader.account.owner)
        self.reader = reader
        self.file = -1

    def __dealloc__(self):
        self.drop_pending()
        leave_account(self.account, self.capacity)
        free(self.data)

    cdef Message *find(self, uint64_t ordinal, uint64_t id) except? NULL:
        """Return the message, with its attempts. NULL: it is being read if there is a `pending` read; else its record
        is finished or damaged. OSError: it cannot be read now."""
        cdef Spot spot
        cdef const char *record
        cdef int64_t size
        cdef Message *message
        if not self.reader.locate(ordinal, &spot) or not self.fill(spot.file, spot.position, RECORD_SIZE_MIN):
            return NULL
        record = self.data + (spot.position - self.start)
        size = get_be32(record)
        if size < MESSAGE_HEADER_SIZE or id_of_record(record + RECORD_HEADER_SIZE) != id:
            return NULL
        if not self.fill(spot.file, spot.position, RECORD_HEADER_SIZE + size):
            return NULL
        record = self.data + (spot.position - self.start)
        message = message_load(self.account, record + RECORD_HEADER_SIZE, <size_t> size)
        if message is NULL:
            raise MemoryError
        if self.capacity > KEPT_MAX:
            self.widen(0)
        return message

    cdef bint fill(self, int64_t file, int64_t position, int64_t size) except -1:
        """Have these bytes of the file in memory. False: not yet, or it does not have them."""
        cdef bint is_next = file == self.file and self.start <= position <= self.start + self.size + WANT_MIN
        cdef int fd
        if file == self.file and self.start <= position and position + size <= self.start + self.size:
            return True
        if self.pending is not NULL:
            return False
        self.reader.position.write_unwritten()
        if self.error:
            error, self.error = self.error, 0
            raise self.reader.position.syncer.health.fail("read", self.reader.position.prefix, error)
        self.want = min(2 * self.want, <int64_t> WANT_MAX) if is_next else <int64_t> WANT_MIN
        self.reader.position.syncer.make_room()
        try:
            fd, end = open_file(segment_path(self.reader.position.prefix, file))
        except FileNotFoundError:
            return False
        if file == self.reader.position.write_file:
            # What is behind that is not published, and may be written again.
            end = min(end, self.reader.position.write_position)
        try:
            if position + size > end:
                return False
            self.file, self.start, self.size = file, position, 0
            return self.read(fd, size, min(max(size, self.want), <int64_t> end - position))
        finally:
            close(fd)

    cdef bint read(self, int fd, int64_t size, int64_t want) except -1:
        """Read from `start` on: what is cached, or else let a thread read; a start and a stop wait for the disk."""
        cdef ssize_t done
        if want > self.capacity:
            self.widen(want)
        if self.reader.cold is not None:
            done = read_cached(fd, self.data, want, self.start)
            self.size = max(done, 0)
            if self.size >= size:
                return True
            self.pending_file = self.file
            if self.reader.cold.request(self, fd, self.start, want):
                return False
        self.size = read_at_least(fd, self.data, size, want, self.start)
        if self.size < size and errno:
            raise self.reader.position.syncer.health.fail("read", self.reader.position.prefix, errno)
        return self.size >= size

    cdef int widen(self, int64_t size) except -1:
        charge(self.account, size - self.capacity)
        free(self.data)
        self.data, self.capacity, self.size = NULL, 0, 0
        if size:
            self.data = <char *> malloc(size)
            if self.data is NULL:
                charge(self.account, -size)
                raise MemoryError
        self.capacity = size
        return 0

    cdef int end_read(self, ColdRead *done) except -1:
        charge(self.account, done.size - self.capacity)
        free(self.data)
        self.data, done.data = done.data, NULL
        self.capacity, self.file, self.start, self.size = done.size, self.pending_file, done.position, done.got
        self.error = done.error
        self.reader.position.syncer.health.read_bytes += <uint64_t> done.got
        return 0

    cdef int drop_pending(self) noexcept:
        if self.pending is not NULL:
            self.pending.owner = self.pending = NULL
        return 0


cdef class DiskReads(Reads):
    def __cinit__(self, DiskReader reader not None):
        self.fd = -1
        self.reader = reader
        self.prefix = os.fsencode(reader.position.prefix)
        self.prefix_text = self.prefix

    def __dealloc__(self):
        if self.fd >= 0:
            close(self.fd)
        free(self.spots)

    cdef bint add(self, uint64_t ordinal) except -1:
        cdef Spot *grown
        if self.count == self.capacity:
            grown = <Spot *> realloc(self.spots, (self.capacity * 2 or 64) * sizeof(Spot))
            if grown is NULL:
                raise MemoryError
            self.spots, self.capacity = grown, self.capacity * 2 or 64
        if not self.reader.locate(ordinal, &self.spots[self.count]):
            return False
        self.count += 1
        return True

    cdef char *read(self, size_t number, size_t *size) noexcept nogil:
        cdef Spot *spot = &self.spots[number]
        cdef char head[RECORD_HEADER_SIZE]
        cdef char *payload
        if not self.open(spot.file) or read_at_least(
                self.fd, head, RECORD_HEADER_SIZE, RECORD_HEADER_SIZE, spot.position) < RECORD_HEADER_SIZE:
            return NULL
        size[0] = get_be32(head)
        payload = <char *> malloc(size[0]) if MESSAGE_HEADER_SIZE <= size[0] < INT32_MAX else NULL
        if payload is not NULL and read_at_least(
                self.fd, payload, size[0], size[0], spot.position + RECORD_HEADER_SIZE) < <int64_t> size[0]:
            free(payload)
            payload = NULL
        return payload

    cdef bint open(self, int64_t file) noexcept nogil:
        if self.fd >= 0 and file == self.file:
            return True
        if self.fd >= 0:
            close(self.fd)
        self.fd, self.file = open_segment(self.prefix_text, file), file
        return self.fd >= 0
