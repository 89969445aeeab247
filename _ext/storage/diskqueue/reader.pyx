"""The reading half of a queue on disk: what is next, what is finished, and which files can go.

    files    …000003.dat ──────── …000004.dat ────────── …000005.dat
                  ▲ cursor: first record not finished        ▲ written: where the next one goes
                  └ spots (where read records start) ┘ next_read

Files before the cursor are removed (see position). A reader at the end of a file goes to the next file as soon as there
is one, so a drained queue that begins a new file leaves no `.bad` file behind.
"""

from libc.errno cimport EBADMSG, EILSEQ, EINTR, EIO, ENODATA, errno
from libc.stdint cimport INT64_MAX
from libc.stdlib cimport free, malloc
from libc.string cimport memcpy
from posix.stat cimport fstat, struct_stat
from posix.unistd cimport close, pread

import logging
import os
import stat

from nsqfast._ext.core.clock cimport monotonic_ns
from nsqfast._ext.core.limits cimport MESSAGE_HEADER_SIZE
from nsqfast._ext.core.memory cimport Account, Memory, account_of, charge, leave_account
from nsqfast._ext.core.message cimport get_be32, get_be64, is_record_id, message_drop, message_load
from nsqfast._ext.storage.diskqueue.cold_reads cimport read_cached
from nsqfast._ext.storage.diskqueue.recovery cimport record_start, set_aside
from nsqfast._ext.storage.diskqueue.segment cimport RECORD_HEADER_SIZE, RECORD_SIZE_MIN, Span
from nsqfast._ext.storage.diskqueue.segment import open_file, segment_path, segments_between
from nsqfast._ext.storage.diskqueue.unreadable cimport Unreadable, keep_unread

cdef extern from "errno.h" nogil:
    int EUCLEAN


cdef enum:
    AHEAD_SIZE = 65536
    # The same where a disk has to be waited for.
    COLD_SIZE = 262144
    # The record's size and the first field of the message.
    HEAD_SIZE = 12

log = logging.getLogger("nsqd")


