"""A checkpoint makes room in the commit log: what its older half says is then in files.

    each queue, one after the other: its place in the log, where its files begin and end, what is only in memory
        ─► carried.tmp ─► fsync, with the files of the queues ─► carried ─► the log's older batches can go

A queue is looked at in one go; between two of them the broker goes on. Its place says which records of the log the
checkpoint has seen the effect of, committed or not: a start repeats the others. A topic comes before its channels, so
that nothing is in neither of them that is on its way from it to them. Until the next checkpoint the files stay that a
queue had at this one, and what was written to them later is cut off by a start, which finds it in the log.
"""

from libc.errno cimport EIO, errno
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
from nsqfast._ext.core.message cimport message_drop, message_keep
from nsqfast._ext.storage.diskqueue.deferred cimport kept_due
from nsqfast._ext.storage.diskqueue.eventlog cimport (
    HELD, HOLES, NAMED, NAMED_SIZE, PLACED, PUBLISHED, PUBLISHED_SIZE, RELEASED, RELEASED_SIZE, get_number, put_number,
    put_place, put_published,
)
from nsqfast._ext.storage.diskqueue.position cimport DiskPosition
from nsqfast._ext.storage.diskqueue.reader cimport DiskReader, Spot
from nsqfast._ext.storage.diskqueue.syncer cimport drop_file

cdef enum:
    # Bytes of one write to the file.
    PIECE_SIZE = 262144
    # Units that a queue counts for at the end: a part is a handful of them.
    NOTE_UNITS = 64
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
        while self.encoded < self.count:
            if self.carried[self.encoded].message is not NULL:
                message_drop(self.carried[self.encoded].message)
            self.encoded += 1
        free(self.carried)
        free(self.data)
        if self.file is not NULL:
            drop_file(self.file)

    # What a queue has

    cdef int begin_queue(self, ChannelStore queue) except -1:
        cdef Backlog backlog = <Backlog> queue if isinstance(queue, Backlog) else None
        cdef uint64_t item
        cdef size_t i
        cdef bytes name
        cdef char *out
        self.backlog = backlog if backlog is not None and backlog.log is not None else None
        if self.backlog is None:
            return 0
        name = backlog.disk.position.name.encode()
        out = self.put(NAMED, 0, backlog.log.number, NAMED_SIZE + len(name))
        put_number(out, self.log.life)
        put_number(out + 8, self.log.ring.filling)
        put_number(out + 16, self.log.ring.count)
        memcpy(out + NAMED_SIZE, <const char *> name, len(name))
        self.end_index = backlog.disk.position.written
        self.put_places()
        for i in range(backlog.memory.size):
            item = <uint64_t> backlog.memory.ahead(i)
            if item & 1:
                self.keep(<Message *> (item & ~<uint64_t> 1), 0, (<Message *> (item & ~<uint64_t> 1)).attempts, 0)
            else:
                self.add(<Delivery *> item)
        return 0

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
        cdef uint64_t first = position.cursor & ~<uint64_t> 63, index
        cdef char *out
        if position.acks is None or position.acks.count(position.cursor, position.written) == 0:
            return 0
        out = self.put(HOLES, 0, self.backlog.log.number, 8 + align_up(position.written - first, 64) // 8)
        put_number(out, first)
        for index in range(first, position.written, 64):
            out += 8
            put_number(out, position.acks.words[(index & position.acks.mask) >> 6])
        return 0

    cdef int add(self, Delivery *delivery) except -1:
        """One that has a record in a file is still unfinished there."""
        if self.backlog is not None and delivery.ordinal == 0:
            self.keep(delivery.message, 0, delivery.attempts, 0)
        return 0

    cdef int add_deferred(self, Delivery *delivery, int64_t due_ns) except -1:
        if self.backlog is None:
            return 0
        if delivery.ordinal == 0:
            return self.keep(delivery.message, 0, delivery.attempts, kept_due(due_ns, delivery.is_told))
        return self.add_stored(delivery.ordinal, due_ns, delivery.is_told)

    cdef int add_stored(self, uint64_t ordinal, int64_t due_ns, bint is_told) except -1:
        return 0 if self.backlog is None else self.keep(NULL, ordinal, 0, kept_due(due_ns, is_told))

    cdef int keep(self, Message *message, uint64_t ordinal, uint16_t attempts, int64_t due_ns) except -1:
        """A queue may have very many: here only what is needed to find them later."""
        cdef Carried *grown
        if self.count == self.capacity:
            grown = <Carried *> realloc(self.carried, (self.capacity * 2 or 1024) * sizeof(Carried))
            if grown is NULL:
                raise MemoryError
            self.carried, self.capacity = grown, self.capacity * 2 or 1024
        self.carried[self.count] = Carried(message, ordinal, due_ns, attempts)
        self.count += 1
        if message is not NULL:
            message_keep(message)
        return 0

    # The file

    cdef bint work(self, Budget *budget) except -1:
        while self.encoded < self.count or self.used >= PIECE_SIZE:
            if self.used >= PIECE_SIZE:
                self.write()
                if is_spent(budget, PIECE_SIZE >> 8):
                    return False
                continue
            self.encode()
            if is_spent(budget, 1):
                return False
        self.count = self.encoded = 0
        return True

    cdef int encode(self) except -1:
        cdef Carried *carried = &self.carried[self.encoded]
        cdef uint32_t number = self.backlog.log.number
        cdef DiskReader reader = self.backlog.disk.reader
        cdef Spot spot
        cdef char *out
        if carried.message is not NULL:
            out = self.put(PUBLISHED, carried.attempts, number, PUBLISHED_SIZE + carried.message.size)
            put_published(out, carried.message, carried.due_ns)
            memcpy(out + PUBLISHED_SIZE, carried.message.body, carried.message.size)
            message_drop(carried.message)
        elif reader.index_of(carried.ordinal) < self.end_index and reader.locate(carried.ordinal, &spot):
            # One that was written again since is in the log.
            out = self.put(HELD, 0, number, 32)
            put_place(out, Place(reader.index_of(carried.ordinal), spot.file, spot.position))
            put_number(out + 24, <uint64_t> carried.due_ns)
        self.encoded += 1
        return 0

    cdef char *put(self, uint8_t kind, uint16_t extra, uint32_t subject, size_t size) except NULL:
        """Add a record, as it would stand in the ring; return where its payload goes."""
        cdef size_t padded = align_up(RECORD_HEADER_SIZE + size, 8)
        cdef char *out = self.room(padded)
        cdef RecordHeader *header = <RecordHeader *> out
        memset(out, 0, padded)
        header.length = <uint32_t> (RECORD_HEADER_SIZE + size)
        header.kind = kind
        header.extra = extra
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
            self.pieces_end = max(self.pieces_end, <uint64_t> batch)
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
            self.log.ring.checkpoint(self.begun)
            self.step = 3
        return self.end(budget)

    cdef bint is_synced(self) except -1:
        if self.log.ring.failed:
            raise OSError(self.log.ring.failed, os.strerror(self.log.ring.failed))
        if self.syncer.failed_ticket:
            # No later one proves that the data is on disk (see DiskPosition.has_failed).
            raise OSError(EIO, "a sync failed, and there is none until a restart")
        if self.log.ring.committed < self.pieces_end:
            # Of interval mode, where they are written.
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
    while at < size - TAIL_SIZE:
        header = <const RecordHeader *> (start + at)
        replay.apply(header.kind, header.flags, header.extra, header.subject, start + at + RECORD_HEADER_SIZE,
                     header.length - RECORD_HEADER_SIZE, 0)
        at += align_up(header.length, 8)
    return 0
