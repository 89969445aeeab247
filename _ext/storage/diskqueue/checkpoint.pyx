"""A checkpoint makes room in the commit log: what its older half says is then in files.

    each queue, one after the other: its place in the log, where its files begin and end, what is only in memory
        ─► carried.tmp ─► fsync, with the files of the queues ─► carried ─► the log's older batches can go

A queue is shown in parts of a turn each, and the broker goes on between them. Its place is that of the first part: a
start repeats the records of the log behind it. What they say of a message may be in `carried`, too, or a part of it, so
they are such that repeating one changes nothing; and nothing is missing in `carried` that they need, because a message
that comes back, or goes to a file, between two parts is shown at once. Where something happened between two parts, of
one queue or of two, the log has to be on disk up to the last before `carried` counts. A topic comes before its
channels, so that nothing is in neither of them that is on its way from it to them. Until the next checkpoint the files
stay that a queue had at this one, and what was written to them later is cut off by a start, which finds it in the log.
"""

from libc.errno cimport EIO, ENOMEM, errno
from libc.stdlib cimport free, realloc
from libc.string cimport memcmp, memcpy, memset
from posix.unistd cimport write as write_fd

import logging
import os

from nsqfast._ext.commitlog.format cimport (
    EPOCH_SIZE, RECORD_HEADER_SIZE, RecordHeader, align_up, crc32c, crc_prepare,
)
from nsqfast._ext.core.budget cimport is_spent
from nsqfast._ext.core.clock cimport monotonic_ns, wall_ns
from nsqfast._ext.core.message cimport tries_of
from nsqfast._ext.storage.diskqueue.deferred cimport kept_due
from nsqfast._ext.storage.diskqueue.eventlog cimport (
    HELD, HOLES, NAMED, NAMED_SIZE, PLACED, PUBLISHED, PUBLISHED_SIZE, RELEASED, RELEASED_SIZE, failure_flags,
    get_number, put_number, put_place, put_published,
)
from nsqfast._ext.storage.diskqueue.position cimport DiskPosition
from nsqfast._ext.storage.diskqueue.reader cimport DiskReader, Spot
from nsqfast._ext.storage.diskqueue.syncer cimport drop_file

cdef enum:
    # Bytes of one write to the file.
    PIECE_SIZE = 262144
    # Units that a queue counts for at the end: a part is a handful of them.
    NOTE_UNITS = 64
    # Bytes of a body that count for one more.
    UNIT_SIZE = 1024
    HEAD_SIZE = 40              # magic, the ring's epoch, the batch at which it began, a version
    TAIL_SIZE = 16              # size of all before it, their CRC32C
    VERSION = 1

# What RELEASED says of no piece, in `carried`.
cdef uint64_t NO_PIECE = <uint64_t> -1
cdef uint64_t MAGIC = 0x317972726163716E        # "nqcarry1", in this byte order

log = logging.getLogger("nsqd")

crc_prepare()


