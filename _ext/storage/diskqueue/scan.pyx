"""The queue's thread creates a scan, which copies the reader's position and what is known about the records behind it.
run() may then run in another thread without the interpreter's lock: it uses only the files, which only grow or
disappear.

A scan ends at damage, which the reader itself finds and repairs.
"""

from libc.errno cimport ENOENT, errno
from libc.stdlib cimport calloc, free, malloc
from libc.string cimport memcpy
from posix.stat cimport fstat, struct_stat
from posix.unistd cimport close

import os
from contextlib import suppress

from nsqfast._ext.core.body_search cimport is_met
from nsqfast._ext.core.clock cimport now_monotonic
from nsqfast._ext.core.message cimport get_be32, get_be64, id_of_record, is_record_id, tries_of_record
from nsqfast._ext.storage.diskqueue.segment cimport RECORD_HEADER_SIZE, RECORD_SIZE_MIN, open_segment, read_at_least
from nsqfast._ext.storage.scan cimport (
    AT_END, AT_LIMIT, DAMAGED, GONE, NO_MEMORY, RECORDS_MAX, TOO_LARGE, TOO_LATE, TOO_MANY_BYTES, TOO_MANY_RECORDS,
    UNREADABLE, QueuePlace, Record, is_wanted,
)

cdef enum:
    # At least the pieces of two bodies of the largest size.
    WINDOW_SIZE = 131072


