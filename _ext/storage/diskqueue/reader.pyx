"""The reading half of a queue on disk: what is next, what is finished, and which files can go.

    files    …000003.dat ──────── …000004.dat ────────── …000005.dat
                  ▲ cursor: first record not finished        ▲ written: where the next one goes
                  └ spots (where read records start) ┘ next_read

Files before the cursor are removed (see position). A reader at the end of a file goes to the next file as soon as there
is one, so a drained queue that begins a new file leaves no `.bad` file behind.
"""

from libc.stdint cimport INT64_MAX, int64_t, uint64_t
from libc.stdlib cimport free, malloc

import logging
import os
import stat

from nsqfast._ext.core.limits cimport MESSAGE_HEADER_SIZE
from nsqfast._ext.core.memory cimport account, charge
from nsqfast._ext.core.message cimport Message, get_be32, id_from_hex, message_drop, message_load
from nsqfast._ext.storage.diskqueue.cold_reads cimport ColdRead
from nsqfast._ext.storage.diskqueue.position cimport DiskPosition
from nsqfast._ext.storage.diskqueue.recovery cimport count_records, record_start, set_aside
from nsqfast._ext.storage.diskqueue.segment cimport RECORD_HEADER_SIZE, RECORD_SIZE_MIN, Segment, Span
from nsqfast._ext.storage.diskqueue.segment import segment_path, segments_between

log = logging.getLogger("nsqd")


cdef inline int64_t skip_units(size_t size) noexcept:
    """How much of SKIPPED_MAX it takes to skip a record of that size, which is read to do so."""
    return 1 + <int64_t> (size >> 10)