cdef class DiskCheckpoint(Checkpoint):
    def __init__(self, EventLog event_log not None, Syncer syncer not None, str folder):
        cdef char *head
        self.log, self.syncer, self.folder = event_log, syncer, folder
        self.begun_ns = monotonic_ns()
        self.begun_batch, self.begun_count = event_log.ring.filling, event_log.ring.count
        self.begun = event_log.needed_by_mpubs()
        event_log.forget_mpubs()
        self.places = []
        event_log.has_old_files = False
        fd = os.open(folder + "/carried.tmp", os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
        self.file = syncer.open_file(fd)
        head = self.room(HEAD_SIZE)
        put_number(head, MAGIC)
        memcpy(head + 8, event_log.ring.folder.head.epoch, EPOCH_SIZE)
        put_number(head + 24, self.begun)
        put_number(head + 32, VERSION)

    def __dealloc__(self):
        free(self.data)
        if self.file is not NULL:
            drop_file(self.file)

    # What a queue has

    cdef bint begin_queue(self, ChannelStore queue) except -1:
        cdef Backlog backlog = <Backlog> queue if isinstance(queue, Backlog) else None
        cdef bytes name
        cdef char *out
        self.is_parted |= self.log.ring.filling != self.begun_batch or self.log.ring.count != self.begun_count
        self.backlog = backlog if backlog is not None and backlog.log is not None else None
        if self.backlog is None:
            return False
        name = backlog.disk.position.name.encode()
        out = self.put(NAMED, 0, backlog.log.number, NAMED_SIZE + len(name))
        put_number(out, self.log.life)
        put_number(out + 8, self.log.ring.filling)
        put_number(out + 16, self.log.ring.count)
        memcpy(out + NAMED_SIZE, <const char *> name, len(name))
        self.end_index = backlog.disk.position.written
        self.put_places()
        return True

    cdef int put_places(self) except -1:
        cdef DiskPosition position = self.backlog.disk.position
        cdef char *out
        if position.acks is None and position.written == 1 and position.write_file + position.write_position == 0:
            return 0
        out = self.put(PLACED, 0, self.backlog.log.number, 48)
        put_place(out, Place(position.cursor, position.cursor_file, position.cursor_position))
        put_place(out + 24, Place(position.written, position.write_file, position.write_position))
        self.put_holes()
        self.ticket = max(self.ticket, self.backlog.disk.writer.request_sync())
        self.places.append((self.backlog, position.cursor, position.cursor_file, position.cursor_position))
        return 0

    cdef int put_holes(self) except -1:
        cdef DiskPosition position = self.backlog.disk.position
        cdef uint64_t first = position.cursor & ~<uint64_t> 63
        cdef size_t count, start, before
        cdef char *out
        if position.acks is None or position.acks.count(position.cursor, position.written) == 0:
            return 0
        count = align_up(position.written - first, 64) // 64
        start = (first & position.acks.mask) >> 6
        before = min(count, (<size_t> position.acks.mask + 1) // 64 - start)     # the words are a ring
        out = self.put(HOLES, 0, self.backlog.log.number, 8 + 8 * count)
        put_number(out, first)
        memcpy(out + 8, position.acks.words + start, 8 * before)
        memcpy(out + 8 + 8 * before, position.acks.words, 8 * (count - before))
        return 0

    cdef void add(self, Delivery *delivery) noexcept:
        """One that has a record in a file is still unfinished there."""
        if delivery.ordinal == 0:
            self.keep(delivery.message, tries_of(delivery), 0)

    cdef void add_deferred(self, Delivery *delivery, int64_t due_ns) noexcept:
        if delivery.ordinal == 0:
            self.keep(delivery.message, tries_of(delivery), kept_due(due_ns, delivery.is_told))
        else:
            self.add_stored(delivery.ordinal, due_ns, delivery.is_told)

    cdef void add_stored(self, uint64_t ordinal, int64_t due_ns, bint is_told) noexcept:
        cdef DiskReader reader = self.backlog.disk.reader
        cdef uint64_t index = reader.index_of(ordinal)
        cdef Spot spot
        cdef char *out
        if index >= self.end_index or not reader.locate(ordinal, &spot):
            return      # one that was written again since is in the log
        try:
            out = self.put(HELD, 0, self.backlog.log.number, 32)
        except MemoryError:
            self.error = ENOMEM
            return
        put_place(out, Place(index, spot.file, spot.position))
        put_number(out + 24, <uint64_t> kept_due(due_ns, is_told))

    cdef void keep(self, Message *message, uint32_t tries, int64_t due_ns) noexcept:
        cdef char *out
        try:
            out = self.put(PUBLISHED, tries, self.backlog.log.number, PUBLISHED_SIZE + message.size)
        except MemoryError:
            self.error = ENOMEM
            return
        put_published(out, message, due_ns)
        memcpy(out + PUBLISHED_SIZE, message.body, message.size)

    cdef bint ends_part(self, Budget *budget, uint64_t size) except -1:
        cdef int64_t units = 1 + <int64_t> size // UNIT_SIZE
        if self.used >= PIECE_SIZE:
            self.write()
            units += PIECE_SIZE >> 8
        if not is_spent(budget, units):
            return False
        self.is_parted = True
        return True

    # The file

    cdef char *put(self, uint8_t kind, uint32_t tries, uint32_t subject, size_t size) except NULL:
        """Add a record, as it would stand in the ring; return where its payload goes."""
        cdef size_t padded = align_up(RECORD_HEADER_SIZE + size, 8)
        cdef char *out = self.room(padded)
        cdef RecordHeader *header = <RecordHeader *> out
        put_number(out + padded - 8, 0)
        memset(out, 0, RECORD_HEADER_SIZE)
        header.length = <uint32_t> (RECORD_HEADER_SIZE + size)
        header.kind = kind
        header.flags, header.extra = failure_flags(tries), <uint16_t> tries
        header.subject = subject
        return out + RECORD_HEADER_SIZE

    cdef char *room(self, size_t size) except NULL:
        cdef size_t capacity = self.data_capacity or 2 * PIECE_SIZE
        cdef char *grown
        while capacity < self.used + size:
            capacity *= 2
        if capacity != self.data_capacity:
            grown = <char *> realloc(self.data, capacity)
            if grown is NULL:
                raise MemoryError
            self.data, self.data_capacity = grown, capacity
        self.used += size
        return self.data + self.used - size

    cdef int write(self) except -1:
        """Write what was gathered, a piece at a time."""
        cdef size_t at = 0
        cdef ssize_t done
        while at < self.used:
            done = write_fd(self.file.fd, self.data + at, self.used - at)
            if done <= 0:
                raise OSError(errno or EIO, os.strerror(errno or EIO))
            at += done
        self.crc = crc32c(self.crc, self.data, self.used)
        self.written += self.used
        self.used = 0
        return 0

    cdef int end_file(self) except -1:
        cdef char *tail
        self.put_mpubs()
        if self.is_parted:
            # What is in the batch that is being filled may be needed, if it has something.
            self.log_end = max(self.log_end, self.log.ring.filling - (self.log.ring.count == 0))
            self.is_parted = False
        self.write()
        tail = self.room(TAIL_SIZE)
        put_number(tail, self.written)
        put_number(tail + 8, self.crc)
        self.write()
        self.ticket = max(self.ticket, self.syncer.request(self.file))
        return 0

    cdef int put_mpubs(self) except -1:
        """Those of which some queue was perhaps seen with a part: a start goes on with the pieces in the log, even
        if that does not say that any was released."""
        cdef char *out
        for mpub, (number, batch) in self.log.released_mpubs.items():
            out = self.put(RELEASED, 0, number, RELEASED_SIZE)
            put_number(out, mpub)
            put_number(out + 8, NO_PIECE)
            self.log_end = max(self.log_end, <uint64_t> batch)
        return 0

    # Its end

    cdef bint finish(self, Budget *budget) except -1:
        if self.step == 0:
            self.end_file()
            self.step = 1
        if not self.is_synced():
            return False
        if self.step == 1:
            self.syncer.rename(self.folder + "/carried.tmp", self.folder + "/carried")
            self.ticket = self.syncer.request_folder(self.folder)
            self.step = 2
            return False
        if self.step == 2:
            if not self.syncer.has_removed(self.begun):
                return False    # the next start would find files, and not why they should be gone
            self.log.ring.checkpoint(self.begun)
            self.step = 3
        return self.end(budget)

    cdef bint is_synced(self) except -1:
        cdef int error = self.log.ring.failed or self.error
        if error:
            raise OSError(error, os.strerror(error))
        if self.syncer.failed_ticket:
            # No later one proves that the data is on disk (see DiskPosition.has_failed).
            raise OSError(EIO, "a sync failed, and there is none until a restart")
        if self.log.ring.committed < self.log_end and not self.log.ring.is_full():
            # A full log has no room for them before the checkpoint ends.
            if self.log.is_interval:
                self.log.ring.sync()
            return False
        return self.syncer.done_ticket >= self.ticket

    cdef bint end(self, Budget *budget) except -1:
        cdef Backlog backlog
        while self.places:
            backlog, index, file, position = self.places.pop()
            backlog.disk.note_checkpoint(Place(index, file, position))
            if is_spent(budget, NOTE_UNITS):
                return False
        self.count_done(&self.log.checkpoints)
        return True

    cdef void count_done(self, CheckpointFigures *figures) noexcept:
        figures.last_ns = monotonic_ns() - self.begun_ns
        figures.sum_ns += figures.last_ns
        figures.ended_ns = wall_ns()
        figures.carried_bytes = self.written
        figures.count += 1


cdef int load_carried(RingContents ring, uint64_t first, Replay replay) except -1:
    """Repeat what the last checkpoint carried, unless all that the ring had before this batch was closed since."""
    cdef bytes data
    cdef const char *start
    cdef const RecordHeader *header
    cdef size_t at = HEAD_SIZE, size
    try:
        with open(ring.path + "/carried", "rb") as file:
            data = file.read()
    except FileNotFoundError:
        return 0
    start, size = data, len(data)
    if (size < HEAD_SIZE + TAIL_SIZE or get_number(start) != MAGIC or get_number(start + 32) != VERSION
            or get_number(start + size - TAIL_SIZE) != size - TAIL_SIZE
            or get_number(start + size - 8) != crc32c(0, start, size - TAIL_SIZE)
            or memcmp(start + 8, ring.head.epoch, EPOCH_SIZE)):
        raise OSError(EIO, f"{ring.path}/carried is damaged, or belongs to another commit log")
    if get_number(start + 24) < first:
        return 0
    replay.carried_to = get_number(start + 24)
    while at < size - TAIL_SIZE:
        header = <const RecordHeader *> (start + at)
        replay.apply(header.kind, header.flags, header.extra, header.subject, start + at + RECORD_HEADER_SIZE,
                     header.length - RECORD_HEADER_SIZE, 0)
        at += align_up(header.length, 8)
    return 0