cdef class DiskScan:
    """`found` has copies after run(); they live as long as this object."""

    def __cinit__(self, DiskReader reader not None, uint64_t index=0, int64_t file=0, int64_t position=0):
        self.fd = -1
        self.ended = AT_END
        if not reader.position.closed and reader.position.acks is not None and reader.depth > 0:
            self.start(reader, index, file, position)

    def __dealloc__(self):
        cdef size_t i
        if self.fd >= 0:
            close(self.fd)
        for i in range(self.found_count):
            free(self.found[i].piece)
        free(self.found)
        free(self.passed)
        free(self.window)

    cdef int start(self, DiskReader reader, uint64_t index, int64_t file, int64_t position) except -1:
        """Start at that record, or at what the reader would return next if that comes later."""
        with suppress(OSError):     # the broker's health reports it, and the scan ends before that
            reader.position.write_unwritten()
        self.prefix = os.fsencode(reader.position.prefix)
        self.prefix_text = self.prefix
        self.write_file, self.write_position = reader.position.write_file, reader.position.write_position
        self.first, self.file, self.position = reader.next_read, reader.read_file, reader.read_position
        if reader.next_read < index <= reader.position.written:
            self.first, self.file, self.position = index, file, position
        self.shift = reader.shift
        self.record_count = min(<int64_t> (reader.position.written - self.first), RECORDS_MAX)
        self.is_cut = reader.position.written - self.first > RECORDS_MAX
        self.window = <char *> malloc(WINDOW_SIZE)
        self.passed = <uint64_t *> calloc((self.record_count + 63) // 64, sizeof(uint64_t))
        if self.window is NULL or self.passed is NULL:
            raise MemoryError
        self.note_passed(reader)
        self.ended = AT_LIMIT
        # Now, since it may be removed in a moment.
        self.open()
        return 0

    cdef int end_before(self, uint64_t index) except -1:
        """Leave what was written from that record on."""
        if index - self.first <= <uint64_t> self.record_count:
            self.record_count = <int64_t> (index - self.first)
            self.is_cut = False
        return 0

    cdef int note_passed(self, DiskReader reader) except -1:
        cdef uint64_t i, number, first = self.first, count = <uint64_t> self.record_count
        cdef uint64_t finished = reader.position.acks.count(first, first + count)
        for number in range(count if finished else 0):
            if reader.position.acks.test(first + number):
                self.passed[number >> 6] |= <uint64_t> 1 << (number & 63)
        for i in range(reader.taken_head, reader.taken_tail):
            number = reader.taken[i & reader.taken_mask].index
            if number >= first + count:
                break
            if number < first:
                continue
            number -= first
            self.passed[number >> 6] |= <uint64_t> 1 << (number & 63)
        return 0

    cdef void run(self, Quest *quest) noexcept nogil:
        """Search until the quest is complete, or the end of the disk is reached. Call it once."""
        cdef int64_t size
        while self.ended == AT_LIMIT and quest.wanted and quest.scans:
            size = self.next_size()
            if size < 0:
                break
            if not self.passed[self.number >> 6] >> (self.number & 63) & 1 and not self.examine(quest, size):
                break
            self.position += RECORD_HEADER_SIZE + size
            self.number += 1
            self.is_sparse = size > WINDOW_SIZE // 4
            if self.number & 15 == 0 and now_monotonic() >= quest.until_ns:
                self.ended = TOO_LATE
        if self.fd >= 0:
            close(self.fd)
            self.fd = -1

    cdef bint examine(self, Quest *quest, int64_t size) noexcept nogil:
        """Examine a waiting message; False: stop, and do not count it."""
        cdef int64_t body_size = size - (RECORD_SIZE_MIN - RECORD_HEADER_SIZE)
        cdef const char *data
        if quest.offset:
            quest.offset -= 1
            return True
        data = self.data_here()
        if data is NULL:
            return False
        if not is_wanted(quest, id_of_record(data), <int64_t> get_be64(data)):
            quest.scans -= 1
            return True
        if quest.terms is not NULL:
            if quest.bytes <= 0:
                self.ended = TOO_MANY_BYTES
                return False
            quest.bytes -= body_size
            if not self.contains(quest, self.position + RECORD_SIZE_MIN, body_size):
                quest.scans -= 1
                return self.ended == AT_LIMIT
        if not self.keep(quest, body_size):
            return False
        quest.scans -= 1
        quest.wanted -= 1
        self.found[self.found_count - 1].scans_left = quest.scans
        return True

    cdef int64_t next_size(self) noexcept nogil:
        """Return the size of the record at our position, without its size field; -1: there is none."""
        cdef int64_t size
        if self.number == self.record_count:
            self.ended = TOO_MANY_RECORDS if self.is_cut else AT_END
            return -1
        while self.position >= self.end:
            if not self.next_file():
                return -1
        if self.fill(self.position, RECORD_SIZE_MIN):
            size = get_be32(self.window + (self.position - self.window_start))
            if self.is_record(size):
                return size
        if self.ended == AT_LIMIT:
            self.ended = DAMAGED
        return -1

    cdef bint is_record(self, int64_t size) noexcept nogil:
        """Whether it is a record; its first bytes are in the window. A foreign id is accepted if all behind it is
        right."""
        cdef const char *data = self.window + (self.position - self.window_start)
        cdef int64_t end = self.position + RECORD_HEADER_SIZE + size, next_size
        if size < RECORD_SIZE_MIN - RECORD_HEADER_SIZE or end > self.end:
            return False
        if is_record_id(data + 14) or end == self.end:
            return True
        if not self.fill(end, RECORD_SIZE_MIN):
            return False
        data = self.window + (end - self.window_start)
        next_size = get_be32(data)
        return (next_size >= RECORD_SIZE_MIN - RECORD_HEADER_SIZE
                and end + RECORD_HEADER_SIZE + next_size <= self.end and is_record_id(data + 14))

    cdef const char *data_here(self) noexcept nogil:
        """Of the record at our position, without its body; NULL if it cannot be read."""
        if not self.fill(self.position, RECORD_SIZE_MIN):
            self.ended = DAMAGED if self.ended == AT_LIMIT else self.ended
            return NULL
        return self.window + (self.position - self.window_start) + RECORD_HEADER_SIZE

    cdef bint has_all(self) noexcept nogil:
        """Whether it examined all that there was."""
        return self.ended == AT_END or (self.number == self.record_count and not self.is_cut)

    cdef void go_behind(self, const Record *last, QueuePlace *place) noexcept:
        place.shift = self.shift
        if last is NULL:
            place.index, place.file, place.position = self.first + <uint64_t> self.number, self.file, self.position
        else:
            place.index, place.file, place.position = last.index + 1, last.file, last.end

    cdef bint contains(self, Quest *quest, int64_t start, int64_t size) noexcept nogil:
        """Search a body of any size."""
        cdef char *whole
        cdef bint is_found
        if size <= WINDOW_SIZE:
            return size > 0 and self.fill(start, size) and is_met(
                quest.terms, self.window + (start - self.window_start), size)
        whole = <char *> malloc(size)
        if whole is NULL:
            self.ended = NO_MEMORY
            return False
        is_found = self.copy(whole, start, size) and is_met(quest.terms, whole, size)
        free(whole)
        return is_found

    cdef bint keep(self, Quest *quest, int64_t size) noexcept nogil:
        """Keep a copy of the part to return."""
        cdef int64_t piece_size = min(size, <int64_t> quest.piece_max)
        cdef const char *data
        cdef Record *record
        if quest.room <= 0:
            self.ended = TOO_LARGE
            return False
        if self.found is NULL:
            self.found = <Record *> malloc(quest.wanted * sizeof(Record))
        data = self.data_here()
        if data is NULL:
            return False
        if self.found is not NULL:
            record = &self.found[self.found_count]
            record.piece = <char *> malloc(max(piece_size, 1))
        if self.found is NULL or record.piece is NULL:
            self.ended = NO_MEMORY
            return False
        self.found_count += 1
        record.id, record.tries = id_of_record(data), tries_of_record(data)
        record.timestamp_ns = <int64_t> get_be64(data)
        record.size = size
        record.piece_size = piece_size
        record.index, record.file = self.first + <uint64_t> self.number, self.file
        record.end = self.position + RECORD_SIZE_MIN + size
        if not self.copy(record.piece, self.position + RECORD_SIZE_MIN, piece_size):
            self.found_count -= 1
            free(record.piece)
            self.ended = DAMAGED if self.ended == AT_LIMIT else self.ended
            return False
        quest.room -= piece_size
        return True

    cdef bint copy(self, char *out, int64_t start, int64_t size) noexcept nogil:
        """Copy bytes of the file, through the window."""
        cdef int64_t part
        while size:
            part = min(size, WINDOW_SIZE)
            if not self.fill(start, part):
                return False
            memcpy(out, self.window + (start - self.window_start), part)
            out, start, size = out + part, start + part, size - part
        return True

    cdef bint next_file(self) noexcept nogil:
        if self.ended != AT_LIMIT:
            return False
        if self.file >= self.write_file:
            self.ended = DAMAGED    # it should have had more
            return False
        self.file += 1
        self.position = 0
        return self.open()

    cdef bint open(self) noexcept nogil:
        cdef struct_stat status
        if self.fd >= 0:
            close(self.fd)
        self.end = self.window_size = 0
        self.fd = open_segment(self.prefix_text, self.file)
        if self.fd < 0 or fstat(self.fd, &status):
            self.error = errno
            self.ended = GONE if self.error == ENOENT else UNREADABLE
            return False
        self.end = self.write_position if self.file == self.write_file else status.st_size
        return True

    cdef bint fill(self, int64_t position, int64_t size) noexcept nogil:
        """Have these bytes of the file in the window, at most WINDOW_SIZE of them."""
        cdef int64_t want
        if self.window_start <= position and position + size <= self.window_start + self.window_size:
            return True
        if position + size > self.end:
            return False
        want = min(size if self.is_sparse else WINDOW_SIZE, self.end - position)
        self.window_start = position
        self.window_size = read_at_least(self.fd, self.window, size, want, position)
        if self.window_size < size and errno:
            self.error, self.ended = errno, UNREADABLE
        return size <= self.window_size