cdef class FileReader:
    """Reads a data file ahead of its queue's reader, and decides what a read error means.

    What the page cache has is there at once. For anything else a reader of a running broker asks `cold_reads`, and has
    nothing until that comes; a start and a stop wait for the disk.

    A read that fails is tried again each second. Bytes that stay unreadable while the device returns others are damaged
    (see unreadable): the reader skips them.
    """

    def __cinit__(self):
        self.read_fd = -1

    def __dealloc__(self):
        if self.read_fd >= 0:
            close(self.read_fd)
        self.drop_pending()
        leave_account(self.account, self.ahead_capacity)
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
            self.check_place(error)
            return 0
        if self.read_file == self.position.write_file:
            self.position.write_unwritten()
        if size > self.ahead_capacity:
            charge(self.account, -self.ahead_capacity)
            free(self.ahead)
            self.ahead_size = self.ahead_capacity = 0
            want = AHEAD_SIZE
            while want < size:
                want *= 2
            self.ahead = <char *>malloc(want)
            if self.ahead is NULL:
                raise MemoryError
            self.ahead_capacity = want
            charge(self.account, want)
        if self.read_fd < 0:
            self.position.note_open()
            try:
                self.read_fd, _ = open_file(segment_path(self.position.prefix, self.read_file))
            except FileNotFoundError:
                return 0    # resync() continues with another one
        self.ahead_start = self.read_position
        self.ahead_size = 0
        if self.is_refused:
            self.unreadable.begin_try()
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
        charge(self.account, done.size - self.ahead_capacity)
        free(self.ahead)
        self.ahead, done.data = done.data, NULL
        self.ahead_capacity, self.ahead_start, self.ahead_size = done.size, done.position, done.got
        self.cold_error = done.error
        if done.error == 0 and done.got < done.size:
            self.read_end = min(self.read_end, done.position + done.got)    # someone truncated the file
        if done.got:
            self.position.syncer.health.read_at_ns = monotonic_ns()
        return self.note_read(done.got)

    cdef int note_read(self, int64_t size) except -1:
        self.position.syncer.health.read_bytes += <uint64_t> size
        return 0

    cdef int note_success(self) except -1:
        """The next record was read, or what cannot be read was skipped."""
        self.is_refused = False
        self.unreadable.forget_before(self.read_file, self.read_position)
        return self.position.syncer.health.was_read(self.position.prefix)

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
                    raise self.refuse(self.read_file, errno)
                break
            if done == 0:
                # Someone truncated the file: what is left is all there is.
                self.read_end = self.read_position + got
                break
            got += done
            position.syncer.health.read_bytes += <uint64_t> done
        return got

    cdef object refuse(self, int64_t file, int error):
        """Return the error to raise: it cannot be read now, which is no reason to skip it."""
        self.is_refused = True
        return self.position.syncer.health.fail("read", segment_path(self.position.prefix, file), error)

    cdef bint is_trying(self) noexcept:
        """Whether the last read failed, or it is not known yet how the next one ends."""
        return self.is_refused or self.pending is not NULL

    cdef bint is_next_record_intact(self) except -1:
        cdef Segment segment
        try:
            segment = Segment(segment_path(self.position.prefix, self.read_file), self.read_end)
            return segment.is_accepted_record(self.read_position)
        except FileNotFoundError:
            return False

    cdef int check_place(self, int error) except -1:
        """Raise unless the bytes that come next are damaged: data is not lost because a device is unavailable now."""
        cdef int64_t at = max(self.read_position, self.ahead_start + self.ahead_size)
        if not is_damage(error) or not self.unreadable.is_lasting(self.read_file, at, at + 1, self.cold):
            raise self.refuse(self.read_file, error)
        return 0

    cdef int check_ranges(self, int64_t file, Segment segment, int64_t end) except -1:
        """The same for the file's unreadable ranges before `end`."""
        cdef size_t i
        cdef bint is_new = False
        for i in range(segment.lost_count):
            if segment.lost[i].start < end and (not is_damage(segment.error) or not self.unreadable.is_lasting(
                    file, segment.lost[i].start, segment.lost[i].end, self.cold)):
                is_new = True
        if is_new:
            raise self.refuse(file, segment.error)
        return 0

    cdef str name_damage(self, Segment segment, int64_t end):
        """Describe the damage for the log; report unreadable bytes before `end` to health."""
        ranges = [(first, behind) for first, behind in segment.unreadable if first < end]
        if not ranges:
            return "invalid message"
        lost = sum(behind - first for first, behind in ranges)
        text = ", ".join(f"{first}-{behind}" for first, behind in ranges)
        self.position.syncer.health.give_up(segment.path, segment.error, text, lost)
        return f"{os.strerror(segment.error).lower()} at {text}"

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


cdef inline int64_t skip_units(size_t size) noexcept:
    """How much of SKIPPED_MAX it takes to skip a record of that size, which is read to do so."""
    return 1 + <int64_t> (size >> 10)


