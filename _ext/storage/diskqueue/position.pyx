"""Where a queue on disk begins and ends, and what its ack file and metadata say about that.

Files before the cursor are removed. A record that was written again at the tail, or passed on to other queues, is
finished here, but a power failure may lose the copy. So the ack file and the metadata keep the old cursor, and files
stay, until all earlier copies are synced. A kill -9 loses no copy, and the ack file's bits tell which records before
the real cursor are finished.
"""

from libc.errno cimport EINTR, errno
from libc.stdint cimport int64_t, uint64_t
from libc.stdlib cimport free, realloc
from libc.string cimport memcpy, memmove
from posix.unistd cimport pwrite

import logging
import os

from nsqfast._ext.storage.diskqueue.recovery cimport draft_meta, install_meta, meta_of
from nsqfast._ext.storage.diskqueue.recovery import LOG_LINE
from nsqfast._ext.storage.diskqueue.segment import data_files, segment_path
from nsqfast._ext.storage.diskqueue.syncer cimport Syncer, drop_file

log = logging.getLogger("nsqd")


cdef enum:
    # When too many queues have their files open, one in so many closes them at once,
    CLOSE_SHARE = 8
    # and one in so many when descriptors run short.
    SHORT_SHARE = 2
    # When nearly too many have (so little of the limit is left), at most CLOSE_MAX close theirs at once.
    FREE_SHARE = 4
    CLOSE_MAX = 32
    # Bytes that are written at the latest, and the least size of their buffer.
    UNWRITTEN_MAX = 262144
    UNWRITTEN_MIN = 4096


cdef class FileOwner:

    cdef bint close_idle(self) except -1:
        """Close the data files, which are opened again when needed; False: not now."""
        raise AssertionError("a FileOwner without close_idle")