cdef class DiskReader(FileReader):
    def __init__(self, DiskPosition position not None):
        self.position = position
        self.shifts_before = []

    def __dealloc__(self):
        if self.spots is not NULL:
            charge(&account, -<int64_t> ((self.spots_mask + 1) * sizeof(Spot)))
        if self.taken is not NULL:
            charge(&account, -<int64_t> ((self.taken_mask + 1) * sizeof(Taken)))
        free(self.spots)
        free(self.taken)

    # Reading

    cdef Message *pop(self, uint64_t *ordinal) except? NULL:
        """Return the next unread record, or NULL, which does not mean the last: thousands before it may be finished."""
        cdef DiskPosition position = self.position
        cdef const char *payload = NULL
        cdef size_t size = 0
        cdef Message *message
        cdef uint64_t index
        cdef int64_t left = SKIPPED_MAX
        while left > 0 and not position.closed and self.depth > 0 and self.peek(&payload, &size):
            index = self.next_read
            if position.acks.test(index):
                left -= skip_units(size)
                self.step(self.read_position + RECORD_HEADER_SIZE + size)
                if index == position.cursor:
                    self.advance()
                self.skip_taken()
                continue
            message = message_load(payload, size)
            if message is NULL:
                raise MemoryError
            try:
                self.step(self.read_position + RECORD_HEADER_SIZE + size)
            except BaseException:
                message_drop(message)
                raise
            self.depth -= 1
            ordinal[0] = index + self.shift
            self.skip_taken()
            if self.depth == 0 and self.next_read < position.written:
                self.skip_finished(INT64_MAX)
            return message
        return NULL

    cdef int peek(self, const char **payload, size_t *size) except -1:
        """Find the record at the reader's position: 1, or 0 if none is left."""
        cdef const char *data
        cdef uint64_t id
        cdef int64_t n
        while self.next_read < self.position.written:
            if self.read_position >= self.read_end:
                if self.read_file < self.position.write_file:
                    self.next_file()
                elif self.position.in_batch:
                    return 0
                else:
                    log.error("DISKQUEUE(%s) positive depth at tail (%d), data loss, resetting 0...",
                              self.position.name, self.depth)
                    self.renumber(0)
                continue
            if self.fill(RECORD_SIZE_MIN):
                data = self.ahead + (self.read_position - self.ahead_start)
                n = get_be32(data)
                if n >= MESSAGE_HEADER_SIZE and self.fill(RECORD_HEADER_SIZE + n):
                    data = self.ahead + (self.read_position - self.ahead_start)
                    if id_from_hex(data + 14, &id) or self.is_sound():
                        payload[0] = data + RECORD_HEADER_SIZE
                        size[0] = n
                        return 1
            if self.pending is not NULL or not self.resync():
                return 0
        return 0

    cdef int end_read(self, ColdRead *done) except -1:
        FileReader.end_read(self, done)
        if self.depth == 0 and self.next_read < self.position.written:
            return self.skip_finished(INT64_MAX)    # nobody else reads on
        return 0

    cdef int go_to(self, int64_t file, int64_t position) except -1:
        """Move the reader there; 0 if the file does not exist."""
        self.close_reader()
        self.read_file = file
        self.read_position = position
        self.read_previous = -1
        if file == self.position.write_file:
            self.read_end = self.position.write_position
            return 1
        self.read_end = position
        try:
            status = os.stat(segment_path(self.position.prefix, file))
        except FileNotFoundError:
            return 0
        if not stat.S_ISREG(status.st_mode):
            return 0
        self.read_end = status.st_size
        return 1

    cdef int next_file(self) except -1:
        return 0 if self.go_to(self.read_file + 1, 0) else self.leave_file()

    cdef int leave_file(self) except -1:
        """Someone removed or replaced the reader's file: continue with the others."""
        cdef DiskPosition position = self.position
        path = segment_path(position.prefix, self.read_file)
        log.error("DISKQUEUE(%s) reading at %d of %s - %s, going on behind it", position.name, self.read_position, path,
                  "not a regular file" if os.path.exists(path) else "no such file or directory")
        if self.read_file < position.write_file:
            later = segments_between(position.prefix, self.read_file + 1, position.write_file)
            self.go_to(min(later, default=position.write_file), 0)
        else:
            self.go_to(position.write_file, position.write_position)
        return self.recount()

    cdef int leave_read_files(self) except -1:
        """Leave the end of a file if there is a next one."""
        while self.read_file < self.position.write_file and self.read_position >= self.read_end:
            self.next_file()
        return 0

    cdef int rewind(self) except -1:
        """Move the reader to the cursor."""
        cdef DiskPosition position = self.position
        self.next_read = position.cursor
        self.taken_head = self.taken_tail = 0
        position.cursor_position = record_start(position.prefix, position.cursor_file, position.cursor_position)
        return self.go_to(position.cursor_file, position.cursor_position)

    cdef int skip_taken(self) except -1:
        """Skip records that the reader must not return, so that the cursor can follow."""
        cdef Taken *next
        while self.taken_head != self.taken_tail:
            next = &self.taken[self.taken_head & self.taken_mask]
            if next.index != self.next_read:
                break
            if next.file != self.read_file:
                self.go_to(next.file, next.position)
            self.read_position = next.position
            self.step(next.end)
            self.taken_head += 1
        return 0

    cdef int skip_finished(self, int64_t most) except -1:
        """Skip what was finished before it was read, at most so many, so that its files can be removed."""
        cdef DiskPosition position = self.position
        cdef const char *payload = NULL
        cdef size_t size = 0
        while (most and not position.in_batch and self.next_read < position.written
                and position.acks.test(self.next_read) and self.peek(&payload, &size)
                and position.acks.test(self.next_read)):
            most -= skip_units(size)
            self.step(self.read_position + RECORD_HEADER_SIZE + size)
            self.skip_taken()
        if position.cursor < self.next_read and position.acks.test(position.cursor):
            self.advance()
        return 0

    cdef int step(self, int64_t end) except -1:
        """Move the reader behind the record at its position."""
        cdef uint64_t i, capacity = self.spots_mask + 1 if self.spots else 0
        cdef Spot *grown
        if self.next_read - self.position.cursor == capacity:
            capacity = capacity * 2 or 64
            grown = <Spot *>malloc(capacity * sizeof(Spot))
            if grown is NULL:
                raise MemoryError
            for i in range(self.position.cursor, self.next_read):
                grown[i & (capacity - 1)] = self.spots[i & self.spots_mask]
            charge(&account, <int64_t> ((capacity - (self.spots_mask + 1 if self.spots else 0)) * sizeof(Spot)))
            free(self.spots)
            self.spots = grown
            self.spots_mask = capacity - 1
        self.spots[self.next_read & self.spots_mask] = Spot(self.read_file, self.read_position)
        self.read_previous = self.read_position
        self.read_position = end
        self.next_read += 1
        return 0

    cdef int take(self, uint64_t index, int64_t file, int64_t position, int64_t end) except -1:
        cdef uint64_t i, size = self.taken_tail - self.taken_head, capacity = self.taken_mask + 1 if self.taken else 0
        cdef Taken *grown
        if size == capacity:
            capacity = capacity * 2 or 16
            grown = <Taken *>malloc(capacity * sizeof(Taken))
            if grown is NULL:
                raise MemoryError
            for i in range(size):
                grown[i] = self.taken[(self.taken_head + i) & self.taken_mask]
            charge(&account, <int64_t> ((capacity - (self.taken_mask + 1 if self.taken else 0)) * sizeof(Taken)))
            free(self.taken)
            self.taken = grown
            self.taken_mask = capacity - 1
            self.taken_head, self.taken_tail = 0, size
        cdef Taken *slot = &self.taken[self.taken_tail & self.taken_mask]
        slot.index, slot.file, slot.position, slot.end = index, file, position, end
        self.taken_tail += 1
        return 0

    cdef uint64_t take_found(self, uint64_t index, int64_t file, int64_t position, int64_t end) except 0:
        """Take a record that existed when the queue was opened; return its ordinal."""
        self.take(index, file, position, end)
        self.depth -= 1
        self.skip_taken()
        return index + self.shift

    cdef int resync(self) except -1:
        """Skip damage to the next whole record; the bytes between are set aside. 0: not now, a batch is open."""
        cdef DiskPosition position = self.position
        cdef Segment segment
        cdef Span span
        cdef int64_t end
        if position.in_batch:
            return 0
        try:
            segment = Segment(segment_path(position.prefix, self.read_file), self.read_end)
        except FileNotFoundError:
            self.leave_file()
            return 1
        if not segment.is_readable(self.read_position) and segment.error:
            self.check_device(segment)
        span = segment.next_record(self.read_position, self.read_previous)
        if span.damaged >= 0:
            log.error("DISKQUEUE(%s) reading at %d of %s - %s, going on at %d, saving bad bytes as %s.bad",
                      position.name, self.read_position, segment.path, self.name_damage(segment, span.start),
                      span.start, segment.path)
        if span.end <= span.start and self.read_file == position.write_file:
            span.start = min(self.read_position, span.start)    # recount() cuts there
        elif span.damaged >= 0:
            set_aside(position.name, segment, span.damaged, span.start)
        self.go_to(self.read_file, span.start)
        end = position.write_position
        self.recount()
        if position.write_position < end and position.write_position != span.start:
            log.error("DISKQUEUE(%s) %s: no whole message behind %d, saving %d bytes as %s.bad", position.name,
                      segment_path(position.prefix, position.write_file), position.write_position,
                      end - position.write_position, segment_path(position.prefix, position.write_file))
        return 1

    cdef int recount(self) except -1:
        """Count again after damage: the indexes of the records behind the reader may have changed."""
        cdef DiskPosition position = self.position
        cdef Segment segment
        cdef int64_t end = position.write_position
        cdef int64_t count = count_records(
            position.prefix, self.read_file, self.read_position, position.write_file, &end)
        if position.cursor == self.next_read:
            position.move_cursor(self.read_file, self.read_position)    # the search may have gone back
        if end == position.write_position:
            return self.renumber(count) if self.next_read + count != position.written else 0
        # Bytes that are no record could become one together with the next write, and hide that.
        segment = Segment(segment_path(position.prefix, position.write_file), position.write_position)
        set_aside(position.name, segment, end, segment.size)
        position.write_position = end
        position.tail_dirty = True
        if self.read_file == position.write_file:
            self.read_end = end
        return self.renumber(count)

    cdef int renumber(self, int64_t count) except -1:
        """Exactly `count` records follow. They get new ordinals, since a late ack of an old one may mean any of them;
        those finished out of order or taken are delivered again."""
        cdef DiskPosition position = self.position
        cdef uint64_t end = position.written + self.shift
        position.acks.reserve(self.next_read + count)
        position.acks.clear(self.next_read, self.next_read + count)
        self.shifts_before.append((self.shift_from, self.next_read + self.shift, self.shift))
        self.shift = end - self.next_read
        self.shift_from = end
        position.written = self.next_read + count
        position.acks.set_written(position.written, position.write_file, position.write_position)
        self.taken_head = self.taken_tail = 0
        self.depth = count
        position.unacked = (count + self.next_read - position.cursor
                            - position.acks.count(position.cursor, self.next_read))
        return 0

    # Finishing

    cdef int ack(self, uint64_t ordinal) except -1:
        """Finish the record for good. Unknown and repeated ordinals are ignored."""
        cdef DiskPosition position = self.position
        if position.closed or position.acks is None:
            return 0
        if position.in_batch:
            position.postponed_acks.append(ordinal)
            return 0
        return self.ack_record(ordinal - self.shift if ordinal >= self.shift_from else self.index_before(ordinal))

    cdef bint is_waiting(self, uint64_t index) noexcept:
        """Whether that record is still to be read. One that was taken is not asked about."""
        return not self.position.closed and self.next_read <= index < self.position.written and (
            not self.position.acks.test(index))

    cdef int finish_waiting(self, uint64_t index) except -1:
        """Finish a record that is still to be read."""
        self.ack_record(index)
        self.depth -= 1
        return 0

    cdef int ack_record(self, uint64_t index) except -1:
        """The same by the current index of the record."""
        cdef DiskPosition position = self.position
        if index < position.cursor or index >= position.written or position.acks.test(index):
            return 0
        position.acks.mark(index)
        position.unacked -= 1
        if index == position.cursor:
            self.advance()
        return 0

    cdef uint64_t index_before(self, uint64_t ordinal) except? 0:
        for first, end, shift in self.shifts_before:
            if first <= ordinal < end:
                return ordinal - shift
        return 0

    cdef int advance(self) except -1:
        """Move the cursor past everything finished."""
        cdef DiskPosition position = self.position
        while position.cursor < self.next_read and position.acks.test(position.cursor):
            position.cursor += 1
        if position.cursor < self.next_read:
            spot = self.spots[position.cursor & self.spots_mask]
            return position.move_cursor(spot.file, spot.position)
        self.leave_read_files()
        return position.move_cursor(self.read_file, self.read_position)


def remove(path):
    """Remove the file; return whether nothing of that name is left."""
    try:
        os.unlink(path)
    except FileNotFoundError:
        return True
    except OSError:
        return False
    return True