cdef class DiskReader(FileReader):
    def __cinit__(self, DiskPosition position not None, Memory memory=None):
        self.account = account_of(memory)
        self.position = position
        self.unreadable = Unreadable(position.prefix, position.syncer.health)
        self.shifts_before = []

    def __dealloc__(self):
        if self.spots is not NULL:
            charge(self.account, -<int64_t> ((self.spots_mask + 1) * sizeof(Spot)))
        if self.taken is not NULL:
            charge(self.account, -<int64_t> ((self.taken_mask + 1) * sizeof(Taken)))
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
            message = message_load(self.account, payload, size)
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
            if self.depth == 0:
                self.end_reading()
            return message
        return NULL

    cdef int end_reading(self) except -1:
        """Nothing is left to be delivered, as far as is known."""
        cdef DiskPosition position = self.position
        if self.next_read < position.written:
            return self.skip_finished(INT64_MAX)
        if position.in_batch or (self.read_file == position.write_file
                                 and self.read_position == position.write_position):
            return 0
        # Some bytes could not be read when the records were counted.
        try:
            return self.recount()
        except OSError:     # the next call of peek() tries again, and the broker's health reports it
            return 0

    cdef int peek(self, const char **payload, size_t *size) except -1:
        """Find the record at the reader's position: 1, or 0 if none is left."""
        cdef const char *data
        cdef int64_t n
        if self.is_uncounted:
            if self.position.in_batch:
                return 0
            self.recount()
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
                    if is_record_id(data + 14) or self.is_next_record_intact():
                        if self.is_refused:
                            self.note_success()
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
        if self.spots is NULL or self.next_read - self.position.cursor == self.spots_mask + 1:
            self.spots = <Spot *> widen(self.account, <char *> self.spots, &self.spots_mask, self.position.cursor,
                                        self.next_read, sizeof(Spot))
        self.spots[self.next_read & self.spots_mask] = Spot(self.read_file, self.read_position)
        self.read_previous = self.read_position
        self.read_position = end
        self.next_read += 1
        return 0

    cdef int take(self, uint64_t index, int64_t file, int64_t position, int64_t end) except -1:
        if self.taken is NULL or self.taken_tail - self.taken_head == self.taken_mask + 1:
            self.taken = <Taken *> widen(self.account, <char *> self.taken, &self.taken_mask, self.taken_head,
                                         self.taken_tail, sizeof(Taken))
        self.taken[self.taken_tail & self.taken_mask] = Taken(index, file, position, end)
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
        cdef bint is_unread
        if position.in_batch:
            return 0
        position.write_unwritten()
        try:
            segment = Segment(segment_path(position.prefix, self.read_file), self.read_end)
        except FileNotFoundError:
            self.leave_file()
            return 1
        segment.is_readable(self.read_position)     # tries all of it
        span = segment.next_record(self.read_position, self.read_previous)
        is_unread = segment.next_lost(0) < span.start
        if is_unread:
            self.check_ranges(self.read_file, segment, span.start)
            if span.end <= span.start and self.read_file == position.write_file:
                self.leave_write_file(segment.error)
        if span.end <= span.start and self.read_file == position.write_file:
            if span.damaged >= 0:
                self.log_skipped(segment, span.start, "")
            span.start = min(self.read_position, span.start)    # recount() cuts there
        elif span.damaged >= 0:
            kept = keep_unread(position.name, segment, span.damaged, span.start) if is_unread else ""
            if kept:
                position.unread.append(kept)
            self.log_skipped(segment, span.start, kept)
            set_aside(position.name, segment, span.damaged, span.start)
        self.is_uncounted = True
        self.go_to(self.read_file, span.start)
        end = position.write_position
        self.recount()
        if self.is_refused:
            self.note_success()
        if position.cursor == position.written:
            self.advance()      # nobody reads on: its files can go
        if position.write_position < end and position.write_position != span.start:
            log.error("DISKQUEUE(%s) %s: no whole message behind %d, saving %d bytes as %s.bad", position.name,
                      segment_path(position.prefix, position.write_file), position.write_position,
                      end - position.write_position, segment_path(position.prefix, position.write_file))
        return 1

    cdef int log_skipped(self, Segment segment, int64_t end, str kept) except -1:
        log.error("DISKQUEUE(%s) reading at %d of %s - %s, going on at %d, saving bad bytes as %s.bad%s",
                  self.position.name, self.read_position, segment.path, self.name_damage(segment, end), end,
                  segment.path, f"; the next start reads {kept}" if kept else "")
        return 0

    cdef int leave_write_file(self, int error) except -1:
        """Let what is written next go to another file: what cannot be read now must not be cut off."""
        cdef DiskPosition position = self.position
        if not position.owner.close_idle():
            raise self.refuse(position.write_file, error)
        if position.tail_dirty:
            os.truncate(segment_path(position.prefix, position.write_file), position.write_position)
        position.write_file += 1
        position.write_position = 0
        position.tail_dirty = True  # something may have the next name
        return 0

    cdef int recount(self) except -1:
        """Count again after damage: the indexes of the records behind the reader may have changed. OSError: some cannot
        be read now; nothing is delivered until they are counted."""
        cdef DiskPosition position = self.position
        cdef Segment segment
        cdef int64_t end = position.write_position, count
        cdef bint is_cut
        self.is_uncounted = True
        position.write_unwritten()
        count = self.count_records(&end)
        is_cut = end < position.write_position
        if is_cut:
            # Bytes that are no record could become one together with the next write, and hide that.
            segment = Segment(segment_path(position.prefix, position.write_file), position.write_position)
            if not segment.try_range(end, segment.size):
                self.leave_write_file(segment.error)
            else:
                set_aside(position.name, segment, end, segment.size)
                position.write_position = end
                position.tail_dirty = True
                if self.read_file == position.write_file:
                    self.read_end = end
        self.is_uncounted = False
        if position.cursor == self.next_read:
            position.move_cursor(self.read_file, self.read_position)    # the search may have gone back
        return self.renumber(count) if is_cut or self.next_read + count != position.written else 0

    cdef int64_t count_records(self, int64_t *end) except -1:
        """Count the whole records from the reader on. end: on return where the last one of the write file ends."""
        cdef DiskPosition position = self.position
        cdef int64_t number, count = 0, damages = 0, total = 0, found
        cdef Segment segment
        self.unreadable.begin_try()
        if self.unreadable.is_any_new():
            raise self.refuse(self.read_file, EIO)
        for number in segments_between(position.prefix, self.read_file, position.write_file + 1):
            segment = Segment(segment_path(position.prefix, number),
                              end[0] if number == position.write_file else -1)
            found = segment.walk(self.read_position if number == self.read_file else 0, INT64_MAX, &count, &damages)
            self.check_ranges(number, segment, segment.size)
            total += count
            if number == position.write_file:
                end[0] = min(found, segment.size)
        return total

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
        return position.log_places()

    # Finishing

    cdef int ack(self, uint64_t ordinal) except -1:
        """Finish the record for good. Unknown and repeated ordinals are ignored."""
        cdef DiskPosition position = self.position
        if position.closed or position.acks is None:
            return 0
        if position.in_batch:
            position.postponed_acks.append(ordinal)
            return 0
        return self.ack_record(self.index_of(ordinal))

    cdef inline uint64_t index_of(self, uint64_t ordinal) noexcept:
        return ordinal - self.shift if ordinal >= self.shift_from else self.index_before(ordinal)

    cdef bint is_unfinished(self, uint64_t ordinal) noexcept:
        cdef DiskPosition position = self.position
        cdef uint64_t index = self.index_of(ordinal)
        return (not position.closed and position.acks is not None and position.cursor <= index < position.written
                and not position.acks.test(index))

    cdef bint locate(self, uint64_t ordinal, Spot *spot) noexcept:
        """Find where the record of something that was taken starts; False: it is finished, or was counted anew."""
        cdef uint64_t index, low = self.taken_head, high = self.taken_tail, middle
        if not self.is_unfinished(ordinal):
            return False
        index = self.index_of(ordinal)
        if index < self.next_read:
            spot[0] = self.spots[index & self.spots_mask]
            return True
        while low < high:
            middle = (low + high) // 2
            if self.taken[middle & self.taken_mask].index < index:
                low = middle + 1
            else:
                high = middle
        if low == self.taken_tail or self.taken[low & self.taken_mask].index != index:
            return False
        spot.file, spot.position = self.taken[low & self.taken_mask].file, self.taken[low & self.taken_mask].position
        return True

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

    cdef uint64_t index_before(self, uint64_t ordinal) noexcept:
        for first, end, shift in self.shifts_before:
            if first <= ordinal < end:
                return ordinal - shift
        return 0

    cdef int advance(self) except -1:
        """Move the cursor past everything finished."""
        cdef DiskPosition position = self.position
        if position.cursor < self.next_read:
            position.cursor = position.acks.first_unmarked(position.cursor, self.next_read)
        if position.cursor < self.next_read:
            spot = self.spots[position.cursor & self.spots_mask]
            return position.move_cursor(spot.file, spot.position)
        self.leave_read_files()
        return position.move_cursor(self.read_file, self.read_position)