cdef class DiskPosition:
    """Shared by the reader, the writer and the queue that owns them. `owner` is None once the queue is closed."""

    def __init__(self, FileOwner owner, str name, str prefix, Syncer syncer):
        self.owner = owner
        self.name = name
        self.prefix = prefix
        self.syncer = syncer
        self.closed = True
        self.birth = ""
        self.postponed_acks = []
        self.unread = []

    def __dealloc__(self):
        free(self.unwritten)

    cdef int open(self, Recovered found) except -1:
        """Begin with what was found in the folder."""
        self.acks = found.acks
        self.cursor, self.cursor_file, self.cursor_position = found.cursor, found.cursor_file, found.cursor_position
        self.written, self.write_file, self.write_position = found.written, found.write_file, found.write_position
        self.unacked = found.unacked
        self.sealed_file, self.sealed_position = found.sealed_file, found.sealed_position
        self.kept = Place(self.cursor, self.cursor_file, self.cursor_position)
        self.meta_text = self.meta_synced = found.meta_text
        self.closed = False
        return 0

    # Descriptors

    cdef int note_open(self) except -1:
        """A data file is being opened; if many are open, or descriptors run short, those opened first are closed until
        they are needed. If only nearly too many are open, nobody waits for that."""
        cdef DiskPosition other
        cdef object queues = self.syncer.open_queues
        cdef bint is_short = self.syncer.make_room()
        cdef bint is_full
        cdef size_t before = self.syncer.pending_size
        if not self.is_open:
            self.is_open = True
            queues[self] = None
        elif not is_short:
            return 0
        is_full = is_short or len(queues) > self.syncer.open_max
        if not is_full and (self.syncer.is_crowded()
                            or len(queues) <= self.syncer.open_max - self.syncer.open_max // FREE_SHARE):
            return 0
        count = 1 + len(queues) // (SHORT_SHARE if is_short else CLOSE_SHARE)
        for _ in range(count if is_full else min(count, CLOSE_MAX)):
            other = queues.popitem(False)[0]
            other.is_open = other is self or not other.owner.close_idle()
            if other.is_open:
                queues[other] = None
        if is_full and self.syncer.pending_size > before:
            # A file stays open until it is synced.
            self.syncer.wait(self.syncer.last_ticket())
        return 0

    # What is not in the write file yet

    cdef int write_later(self, int fd, const char *data, size_t size) except -1:
        cdef size_t capacity = self.unwritten_capacity or <size_t> UNWRITTEN_MIN
        cdef char *grown
        if self.unwritten_size and self.unwritten_size + size > UNWRITTEN_MAX:
            self.write_unwritten()
        while capacity < self.unwritten_size + size:
            capacity *= 2
        if capacity != self.unwritten_capacity:
            grown = <char *> realloc(self.unwritten, capacity)
            if grown is NULL:
                raise MemoryError
            self.unwritten, self.unwritten_capacity = grown, capacity
        if self.unwritten_size == 0:
            self.log.log.want_writing(self)
        memcpy(self.unwritten + self.unwritten_size, data, size)
        self.unwritten_size += size
        self.unwritten_fd = fd
        self.write_position += <int64_t> size
        return 0

    cdef int write_unwritten(self) except -1:
        cdef ssize_t done
        while self.unwritten_size:
            done = pwrite(self.unwritten_fd, self.unwritten, self.unwritten_size,
                          self.write_position - <int64_t> self.unwritten_size)
            if done < 0 and errno == EINTR:
                continue
            if done < 0:
                raise self.syncer.health.fail("write", segment_path(self.prefix, self.write_file), errno)
            self.syncer.health.written_bytes += <uint64_t> done
            self.unwritten_size -= <size_t> done
            memmove(self.unwritten, self.unwritten + done, self.unwritten_size)
        free(self.unwritten)
        self.unwritten = NULL
        self.unwritten_capacity = 0
        return 0

    cdef void drop_unwritten(self, size_t size) noexcept:
        self.unwritten_size -= min(size, self.unwritten_size)

    # The cursor

    cdef int move_cursor(self, int64_t file, int64_t position) except -1:
        self.cursor_file = file
        self.cursor_position = position
        if self.log is not None:
            # The files stay as the last checkpoint saw them.
            self.log.log.has_old_files = self.log.log.has_old_files or self.kept.file < file
            return 0
        if self.copied_from or self.is_waiting or self.acks is None or self.kept.file < file:
            return self.keep_cursor()
        # The usual case: there are no copies, and no file ends here.
        self.kept.index, self.kept.file, self.kept.position = self.cursor, file, position
        self.acks.set_cursor(self.cursor, file, position)
        return 0

    cdef int note_copy(self, uint64_t ticket) except -1:
        """A record was copied and may be finished now: for good with that ticket, or (0) the next one of this queue."""
        if self.copied_from == 0:
            self.copied_from = ticket or self.syncer.open_ticket
        if ticket:
            self.copied_ticket = max(self.copied_ticket, ticket)
        else:
            self.has_new_copies = True
        return 0

    cdef bint has_failed(self) noexcept:
        """Whether a flush failed that copies waited for. The kernel marks pages clean that it could not write (Rebello
        et al., ATC 2020), so no later flush proves that they are on disk: the originals are delivered again after a
        restart."""
        return self.copied_from != 0 and self.syncer.failed_ticket >= self.copied_from

    cdef bint are_copies_kept(self) noexcept:
        """Whether all copies made so far are on disk."""
        if self.copied_from == 0:
            return True
        if self.has_new_copies or self.syncer.done_ticket < self.copied_ticket or self.has_failed():
            return False
        self.copied_from = 0
        return True

    cdef int keep_cursor(self) except -1:
        """Keep the cursor, now or as soon as its copies allow."""
        cdef Place place = Place(self.cursor, self.cursor_file, self.cursor_position)
        if self.is_waiting or self.log is not None:
            return 0
        if self.acks is None or self.are_copies_kept():
            return self.keep(place)
        self.next_kept = place
        self.wait_ticket = 0 if self.has_new_copies else self.copied_ticket
        self.is_waiting = True
        self.syncer.waiting.append(self)
        return 0

    cdef int keep(self, Place place) except -1:
        cdef int64_t first = self.kept.file
        self.kept = place
        if self.acks is not None:
            self.acks.set_cursor(place.index, place.file, place.position)
        if first < place.file:
            self.syncer.remove_later(self.prefix, data_files(self.prefix, first, place.file))
            self.try_meta()
        return 0

    cdef bint synced(self) except -1:
        """A batch is done: keep the cursor if its copies allow, and wait for those it has passed since. Return whether
        there is something to wait for."""
        if not self.is_waiting or self.closed:
            return False
        if self.wait_ticket == 0 or self.syncer.done_ticket < self.wait_ticket:
            return True
        if self.has_failed():
            log.error("DISKQUEUE(%s) positions stay as they are until the next start, since a sync failed", self.name)
            return False
        self.is_waiting = False
        self.copied_from = self.wait_ticket + 1
        self.keep(self.next_kept)
        if self.are_copies_kept():
            self.keep_cursor()
            return False
        # As far as it has advanced meanwhile.
        self.next_kept = Place(self.cursor, self.cursor_file, self.cursor_position)
        self.wait_ticket = 0 if self.has_new_copies else self.copied_ticket
        self.is_waiting = True
        return True

    cdef int log_places(self) except -1:
        """What the log knows of the files is not true any more: this is."""
        if self.log is None:
            return 0
        return self.log.place(Place(self.cursor, self.cursor_file, self.cursor_position),
                              Place(self.written, self.write_file, self.write_position))

    cdef uint64_t kept_behind(self) noexcept:
        """How many records the kept cursor is behind the real one."""
        return self.cursor - self.kept.index

    # Keeping

    cdef list meta_now(self):
        return [self.unacked, self.kept.file, self.kept.position, self.write_file, self.write_position]

    cdef str text_of(self, list numbers):
        """The metadata file's content; lines from the fourth on are ours, Go's nsqd neither reads nor writes them."""
        text = meta_of(numbers)
        if self.sealed_file >= 0:
            text += f"sealed {self.sealed_file},{self.sealed_position}\n"
        return text + self.birth + LOG_LINE if self.was_logged else text

    cdef int note_sealed(self) except -1:
        """Store it in the ack file as well, in case a power failure takes the metadata."""
        if self.acks is not None and self.sealed_file >= 0:
            self.acks.set_sealed(self.sealed_file, self.sealed_position)
        return 0

    cdef bint is_meta_due(self):
        return not self.closed and self.meta_synced != self.text_of(self.meta_now())

    cpdef uint64_t begin_meta(self) except? 0:
        """Draft the metadata and have it synced; call end_meta after that ticket. 0: it would not change."""
        cdef OpenFile *file
        numbers = self.meta_now()
        if self.meta_draft is not None or not self.is_meta_due():
            return 0
        draft = self.prefix + "meta.dat.1.tmp"
        self.syncer.make_room()
        try:
            file = draft_meta(draft, self.text_of(numbers), self.syncer)
        except OSError as error:
            raise self.syncer.health.fail("write", draft, error.errno) from None
        try:
            ticket = self.syncer.request(file)
        finally:
            drop_file(file)
        self.meta_draft = numbers
        return ticket

    cpdef int end_meta(self) except -1:
        """Install the draft, unless newer metadata was written meanwhile: positions never go back."""
        if self.meta_draft is not None and not self.closed:
            install_meta(self.prefix + "meta.dat.1.tmp", self.prefix, self.meta_draft, self.acks, self.syncer)
            self.meta_text = self.meta_synced = self.text_of(self.meta_draft)
            self.meta_draft = None
        return 0

    cpdef int drop_meta(self) except -1:
        """Drop the draft. That of a closed queue went with its files: another queue may have the name now."""
        if self.meta_draft is not None:
            self.meta_draft = None
            if not self.closed:
                os.unlink(self.prefix + "meta.dat.1.tmp")
        return 0

    cdef OpenFile *put_meta(self) except NULL:
        """Write the metadata file at once. It is not synced: it survives a kill, and if a power failure damages it, no
        message is lost, since all files are read then. The caller drops the file."""
        cdef OpenFile *file
        self.drop_meta()
        numbers, draft = self.meta_now(), self.prefix + "meta.dat.0.tmp"
        try:
            file = draft_meta(draft, self.text_of(numbers), self.syncer)
            try:
                # Often done when descriptors run short: so none is kept for the old file.
                install_meta(draft, self.prefix, numbers, self.acks, None)
            except BaseException:
                drop_file(file)
                raise
        except OSError as error:
            raise self.syncer.health.fail("write", self.prefix + "meta.dat", error.errno) from None
        self.meta_text = self.text_of(numbers)
        self.meta_synced = ""
        return file

    cdef int try_meta(self) except -1:
        """Write it if it would change. Old metadata loses nothing: it can be written later."""
        if self.closed or self.meta_text == self.text_of(self.meta_now()):
            return 0
        try:
            drop_file(self.put_meta())
        except OSError as error:
            log.error("DISKQUEUE(%s) failed to sync - %s", self.name, error.strerror)
        return 0

    def sync_meta(self):
        """For tests: do what a tick does, waiting for the disk."""
        self.syncer.wait(self.begin_meta())
        self.synced()
        self.end_meta()
