"""Finds the deferred messages of a queue on disk again after a clean stop.

It reads each of them and makes the queue's reader skip it. If a record is not the one that was deferred, the remaining
ones are left to the reader, and so are due at once.
"""

from libc.stdint cimport int64_t, uint64_t

import logging

from nsqfast._ext.core.message cimport Message, delivery_new, id_of_record, message_load
from nsqfast._ext.storage.diskqueue.position cimport DiskPosition
from nsqfast._ext.storage.diskqueue.segment import segment_path

log = logging.getLogger("nsqd")


cdef class DiskDeferred:
    def __init__(self, DiskReader reader not None, Deadlines deadlines not None):
        self.reader = reader
        self.deadlines = deadlines
        self.file, self.position = deadlines.head.file, deadlines.head.position

    cdef Delivery *next(self, int64_t *due_ns) except? NULL:
        """Return the next one, and when it is due (Unix time); NULL at the end."""
        cdef uint64_t index
        cdef int64_t end
        cdef Message *message
        cdef Delivery *delivery
        while self.number < self.deadlines.head.count and self.find():
            index = self.deadlines.head.first_index + self.number
            end = self.segment.end_of(self.position)
            record = self.segment.bytes(self.position, end)
            if (id_of_record(<const char *>record + 4) != self.deadlines.entries[self.number].id
                    or not is_unfinished(self.reader, index, self.file, self.position)):
                break
            message = message_load(<const char *>record + 4, len(record) - 4)
            if message is NULL:
                raise MemoryError
            # Who was told its id is not on disk; with attempts it was delivered, and deferred again by its consumer.
            message.is_told = message.attempts == 0
            delivery = delivery_new(message)
            if delivery is NULL:
                raise MemoryError
            delivery.ordinal = self.reader.take_found(index, self.file, self.position, end)
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


cdef bint is_unfinished(DiskReader reader, uint64_t index, int64_t file, int64_t position):
    """Whether the record is unfinished; it may be finished if the file of an earlier stop was left or put back."""
    cdef DiskPosition place = reader.position
    return (place.acks is not None and place.cursor <= index < place.written and not place.acks.test(index)
            and (place.cursor_file, place.cursor_position) <= (file, position))
