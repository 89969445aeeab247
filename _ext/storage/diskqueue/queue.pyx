"""A queue on disk in go-diskqueue's format, with acknowledgements that survive a kill -9.

A queue owns a reader and a writer, which share a position; this module opens, empties and closes them.
"""

from libc.stdint cimport INT64_MAX, int64_t, uint64_t

import logging
import os
from itertools import chain

from nsqfast._ext.core.memory cimport Memory
from nsqfast._ext.core.message cimport Message, message_drop, message_new
from nsqfast._ext.storage.diskqueue.ackfile cimport Place
from nsqfast._ext.storage.diskqueue.births cimport birth_line
from nsqfast._ext.storage.diskqueue.deferred cimport take_deadlines
from nsqfast._ext.storage.diskqueue.position cimport DiskPosition
from nsqfast._ext.storage.diskqueue.reader cimport DiskReader
from nsqfast._ext.storage.diskqueue.eventlog cimport QueueLog
from nsqfast._ext.storage.diskqueue.recovery cimport Recovered, recover, resume_logged
from nsqfast._ext.storage.diskqueue.replay cimport ReplayedQueue
from nsqfast._ext.storage.diskqueue.segment cimport RECORD_HEADER_SIZE, Segment
from nsqfast._ext.storage.diskqueue.segment import all_files, data_files, forget_listed, take_unread
from nsqfast._ext.storage.diskqueue.syncer cimport OpenFile, Syncer, drop_file
from nsqfast._ext.storage.diskqueue.writer cimport DiskWriter
from nsqfast._ext.storage.diskqueue.unreadable import parse_unread

cdef enum:
    # Bytes of records copied to the tail at once at a clean stop.
    COPY_SIZE = 1048576

log = logging.getLogger("nsqd")


