"""The writing half of a queue on disk: it gathers, writes and counts batches of records.

Every change is made in the order: data, ack file, metadata; each step alone leaves a folder that opens without loss.
With a commit log single records are written together with the others of their turn: a start has them from the log.
"""

from libc.errno cimport EBADF, EINTR, errno
from libc.stdint cimport int64_t, uint32_t, uint64_t
from libc.stdlib cimport free, realloc
from libc.string cimport memcpy
from posix.stat cimport fstat, struct_stat
from posix.unistd cimport ftruncate, pwrite

import logging
import os
from contextlib import suppress

from nsqfast._ext.core.limits cimport MESSAGE_HEADER_SIZE
from nsqfast._ext.core.memory cimport MEMORY_AMPLE
from nsqfast._ext.core.message cimport Message, message_put_record, put_be32
from nsqfast._ext.storage.diskqueue.ackfile cimport AckFile
from nsqfast._ext.storage.diskqueue.hollow cimport is_hollow, seal
from nsqfast._ext.storage.diskqueue.reader import remove
from nsqfast._ext.storage.diskqueue.segment cimport RECORD_HEADER_SIZE, RECORD_SIZE_MIN
from nsqfast._ext.storage.diskqueue.segment import segment_path
from nsqfast._ext.storage.diskqueue.syncer cimport OpenFile, drop_file

cdef enum:
    # A larger batch buffer is freed after use.
    BATCH_KEEP_MAX = 1048576
    # The same when memory is short.
    BATCH_KEEP_SHORT = 65536
    # With a log a smaller record is written at the end of its turn.
    LATER_MAX = 16384
    # With a log an fsync after so much spreads what a checkpoint would have to write; more of them hold up the log.
    SPREAD_SIZE = 4194304


log = logging.getLogger("nsqd")


cdef class LeftFile:
    """An earlier file of the batch."""

    @staticmethod
    cdef LeftFile of(int64_t file_number, OpenFile *file):
        cdef LeftFile left = LeftFile()
        left.file_number, left.file = file_number, file
        return left

    def __dealloc__(self):
        if self.file is not NULL:
            drop_file(self.file)

    cdef OpenFile *take(self) noexcept:
        file, self.file = self.file, NULL
        return file


