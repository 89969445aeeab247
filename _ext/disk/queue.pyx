"""A queue on disk in go-diskqueue's format, with acknowledgements that survive a kill -9.

diskreader has the reading half, diskwriter the writing half; here it is opened, emptied and closed.
"""

from libc.stdint cimport int64_t, uint64_t

import logging
import os

from nsqfast._ext.core.message cimport Message, message_drop, message_new
from nsqfast._ext.disk.ackfile cimport Place
from nsqfast._ext.disk.deadlines cimport take_deadlines
from nsqfast._ext.disk.recovery cimport Recovered, recover
from nsqfast._ext.disk.segment cimport RECORD_HEADER_SIZE
from nsqfast._ext.disk.syncer cimport OpenFile, Syncer, drop_file
from nsqfast._ext.disk.segment import all_files, data_files, forget_listed

cdef enum:
    # Records in front of the reader that are copied behind it at a clean stop, this many bytes at once.
    COPY_SIZE = 1048576

log = logging.getLogger("nsqd")


cdef class DiskQueue(DiskWriter):
    def __init__(self, str data_path, str name, Syncer syncer, int64_t file_size_max, int64_t sync_every):
        cdef Recovered found
        self.name = name
        self.data_path = data_path or "."
        self.prefix = os.path.join(data_path, name + ".diskqueue.")
        self.syncer = syncer
        self.file_size_max = file_size_max
        self.sync_every = sync_every
        self.postponed_acks = []
        self.left_files = []
        self.sync_file = -1
        self.shifts_before = []
        syncer.remove_doomed(self.prefix)
        found = recover(name, self.prefix)
        self.acks = found.acks
        self.cursor, self.cursor_file, self.cursor_position = found.cursor, found.cursor_file, found.cursor_position
        self.written, self.write_file, self.write_position = found.written, found.write_file, found.write_position
        self.first_file = found.first_file
        self.depth = self.unacked = found.unacked
        self.sealed_file, self.sealed_position = found.sealed_file, found.sealed_position
        self.kept = Place(self.cursor, self.cursor_file, self.cursor_position)
        self.meta_text = self.meta_synced = found.meta_text
        self.closed = False
        self.deadlines = take_deadlines(name, self.prefix + "deferred.dat")
        if self.deadlines is not None and not found.is_whole:
            self.deadlines = None   # another broker, or damage: the records are not where they were
        self.note_sealed()
        syncer.open_folder(self.data_path)
        if found.is_killed:
            self.note_copy(syncer.request_all(self.data_path))
        self.next_read = self.cursor
        self.go_to(self.cursor_file, self.cursor_position)
        if self.cursor == self.written:
            self.advance()
        elif self.depth == 0:
            self.skim()
        if self.acks is not None:
            self.try_meta()
        forget_listed(self.prefix)

    # Finishing

    cpdef int empty(self) except -1:
        """Drop everything, unread or not finished; acks that come later are ignored."""
        cdef int64_t first = self.kept.file, last = self.write_file
        self.gathered_count = self.batch_size = self.later_count = 0
        self.postponed_acks = []
        if self.closed or self.acks is None:
            return 0
        self.close_files()
        self.write_file, self.write_position = self.write_file + 1, 0
        self.cursor = self.written
        self.depth = self.unacked = self.unsynced = 0
        self.cursor_file, self.cursor_position = self.write_file, 0
        self.rewind()
        # Copies are gone with all else.
        self.is_waiting = self.has_new_copies = False
        self.copied_from = 0
        self.kept = Place(self.cursor, self.write_file, 0)
        self.acks.set_cursor(self.cursor, self.write_file, 0)
        self.acks.set_written(self.written, self.write_file, 0)
        self.syncer.doom(self.prefix, data_files(self.prefix, first, last + 1))
        return self.try_meta()

    cdef int fill_holes(self) except -1:
        """Go knows one read position only: copy unfinished records in front of the last finished one to the tail."""
        cdef const char *payload = NULL
        cdef size_t size = 0
        cdef uint64_t end = self.written, index
        cdef list copied = []
        if self.acks is None or not self.acks.count(self.cursor, end):
            return 0
        while not self.acks.test(end - 1):
            end -= 1
        self.rewind()
        self.depth = self.unacked
        while self.next_read < end:
            if not self.peek(&payload, &size):
                if not copied:
                    break
                # Damage is stepped over only while no batch is open.
                copied = self.end_copies(copied)
                continue
            index = self.next_read
            if not self.acks.test(index):
                self.gather(payload, size, NULL, 0, False) if self.in_batch or not self.begin_batch() else 0
                copied.append(index)
            self.step(self.read_position + RECORD_HEADER_SIZE + size)
            if self.batch_size >= COPY_SIZE or self.next_read >= end:
                copied = self.end_copies(copied)
        self.end_copies(copied)
        return self.advance()

    cdef list end_copies(self, list copied):
        """These records stand at the tail as well: there alone from now on."""
        self.note_copy(0)
        self.end_batch()
        for index in copied:
            self.ack_record(index)
        return []

    # Keeping

    cpdef int close(self) except -1:
        """The clean stop, see close_some(); waits for the disk."""
        for step in range(CLOSE_STEPS):
            self.syncer.wait(self.close_some(step))
        return 0

    cpdef uint64_t close_some(self, int step) except? 0:
        """The clean stop in three steps: metadata exact, data synced, nothing that Go would deliver twice. After each
        the ticket is to be waited for, with those of other queues."""
        if self.closed:
            return 0
        try:
            if step == 0:
                self.end_batch()
                self.fill_holes()
                return self.request_sync()
            if step == 1:
                self.synced()
                self.drop_meta()
                self.close_files()
                self.sealed_file = -1   # all is synced
                # Without metadata there is nothing on disk, and nothing to say of it.
                return self.keep_all() if self.meta_text or self.write_file or self.write_position else 0
            return self.close_last()
        except BaseException:
            self.release()
            raise

    cdef uint64_t keep_all(self) except? 0:
        """What is known of the records."""
        cdef OpenFile *file
        cdef uint64_t ticket = 0
        if self.deadlines is not None:
            try:
                file = self.deadlines.write(self.prefix + "deferred.dat")
            except OSError as error:
                log.error("DISKQUEUE(%s) deferred messages will be due at once - %s", self.name, error.strerror)
            else:
                ticket = self.syncer.request(file)
                drop_file(file)
        return max(ticket, self.begin_meta())

    cdef uint64_t close_last(self) except? 0:
        cdef OpenFile *file
        cdef uint64_t ticket = 0
        cdef bint has_changed = self.meta_draft is not None
        try:
            self.end_meta()
            if self.acks is not None and self.unacked == 0:
                self.acks.remove()
                has_changed = True
            elif self.acks is not None and self.acks.finish():
                has_changed = True
                file = self.acks.open()
                if file is not NULL:
                    ticket = self.syncer.request(file)
                    drop_file(file)
            if self.meta_text and has_changed:
                ticket = self.syncer.request_folder(self.data_path)
        finally:
            self.release()
        return ticket

    cpdef int delete_files(self) except -1:
        """The topic or channel is gone: nothing stays."""
        self.release()
        self.syncer.health.forget(self.prefix)
        # One more: what a batch that was taken back may have left.
        return self.syncer.doom(self.prefix, all_files(self.prefix, self.first_file, self.write_file + 1))

    cdef int close_files(self) except -1:
        self.syncer.open_queues.pop(self, None)
        self.is_open = False
        self.close_reader()
        self.close_output()
        self.tail_dirty = False
        return 0

    cdef int release(self) except -1:
        self.closed = True
        self.close_files()
        self.acks = None
        return 0

    def put(self, bytes body, *, id=1, timestamp_ns=1, attempts=0, taken=False):
        """append() for tests and tools."""
        cdef Message *message = message_new(body, len(body), timestamp_ns, id)
        if message is NULL:
            raise MemoryError
        try:
            return self.append(message, attempts, taken)
        finally:
            message_drop(message)