cdef void *widen(Account *account, char *ring, uint64_t *mask, uint64_t first, uint64_t end, size_t size) except NULL:
    """Return a ring of twice as many items of that size, where those from first to end have their numbers again."""
    cdef uint64_t i, before = mask[0] + 1 if ring else 0, capacity = before * 2 or 16
    cdef char *grown = <char *> malloc(capacity * size)
    if grown is NULL:
        raise MemoryError
    for i in range(first, end):
        memcpy(grown + (i & (capacity - 1)) * size, ring + (i & mask[0]) * size, size)
    charge(account, <int64_t> ((capacity - before) * size))
    free(ring)
    mask[0] = capacity - 1
    return grown


def remove(path):
    """Remove the file; return whether nothing of that name is left."""
    try:
        os.unlink(path)
    except FileNotFoundError:
        return True
    except OSError:
        return False
    return True


cdef class OldestRecord:
    """Reads the record at a reader's position and changes nothing: the reader itself finds and repairs damage.

    A queue whose reader has not moved costs nothing; else it costs at most one read of a few bytes, which are usually
    in the reader's memory. After a kill the record may already be finished; its neighbours are of about the same age.
    """

    cpdef int64_t find_timestamp_ns(self, DiskReader reader) except -2:
        """Return Unix time in ns; 0 = nothing is unread, or UNREADABLE."""
        cdef int64_t file = reader.read_file, position = reader.read_position, timestamp_ns
        if reader.position.closed or reader.depth == 0:
            return 0
        try:
            reader.position.write_unwritten()
        except OSError:     # the broker's health reports it
            return UNREADABLE
        if position >= reader.read_end and file < reader.position.write_file:
            file, position = file + 1, 0
        if self.timestamp_ns and file == self.file and position == self.position:
            return self.timestamp_ns
        timestamp_ns = read_timestamp(reader, file, position)
        if timestamp_ns != UNREADABLE:
            self.file, self.position, self.timestamp_ns = file, position, timestamp_ns
        return timestamp_ns


cdef int64_t read_timestamp(DiskReader reader, int64_t file, int64_t position) except -2:
    cdef int64_t offset = position - reader.ahead_start
    cdef char data[HEAD_SIZE]
    cdef int fd = reader.read_fd
    cdef ssize_t size
    if file == reader.read_file and fd >= 0 and 0 <= offset and offset + HEAD_SIZE <= reader.ahead_size:
        return timestamp_of(reader.ahead + offset)
    if file == reader.read_file and fd >= 0:
        size = pread(fd, data, HEAD_SIZE, position)
    else:
        try:
            fd = os.open(segment_path(reader.position.prefix, file), os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
        except OSError:
            return UNREADABLE
        size = pread(fd, data, HEAD_SIZE, position)
        close(fd)
    return timestamp_of(data) if size == HEAD_SIZE else UNREADABLE


cdef int64_t timestamp_of(const char *record) noexcept:
    cdef int64_t timestamp_ns = <int64_t> get_be64(record + 4)
    return timestamp_ns if get_be32(record) >= MESSAGE_HEADER_SIZE and timestamp_ns > 0 else UNREADABLE