cdef class DiskQueue(FileOwner):
    def __init__(self, str data_path, str name, Syncer syncer, int64_t file_size_max, int64_t sync_every,
                 Memory memory=None, QueueLog queue_log=None, ReplayedQueue logged=None):
        cdef Recovered found = None
        data_path = data_path or "."
        prefix = os.path.join(data_path, name + ".diskqueue.")
        self.position = DiskPosition(self, name, prefix, syncer)
        self.reader = DiskReader(self.position, memory)
        self.writer = DiskWriter(self.position, self.reader, data_path, file_size_max, sync_every)
        syncer.remove_now(self.position.prefix)
        self.position.unread = take_unread(self.position.prefix)
        if logged is not None:
            found = resume_logged(name, self.position.prefix, logged)
        is_logged = found is not None and not found.is_shorter
        if logged is not None and not is_logged:
            logged.held = bytearray()   # these are other records now
        if found is None:
            found = recover(name, self.position.prefix, queue_log is not None,
                            queue_log is not None and queue_log.log.was_open)
        self.position.open(found)
        self.position.log, self.position.was_logged = queue_log, queue_log is not None
        if queue_log is not None and queue_log.named_in and found.is_new and not self.position.unread:
            self.position.birth = birth_line(queue_log.log.ring.folder.epoch(), queue_log.named_in)
        self.first_file = found.first_file
        self.reader.depth = found.unacked
        if not found.is_new:
            self.keeps_deadlines = queue_log is not None
            self.deadlines = take_deadlines(name, self.position.prefix + "deferred.dat", self.keeps_deadlines)
        if self.deadlines is not None and not found.is_whole:
            self.deadlines = None   # another broker, or damage: the records have moved
        self.position.note_sealed()
        syncer.open_folder(self.writer.data_path)
        if found.is_killed:
            self.position.note_copy(syncer.request_all(self.writer.data_path))
        self.reader.next_read = self.position.cursor
        self.reader.go_to(self.position.cursor_file, self.position.cursor_position)
        if self.position.cursor == self.position.written:
            self.reader.advance()
        elif self.reader.depth == 0:
            self.reader.skip_finished(INT64_MAX)
        if self.position.acks is not None:
            self.position.try_meta()
        forget_listed(self.position.prefix)
        if queue_log is not None and not is_logged and (logged is not None or self.position.acks is not None
                                                        or self.position.write_file or self.position.write_position):
            self.begin_log()
            queue_log.log.has_new_metadata |= self.position.meta_text != found.meta_text
        if self.position.unread:
            self.put_back_unread()

    cdef int begin_log(self) except -1:
        """The log learns what the files have, and the metadata that there is a log."""
        cdef DiskPosition position = self.position
        cdef uint64_t index
        position.log_places()
        if position.acks is not None and position.acks.count(position.cursor, position.written):
            for index in range(position.cursor, position.written):
                if position.acks.test(index):
                    position.log.finish(0, index)
        return position.try_meta()

    cdef int note_checkpoint(self, Place place) except -1:
        """The files before that place, where the queue was at the checkpoint, can go."""
        cdef DiskPosition position = self.position
        if position.closed or position.log is None or place.index < position.kept.index or (
                (place.file, place.position) < (position.kept.file, position.kept.position)):
            return 0
        if self.keeps_deadlines:
            position.syncer.remove_later(position.prefix, [position.prefix + "deferred.dat"])
            self.keeps_deadlines = False
        if place.index == position.kept.index and place.file == position.kept.file:
            return 0
        return position.keep(place)

    # Finishing

    cpdef int empty(self) except -1:
        """Drop everything, unread or unfinished; later acks are ignored."""
        cdef DiskPosition position = self.position
        cdef int64_t first = position.kept.file, last = position.write_file
        self.writer.gathered_count = self.writer.batch_size = 0
        position.postponed_acks = []
        if position.closed:
            return 0
        unread, position.unread = position.unread, []
        if position.acks is None:
            return position.syncer.remove_later(position.prefix, unread)
        self.close_files()
        position.write_file, position.write_position = position.write_file + 1, 0
        position.cursor = position.written
        self.reader.depth = position.unacked = self.writer.unsynced = 0
        position.cursor_file, position.cursor_position = position.write_file, 0
        self.reader.rewind()
        # The copies are gone with everything else.
        position.is_waiting = position.has_new_copies = False
        position.copied_from = 0
        position.kept = Place(position.cursor, position.write_file, 0)
        position.acks.set_cursor(position.cursor, position.write_file, 0)
        position.acks.set_written(position.written, position.write_file, 0)
        position.syncer.remove_later(position.prefix, chain(
            data_files(position.prefix, first, last + 1), unread))
        return position.try_meta()

    cdef int fill_holes(self) except -1:
        """Copy unfinished records before the last finished one to the tail: Go knows a single read position."""
        cdef const char *payload = NULL
        cdef size_t size = 0
        cdef uint64_t end = self.position.written, index
        cdef list copied = []
        if self.position.acks is None or not self.position.acks.count(self.position.cursor, end):
            return 0
        while not self.position.acks.test(end - 1):
            end -= 1
        self.reader.rewind()
        self.reader.depth = self.position.unacked
        while self.reader.next_read < end:
            if not self.reader.peek(&payload, &size):
                if not copied:
                    break
                # Damage can be skipped only while no batch is open.
                copied = self.end_copies(copied)
                continue
            index = self.reader.next_read
            if not self.position.acks.test(index):
                if not self.position.in_batch:
                    self.writer.begin_batch()
                self.writer.gather(payload, size, NULL, 0, False)
                copied.append(index)
            self.reader.step(self.reader.read_position + RECORD_HEADER_SIZE + size)
            if self.writer.batch_size >= COPY_SIZE or self.reader.next_read >= end:
                copied = self.end_copies(copied)
        self.end_copies(copied)
        return self.reader.advance()

    cdef list end_copies(self, list copied):
        """The records are at the tail as well: finish the originals."""
        self.position.note_copy(0)
        self.writer.end_batch()
        for index in copied:
            self.reader.ack_record(index)
        return []

    # What an earlier run could not read

    cdef int put_back_unread(self) except -1:
        """Read again what was given up, and add its records to the end: none of them was ever delivered."""
        cdef list left = []
        for path in self.position.unread:
            try:
                if self.put_back(path):
                    os.unlink(path)
                    continue
            except (OSError, ValueError) as error:
                log.error("DISKQUEUE(%s) failed to put back what %s has - %s", self.position.name, path, error)
            left.append(path)
        self.position.unread = left
        return 0

    cdef bint put_back(self, str path) except -1:
        """Return whether everything that could not be read is on disk now."""
        cdef Segment segment = Segment(path)
        cdef const char *record
        cdef size_t size = 0
        cdef int64_t start, end
        _, start, end = parse_unread(path)
        if not segment.try_range(start, min(end, segment.size)):
            log.error("DISKQUEUE(%s) %s - still %s, keeping it", self.position.name, path,
                      os.strerror(segment.error).lower())
            return False
        count = 0
        for at, _ in segment.records(start):
            if at >= end:
                break
            record = segment.record(at, &size)
            if record is NULL:
                return False
            if not self.position.in_batch:
                self.writer.begin_batch()
            self.writer.gather(record + RECORD_HEADER_SIZE, size - RECORD_HEADER_SIZE, NULL, 0, False)
            count += 1
            if self.writer.batch_size >= COPY_SIZE:
                self.writer.end_batch()
        self.writer.end_batch()
        self.position.syncer.wait(self.writer.request_sync())
        log.warning("DISKQUEUE(%s) %s can be read again, putting back %d message(s)", self.position.name, path, count)
        return True

    # Keeping

    cpdef int close(self) except -1:
        """The clean stop, see close_some(); waits for the disk."""
        for step in range(CLOSE_STEPS):
            self.position.syncer.wait(self.close_some(step))
        return 0

    cpdef uint64_t close_some(self, int step) except? 0:
        """The clean stop in three steps: exact metadata, synced data, nothing that Go would deliver twice. After each,
        wait for the ticket, together with those of other queues."""
        cdef DiskPosition position = self.position
        if position.closed:
            return 0
        try:
            if step == 0:
                self.writer.end_batch()
                if position.log is not None:
                    position.log = None     # the log is about to be closed, too
                    position.birth = ""     # its files have all of it from now on
                    position.keep_cursor()
                self.fill_holes()
                return self.writer.request_sync()
            if step == 1:
                position.synced()
                position.drop_meta()
                self.close_files()
                position.sealed_file = -1   # everything is synced
                # Without metadata there is nothing on disk to describe.
                return self.keep_all() if position.meta_text or position.write_file or position.write_position else 0
            return self.close_last()
        except BaseException:
            self.release()
            raise

    cdef uint64_t keep_all(self) except? 0:
        """Write what is known about the records."""
        cdef DiskPosition position = self.position
        cdef OpenFile *file
        cdef uint64_t ticket = 0
        cdef str path = position.prefix + "deferred.dat"
        if self.deadlines is not None:
            position.syncer.keep_file(position.prefix, path)
            try:
                file = self.deadlines.write(path, position.syncer)
            except OSError as error:
                log.error("DISKQUEUE(%s) deferred messages will be due at once - %s", position.name, error.strerror)
            else:
                ticket = position.syncer.request(file)
                drop_file(file)
        elif self.keeps_deadlines:
            position.syncer.remove_later(position.prefix, [path])
        return max(ticket, position.begin_meta())

    cdef uint64_t close_last(self) except? 0:
        cdef DiskPosition position = self.position
        cdef OpenFile *file
        cdef uint64_t ticket = 0
        cdef bint has_changed = position.meta_draft is not None
        try:
            position.end_meta()
            if position.acks is not None and position.unacked == 0:
                position.acks.remove()
                has_changed = True
            elif position.acks is not None and position.acks.finish():
                has_changed = True
                file = position.acks.open(position.syncer)
                if file is not NULL:
                    ticket = position.syncer.request(file)
                    drop_file(file)
            if position.meta_text and has_changed:
                ticket = position.syncer.request_folder(self.writer.data_path)
        finally:
            self.release()
        return ticket

    cpdef int delete_files(self) except -1:
        """Remove all files: the topic or channel is deleted."""
        cdef DiskPosition position = self.position
        self.release()
        position.syncer.health.forget(position.prefix)
        # One more: a batch that was taken back may have left a file.
        files = chain(all_files(position.prefix, self.first_file, position.write_file + 1), position.unread)
        return position.syncer.remove_later(position.prefix, files)

    cdef int close_files(self) except -1:
        cdef DiskPosition position = self.position
        position.syncer.open_queues.pop(self.position, None)
        position.is_open = False
        self.reader.close_reader()
        self.writer.close_output()
        position.tail_dirty = False
        return 0

    cdef int release(self) except -1:
        cdef DiskPosition position = self.position
        position.closed = True
        self.close_files()
        position.acks = position.owner = None
        return 0

    cdef bint close_idle(self) except -1:
        """Close the files; written data is synced or being synced. False: a write or a read is in progress."""
        if self.writer.is_busy() or self.reader.pending is not NULL:
            return False
        try:
            self.position.write_unwritten()
        except OSError:     # the broker's health reports it
            return False
        self.writer.request_sync()
        self.reader.close_reader()
        self.writer.close_output()
        return True

    # For tests and tools, one Python call each.

    @property
    def name(self):
        return self.position.name

    @property
    def depth(self):
        """Unread: not delivered, not taken."""
        return self.reader.depth

    @property
    def unacked(self):
        """Unfinished, whether read or not."""
        return self.position.unacked

    def put(self, bytes body, *, id=1, timestamp_ns=1, attempts=0, taken=False):
        """Call append() with a message."""
        cdef Message *message = message_new(self.reader.account, body, len(body), timestamp_ns, id)
        if message is NULL:
            raise MemoryError
        try:
            return self.writer.append(message, attempts, taken)
        finally:
            message_drop(message)

    def get(self):
        """Return (ordinal, attempts, body, id) or None."""
        cdef uint64_t ordinal = 0
        cdef Message *message = self.reader.pop(&ordinal)
        if message is NULL:
            return None
        try:
            return ordinal, message.attempts, (<char *>message.body)[:message.size], message.id
        finally:
            message_drop(message)

    def finish(self, uint64_t ordinal):
        self.reader.ack(ordinal)