cdef class DiskWriter:
    def __init__(self, DiskPosition position not None, DiskReader reader not None, str data_path,
                 int64_t file_size_max, int64_t sync_every):
        self.position = position
        self.reader = reader
        self.data_path = data_path
        self.file_size_max = file_size_max
        self.sync_every = sync_every
        self.sync_file = -1
        self.left_files = []

    def __dealloc__(self):
        if self.output is not NULL:
            drop_file(self.output)
        free(self.batch)
        free(self.gathered)

    # Writing

    cdef uint64_t append(self, Message *message, uint32_t tries, bint taken) except 0:
        return self.gather(NULL, MESSAGE_HEADER_SIZE + <size_t>message.size, message, tries, taken)

    cdef uint64_t move(self, uint64_t ordinal, Message *message, uint32_t tries, bint taken) except 0:
        """Write the record again at the tail and finish the old one. A kill in between leaves one of the two."""
        cdef DiskPosition position = self.position
        cdef uint64_t moved, index = ordinal - self.reader.shift if ordinal >= self.reader.shift_from else 0
        position.note_copy(0)
        if position.in_batch or position.acks is None or index == 0:
            moved = self.append(message, tries, taken)
            self.reader.ack(ordinal)
            return moved
        position.acks.begin_move(index, position.written)
        try:
            moved = self.append(message, tries, taken)
            self.reader.ack(ordinal)
        finally:
            position.acks.end_move()
        return moved

    cdef uint64_t gather(self, const char *payload, size_t size, Message *message, uint32_t tries,
                         bint taken) except 0:
        """Add one record to the batch, from a message or from stored bytes; write it at once if no batch is open."""
        cdef uint64_t ordinal = self.add(payload, size, message, tries, taken)
        if not self.position.in_batch:
            self.is_single = True
            try:
                self.commit()
            finally:
                self.is_single = False
        return ordinal

    cdef uint64_t add(self, const char *payload, size_t size, Message *message, uint32_t tries,
                      bint taken) except 0:
        if self.position.closed:
            raise OSError(EBADF, "exiting")
        cdef char *out = self.room(RECORD_HEADER_SIZE + size)
        put_be32(out, size)
        if payload is not NULL:
            memcpy(out + RECORD_HEADER_SIZE, payload, size)
        else:
            message_put_record(message, tries, out + RECORD_HEADER_SIZE)
            memcpy(out + RECORD_SIZE_MIN, message.body, message.size)
        self.gathered[self.gathered_count].size = RECORD_HEADER_SIZE + size
        self.gathered[self.gathered_count].taken = taken
        cdef uint64_t ordinal = self.position.written + self.gathered_count + self.reader.shift
        self.gathered_count += 1
        self.batch_size += RECORD_HEADER_SIZE + size
        return ordinal

    cdef char *room(self, size_t size) except NULL:
        cdef size_t capacity = self.batch_capacity or 4096
        if self.gathered_count == self.gathered_capacity:
            self.gathered = <Gathered *>grow(self.gathered, (self.gathered_capacity * 2 or 16) * sizeof(Gathered))
            self.gathered_capacity = self.gathered_capacity * 2 or 16
        while capacity < self.batch_size + size:
            capacity *= 2
        if capacity != self.batch_capacity:
            self.batch = <char *>grow(self.batch, capacity)
            self.batch_capacity = capacity
        return self.batch + self.batch_size

    cpdef int begin_batch(self) except -1:
        """Until end_batch(), gather appends and postpone acks."""
        self.position.in_batch = True
        return 0

    cpdef int end_batch(self) except -1:
        """Write what was gathered; OSError: nothing of it was written, and no postponed ack is done."""
        cdef DiskPosition position = self.position
        postponed, position.postponed_acks = position.postponed_acks, []
        position.in_batch = False
        self.commit()
        for ordinal in postponed:
            self.reader.ack(ordinal)
        return 0

    cdef int commit(self) except -1:
        """write() and confirm() in one."""
        self.write()
        return self.confirm()

    cdef int write(self) except -1:
        """Write the batch to its files, where it stays unpublished until confirm(). OSError: nothing of it is there."""
        if self.gathered_count == 0 or self.position.closed:
            return 0
        try:
            return self.store()
        except BaseException:
            self.revoke()
            raise

    cdef int store(self) except -1:
        if self.unsynced == 0 and (is_removed(self.output.fd) if self.output is not NULL else self.is_missing()):
            self.leave_output()
        self.batch_file, self.batch_position = self.position.write_file, self.position.write_position
        self.is_written = True
        self.prepare()
        return self.write_all()

    cdef int confirm(self) except -1:
        """Publish what was written."""
        if not self.is_written:
            return self.drop_batch()
        try:
            self.count_records(self.batch_file, self.batch_position)
        except BaseException:
            self.revoke()
            raise
        self.drop_batch()
        return self.after_write()

    cdef int revoke(self) except -1:
        """Drop the batch, written or not."""
        if self.is_written:
            self.undo(self.batch_file, self.batch_position)
        return self.drop_batch()

    cdef int drop_batch(self) except -1:
        self.is_written = self.position.in_batch = False
        self.gathered_count = self.batch_size = 0
        cdef size_t kept_max = BATCH_KEEP_MAX if self.reader.account.level == MEMORY_AMPLE else BATCH_KEEP_SHORT
        if self.batch_capacity > kept_max:
            free(self.batch)
            self.batch = NULL
            self.batch_capacity = 0
        return 0

    cdef int prepare(self) except -1:
        """Do everything that may fail before the first byte is written."""
        cdef DiskPosition position = self.position
        cdef OpenFile *file
        if position.acks is None:
            position.acks = AckFile(position.prefix + "acks.dat")
            position.acks.set_written(position.written, position.write_file, position.write_position)
            position.acks.set_cursor(position.cursor, position.cursor_file, position.cursor_position)
            position.note_sealed()
            position.meta_text = ""
        position.acks.reserve(position.written + self.gathered_count)
        position.acks.clear(position.written, position.written + self.gathered_count)
        if not position.acks.is_synced:
            # A new ack file: after a power failure its header has what the metadata may have lost.
            file = position.acks.open(position.syncer)
            if file is not NULL:
                position.syncer.request(file)
                drop_file(file)
            position.acks.is_synced = True
        if self.output is NULL:
            self.open_write_file(False)
        if position.tail_dirty:
            self.truncate_output()
        if not position.meta_text or position.sealed_file < 0:
            # Before the first record: without metadata Go would overwrite the file.
            if position.sealed_file < 0:
                position.sealed_file, position.sealed_position = position.write_file, position.write_position
                position.note_sealed()
            if self.is_ending and not position.meta_text and position.written == 1:
                return 0    # the stop writes the final one; until then the files are read without it
            file = position.put_meta()
            try:
                self.sync_ticket = position.syncer.request(file)
            finally:
                drop_file(file)
            self.sync_file = -1     # that ticket does not cover the data
            position.meta_synced = position.meta_text
        return 0

    cdef int open_write_file(self, bint fresh) except -1:
        cdef DiskPosition position = self.position
        position.note_open()
        path = segment_path(position.prefix, position.write_file)
        self.new_entry = self.new_entry or fresh or not os.path.exists(path)
        try:
            fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | (os.O_TRUNC if fresh else 0), 0o600)
        except OSError as error:
            raise position.syncer.health.fail("open", path, error.errno) from None
        self.output = position.syncer.open_file(fd)
        self.synced_position = position.write_position
        return 0

    cdef int write_all(self) except -1:
        """Use one write for each file of the batch, usually one."""
        cdef size_t i, start = 0, end = 0
        for i in range(self.gathered_count):
            if self.is_file_full(self.position.write_position + end - start, self.gathered[i].size):
                self.write_run(self.batch + start, end - start)
                self.open_next_file()
                start = end
            if is_hollow(self.batch + end, self.gathered[i].size, self.position.write_position + end - start):
                seal(self.batch + end, self.gathered[i].size)
            end += self.gathered[i].size
        return self.write_run(self.batch + start, end - start)

    cdef bint is_file_full(self, int64_t position, int64_t size) noexcept:
        return position > 0 and position + size > self.file_size_max

    cdef int write_run(self, const char *data, size_t size) except -1:
        cdef DiskPosition position = self.position
        cdef ssize_t done
        if self.is_single and position.log is not None and size < LATER_MAX and not self.is_ending:
            return position.write_later(self.output.fd, data, size)
        position.write_unwritten()
        while size:
            done = pwrite(self.output.fd, data, size, position.write_position)
            if done < 0:
                if errno == EINTR:
                    continue
                raise position.syncer.health.fail("write", segment_path(position.prefix, position.write_file), errno)
            data += done
            size -= done
            position.syncer.health.written_bytes += <uint64_t> done
            position.write_position += done
        return 0

    cdef int open_next_file(self) except -1:
        """Continue in the next file. The previous one stays open until the batch is published: it may have to be
        undone."""
        cdef DiskPosition position = self.position
        position.write_unwritten()
        self.left_files.append(LeftFile.of(position.write_file, self.output))
        self.output = NULL
        position.write_file += 1
        position.write_position = 0
        return self.open_write_file(True)

    cdef bint is_missing(self) except -1:
        """Whether the write file was removed while it was closed."""
        cdef DiskPosition position = self.position
        return position.write_position > 0 and not os.path.exists(segment_path(position.prefix, position.write_file))

    cdef int leave_output(self) except -1:
        """The file was removed: what is still written to it disappears with the process."""
        cdef DiskPosition position = self.position
        log.error("DISKQUEUE(%s) %s was removed, going on in the next file", position.name,
                  segment_path(position.prefix, position.write_file))
        self.close_output()
        position.write_file += 1
        position.write_position = 0
        position.tail_dirty = True  # something may have the next name
        return 0

    cdef int undo(self, int64_t file, int64_t position) except -1:
        """Restore the state before the batch."""
        cdef LeftFile left
        self.position.drop_unwritten(self.position.unwritten_size if self.left_files
                                     else <size_t> (self.position.write_position - position))
        while self.left_files:
            if self.output is not NULL:
                self.close_output()
                remove(segment_path(self.position.prefix, self.position.write_file))
            left = self.left_files.pop()
            self.position.write_file, self.output = left.file_number, left.take()
        self.position.write_file, self.position.write_position = file, position
        if self.output is not NULL:
            self.position.tail_dirty = True
            with suppress(OSError):     # prepare() tries again before the next write
                self.truncate_output()
        return 0

    cdef int truncate_output(self) except -1:
        cdef DiskPosition position = self.position
        if ftruncate(self.output.fd, position.write_position):
            raise position.syncer.health.fail("truncate", segment_path(position.prefix, position.write_file), errno)
        position.tail_dirty = False
        return 0

    cdef int count_records(self, int64_t file, int64_t position) except -1:
        """Count the batch, which is in the files."""
        cdef size_t i
        cdef uint64_t index = self.position.written
        if self.reader.read_file == file and self.reader.read_file < self.position.write_file:
            self.reader.read_end = position
        for i in range(self.gathered_count):
            if self.is_file_full(position, self.gathered[i].size):
                file += 1
                position = 0
            if self.gathered[i].taken:
                self.reader.take(index, file, position, position + self.gathered[i].size)
            else:
                self.reader.depth += 1
            position += self.gathered[i].size
            if file == self.reader.read_file:
                self.reader.read_end = position
            index += 1
        self.position.unacked += self.gathered_count
        self.unsynced += self.gathered_count
        self.position.written = index
        self.position.acks.set_written(index, self.position.write_file, self.position.write_position)
        if self.position.syncer.health.is_failing:
            self.position.syncer.health.wrote(self.position.prefix)
        return 0

    cdef int after_write(self) except -1:
        """Do what follows a write; none of it can undo the write."""
        cdef DiskPosition position = self.position
        cdef LeftFile left
        try:
            if self.left_files:
                for left in self.left_files:
                    self.sync_ticket = position.syncer.request(left.file)
                self.left_files = []
                self.sync_file = -1
                position.try_meta()
            self.reader.skip_taken()
            if self.reader.read_file < position.write_file and self.reader.read_position >= self.reader.read_end:
                self.reader.leave_read_files()
                if position.cursor == self.reader.next_read:
                    position.move_cursor(self.reader.read_file, self.reader.read_position)
            if self.has_much_unsynced():
                self.request_sync()
        except OSError as error:
            log.error("DISKQUEUE(%s) failed to sync - %s", position.name, error)
        return 0

    cdef bint has_much_unsynced(self) noexcept:
        if self.position.log is not None:
            return self.position.write_position - self.synced_position >= SPREAD_SIZE
        return 0 < self.sync_every <= self.unsynced

    cpdef uint64_t request_sync(self) except? 0:
        """Return the ticket that covers everything appended so far; 0: there was nothing."""
        cdef DiskPosition position = self.position
        position.write_unwritten()
        if self.unsynced and self.output is not NULL:
            if self.sync_ticket != position.syncer.open_ticket or self.sync_file != position.write_file:
                self.sync_ticket = position.syncer.request(self.output)
                self.sync_file = position.write_file
            self.synced_position = position.write_position
            if self.new_entry:
                self.sync_ticket = position.syncer.request_folder(self.data_path)
                self.new_entry = False
            self.unsynced = 0
        if position.has_new_copies:
            position.has_new_copies = False
            position.copied_ticket = max(position.copied_ticket, self.sync_ticket)
            if position.is_waiting and position.wait_ticket == 0:
                position.wait_ticket = self.sync_ticket
        return self.sync_ticket

    cdef bint is_busy(self) noexcept:
        """Whether a write is in progress, so that its files must stay open."""
        return self.is_written or len(self.left_files) > 0

    cdef int close_output(self) except -1:
        self.position.drop_unwritten(self.position.unwritten_size)
        if self.output is not NULL:
            drop_file(self.output)
            self.output = NULL
        return 0


cdef bint is_removed(int fd) noexcept:
    """Whether the file has no name any more."""
    cdef struct_stat status
    return fstat(fd, &status) == 0 and status.st_nlink == 0


cdef void *grow(void *block, size_t size) except NULL:
    cdef void *grown = realloc(block, size)
    if grown is NULL:
        raise MemoryError
    return grown
