"""The deferred messages of a queue on disk over a clean stop: a file keeps their due times.

    <Q>.diskqueue.deferred.dat      (Go ignores it)
    head, 48 bytes │ {id (8), due (8, Unix time, see kept_due)} ...

The messages themselves are the last records of the queue, in the order of their deadlines. A starting broker removes
the file, so it is used only once: after a kill -9 the messages are due at once.
"""

from libc.stdlib cimport free, qsort, realloc
from libc.string cimport memcpy
from posix.unistd cimport write as write_fd

import logging
import os

from nsqfast._ext.core.message cimport Message, delivery_new, id_of_record, message_load
from nsqfast._ext.storage.diskqueue.position cimport DiskPosition
from nsqfast._ext.storage.diskqueue.segment import segment_path
from nsqfast._ext.storage.diskqueue.syncer cimport drop_file

cdef extern from "core/check.h" nogil:
    uint64_t check_numbers "nsq_check"(const uint64_t *numbers, uint64_t count)

cdef uint64_t MAGIC = 0x316665642D71736E    # "nsq-def1", in this byte order
cdef enum:
    UNCHECKED_SIZE = 16                     # magic and checksum

log = logging.getLogger("nsqd")


cdef class Deadlines:
    def __dealloc__(self):
        free(self.entries)

    cdef int add(self, uint64_t id, int64_t due_ns) except -1:
        if self.head.count == self.capacity:
            self.widen(self.capacity * 2 or 64)
        self.entries[self.head.count] = Entry(id, due_ns)
        self.head.count += 1
        return 0

    cdef int widen(self, size_t capacity) except -1:
        entries = <Entry *>realloc(self.entries, capacity * sizeof(Entry))
        if entries is NULL:
            raise MemoryError
        self.entries, self.capacity = entries, capacity
        return 0

    cdef uint64_t check(self) noexcept:
        cdef uint64_t numbers[2]
        numbers[0] = check_numbers(<uint64_t *>&self.head + UNCHECKED_SIZE // 8,
                                   (sizeof(Head) - UNCHECKED_SIZE) // 8)
        numbers[1] = check_numbers(<uint64_t *>self.entries, self.head.count * (sizeof(Entry) // 8))
        return check_numbers(numbers, 2)

    cdef OpenFile *write(self, str path, Syncer syncer) except NULL:
        """Write the file; return it to be synced, the caller drops it."""
        cdef int fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
        cdef OpenFile *file = syncer.open_file(fd)
        self.head.magic = MAGIC
        self.head.check = self.check()
        try:
            write_all(file.fd, <const char *>&self.head, sizeof(Head))
            write_all(file.fd, <const char *>self.entries, self.head.count * sizeof(Entry))
        except BaseException:
            drop_file(file)
            raise
        return file

    cdef bint parse(self, bytes data) except *:
        """Parse it; return whether it is valid."""
        cdef size_t size = len(data)
        if size < sizeof(Head):
            return False
        memcpy(&self.head, <const char *>data, sizeof(Head))
        if self.head.magic != MAGIC or self.head.count != (size - sizeof(Head)) // sizeof(Entry):
            return False
        self.widen(max(<size_t>self.head.count, <size_t>1))
        memcpy(self.entries, <const char *>data + sizeof(Head), self.head.count * sizeof(Entry))
        return self.head.check == self.check()


cdef int write_all(int fd, const char *data, size_t size) except -1:
    cdef ssize_t done
    while size:
        done = write_fd(fd, data, size)
        if done <= 0:
            raise OSError(28, os.strerror(28))
        data += done
        size -= done
    return 0


cdef Deadlines take_deadlines(str name, str path, bint is_kept):
    """Read the file, and remove it unless it is kept; None if there is no valid one."""
    cdef Deadlines deadlines = Deadlines()
    try:
        with open(path, "rb") as file:
            data = file.read()
        if not is_kept:
            os.unlink(path)
    except FileNotFoundError:
        return None
    except OSError as error:
        log.warning("DISKQUEUE(%s) deferred messages are due at once, %s - %s", name, path, error.strerror)
        return None
    if not deadlines.parse(data):
        log.warning("DISKQUEUE(%s) deferred messages are due at once, %s is damaged", name, path)
        return None
    return deadlines


cdef class DiskDeferred:
    """Reads each of them at a start, and makes the queue's reader skip it. If a record is not the one that was
    deferred, the remaining ones are left to the reader, and so are due at once.
    """

    def __init__(self, DiskReader reader not None, Deadlines deadlines not None):
        self.reader = reader
        self.deadlines = deadlines
        self.file, self.position = deadlines.head.file, deadlines.head.position
        if reader.position.log is not None and deadlines.head.first_index < reader.position.cursor:
            # The file of an earlier stop is read until the next checkpoint. What is before the cursor is finished.
            self.number = reader.position.cursor - deadlines.head.first_index
            self.file, self.position = reader.position.cursor_file, reader.position.cursor_position
        elif self.file < reader.position.cursor_file:
            # The first began a file, and the one before it, at whose end it was to be, is finished and removed.
            self.file, self.position = reader.position.cursor_file, reader.position.cursor_position

    cdef Delivery *next(self, int64_t *due_ns) except? NULL:
        """Return the next one, and when it is due (Unix time); NULL at the end."""
        cdef uint64_t index
        cdef int64_t end
        cdef Delivery *delivery
        while self.number < self.deadlines.head.count and self.find():
            index = self.deadlines.head.first_index + self.number
            if not self.segment.is_readable(self.position):
                break
            end = self.segment.end_of(self.position)
            record = self.segment.bytes(self.position, end)
            if id_of_record(<const char *>record + 4) != self.deadlines.entries[self.number].id:
                break
            if not is_unfinished(self.reader, index, self.file, self.position):
                if self.reader.position.log is None:
                    break
                self.position = end
                self.number += 1
                continue
            delivery = take_record(self.reader, self.segment, index, self.file, self.position)
            due_ns[0] = self.deadlines.entries[self.number].due_ns
            self.position = end
            self.number += 1
            return delivery
        if self.number < self.deadlines.head.count:
            log.warning("DISKQUEUE(%s) %d deferred messages are due at once, they are not where they were",
                        self.reader.position.name, self.deadlines.head.count - self.number)
        self.deadlines = Deadlines()
        self.number = 0
        return NULL

    cdef bint find(self) except -1:
        """Whether a record is at the position, or at the start of the next file."""
        if self.segment is None and not self.open():
            return False
        if self.position >= self.segment.size:
            self.file += 1
            self.position = 0
            if not self.open():
                return False
        return self.segment.has_record_head(self.position)

    cdef bint open(self) except -1:
        try:
            self.segment = Segment(segment_path(self.reader.position.prefix, self.file))
        except OSError as error:
            log.warning("DISKQUEUE(%s) %s", self.reader.position.name, error)
            return False
        return True


cdef class HeldRecords:
    """Reads again what the last checkpoint saw deferred, in the order of the records. What is finished since then, or
    not there any more, is left out.
    """

    def __init__(self, DiskReader reader not None, bytearray data not None):
        self.reader, self.data, self.count = reader, data, len(data) // sizeof(Held)
        qsort(<char *> data, self.count, sizeof(Held), compare_held)

    cdef Delivery *next(self, int64_t *due_ns) except? NULL:
        cdef Held *held
        while self.number < self.count:
            held = <Held *> <char *> self.data + self.number
            self.number += 1
            if held.index == self.last_index or not is_unfinished(self.reader, held.index, held.file, held.position):
                continue
            self.last_index = held.index
            if self.segment is None or self.file != held.file:
                self.segment = Segment(segment_path(self.reader.position.prefix, held.file))
                self.file = held.file
            if self.segment.is_readable(held.position) and self.segment.has_record_head(held.position):
                due_ns[0] = held.due_ns
                return take_record(self.reader, self.segment, held.index, held.file, held.position)
        return NULL


cdef int compare_held(const void *one, const void *other) noexcept nogil:
    cdef uint64_t first = (<const Held *> one).index, second = (<const Held *> other).index
    return (first > second) - (first < second)


cdef Delivery *take_record(DiskReader reader, Segment segment, uint64_t index, int64_t file,
                           int64_t position) except NULL:
    cdef int64_t end = segment.end_of(position)
    cdef bytes record = segment.bytes(position, end)
    cdef Message *message = message_load(reader.account, <const char *> record + 4, len(record) - 4)
    cdef Delivery *delivery
    if message is NULL:
        raise MemoryError
    delivery = delivery_new(reader.account, message)
    delivery.ordinal = reader.take_found(index, file, position, end)
    return delivery


cdef bint is_unfinished(DiskReader reader, uint64_t index, int64_t file, int64_t position):
    """Whether the record is unfinished; it may be finished if the file of an earlier stop was left or put back."""
    cdef DiskPosition place = reader.position
    return (place.acks is not None and place.cursor <= index < place.written and not place.acks.test(index)
            and (place.cursor_file, place.cursor_position) <= (file, position))
