"""One helper thread that runs fdatasync for all queues, a batch at a time, and reports through an eventfd.

    request(file) ─► pending (batch 8) ─ start_batch() ─► thread: fdatasync each (batch 7) ─► eventfd ─► completed()

Batches run in order, so a ticket (the number of a batch) covers every smaller one too. While one runs, the next
gathers: the slower the disk, the more requests share one flush.
"""

from libc.errno cimport errno
from libc.stdint cimport INT64_MAX, uint64_t, uintptr_t
from libc.stdlib cimport free, realloc
from posix.unistd cimport dup, read

import os
import resource
from collections import OrderedDict, deque
from contextlib import suppress

from nsqfast._ext.core.budget cimport is_spent
from nsqfast._ext.storage.health cimport Health
from nsqfast._ext.storage.diskqueue.segment import note_left

cdef enum:
    # Units for the removal of a file: the clock is read after each.
    REMOVE_UNITS = 64
    # A queue in use has two files open; half of all descriptors are for them.
    OPEN_SHARE = 4
    # A descriptor among the last ones shows that all others are in use.
    SHORT_COUNT = 8


cdef extern from "storage/diskqueue/syncer.h" nogil:
    enum:
        FLUSH_ALL "NSQ_FLUSH_ALL"
    Worker *worker_start "nsq_syncer_start"()
    void worker_submit "nsq_syncer_submit"(Worker *worker, uintptr_t *entries, size_t size)
    ctypedef struct Syncs "struct nsq_syncs":
        uint64_t count
        uint64_t failed_count
        uint64_t time_ns

    Syncs worker_done "nsq_syncer_done"(Worker *worker)
    bint worker_busy "nsq_syncer_busy"(Worker *worker, int *error)
    void worker_wait "nsq_syncer_wait"(Worker *worker, int timeout_ms)
    void worker_stop "nsq_syncer_stop"(Worker *worker)
    bint worker_close_later "nsq_syncer_close_later"(Worker *worker, int fd)
    bint worker_has_room "nsq_syncer_has_room"(Worker *worker)
    OpenFile *share_fd "nsq_file_open"(int fd)


cdef Py_ssize_t descriptor_limit() except -1:
    limit = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    return 1 << 30 if limit == resource.RLIM_INFINITY else limit


cdef class Folder:
    def __dealloc__(self):
        if self.file is not NULL:
            drop_file(self.file)


cdef class Syncer:
    def __cinit__(self, Health health=None):
        self.worker = NULL
        self.pending = NULL
        self.pending_size = 0
        self.pending_capacity = 0
        self.open_ticket = 1
        self.done_ticket = 0
        self.error_errno = 0
        self.health = Health() if health is None else health
        self.on_pending = None
        self.folders = {}
        self.removable = {}
        self.open_queues = OrderedDict()
        self.open_max = max(descriptor_limit() // OPEN_SHARE, 4)
        self.short_from = descriptor_limit() - SHORT_COUNT
        self.lately_opened = -1
        self.failed_ticket = self.all_ticket = 0
        self.waiting = deque()

    def __dealloc__(self):
        self.stop()

    cdef OpenFile *open_file(self, int fd) except NULL:
        """The kernel returns the lowest free number, so a high one tells that descriptors run short. A lower one then
        decreases what is known by one only, since a single descriptor may have become free far below."""
        cdef OpenFile *file = share_fd(fd)
        self.lately_opened = max(<Py_ssize_t> fd, self.lately_opened - 1)
        if file is NULL:
            raise MemoryError
        return file

    cdef uint64_t request(self, OpenFile *file) except 0:
        """Return the ticket whose batch will flush the file. The caller may drop it at once."""
        self.start()
        keep_file(file)
        self.add(file, 0)
        return self.open_ticket

    cdef uint64_t request_folder(self, str path) except 0:
        """The same for the names in a folder."""
        self.open_folder(path)
        return self.request((<Folder> self.folders[path]).file)

    cdef uint64_t request_all(self, str path) except 0:
        """Return the ticket after which everything that a killed process wrote to the folder's file system is on disk;
        once."""
        if self.all_ticket == 0:
            self.open_folder(path)
            self.start()
            keep_file((<Folder> self.folders[path]).file)
            self.add((<Folder> self.folders[path]).file, FLUSH_ALL)
            self.all_ticket = self.open_ticket
        return self.all_ticket

    cdef int open_folder(self, str path) except -1:
        """Open it before descriptors run out."""
        cdef Folder folder
        if path not in self.folders:
            folder = Folder()
            folder.file = self.open_file(os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC))
            self.folders[path] = folder
        return 0

    # Removing

    cdef int remove_later(self, str prefix, object paths) except -1:
        """These files of a queue are not needed any more: remove them in later turns."""
        cdef uint64_t batch = 0 if self.ring is None else self.ring.filling - (self.ring.count == 0)
        self.removable.setdefault(prefix, []).append((batch, iter(paths)))
        if self.on_removable is None:
            return self.remove_now(prefix)
        self.on_removable()
        return 0

    cdef void keep_file(self, str prefix, str path):
        """A new file has this name: do not remove it, whatever was said before."""
        if prefix in self.removable:
            self.removable[prefix] = [(batch, filter(path.__ne__, paths)) for batch, paths in self.removable[prefix]]

    cdef str next_removable(self):
        """Return the prefix of the first that the log has said why of; None: there are none. Without that a start after
        a kill would miss records, and take what is left as it is."""
        for prefix, pieces in self.removable.items():
            # Not the first alone: it may wait for room in the log, and the checkpoint that makes room for the others.
            if self.may_remove(pieces[0][0]):
                return prefix
        return None

    cdef bint may_remove(self, uint64_t batch) noexcept:
        return self.ring is None or self.ring.failed != 0 or self.ring.written >= batch

    cdef bint has_removed(self, uint64_t end):
        """Whether all are gone that batches before this one say are not needed."""
        for pieces in self.removable.values():
            if pieces[0][0] < end:
                return False
        return True

    cdef bint remove_next(self, str prefix, Budget *budget) except -1:
        """False: the part ended first."""
        pieces = self.removable[prefix]
        if not self.remove_some(prefix, pieces[0][1], budget):
            return False
        del self.removable[prefix]
        if len(pieces) > 1:
            self.removable[prefix] = pieces[1:]     # others have waited longer
        return True

    cdef int remove_all(self) except -1:
        for prefix in list(self.removable):
            self.remove_now(prefix)
        return 0

    cdef int remove_now(self, str prefix) except -1:
        """Remove them now, before a new queue of that name creates its own."""
        cdef Budget endless = Budget(0, INT64_MAX)
        for batch, paths in self.removable.pop(prefix, ()):
            if not self.may_remove(batch):
                self.ring.wait(batch, -1)
            while not self.remove_some(prefix, paths, &endless):
                pass
        return 0

    cdef bint remove_some(self, str prefix, object paths, Budget *budget) except -1:
        """False: the part ended first."""
        for path in paths:
            if not self.dispose(path):
                note_left(prefix)
            if is_spent(budget, REMOVE_UNITS) or not self.may_close():
                return False
        return True

    cdef bint dispose(self, str path) except -1:
        """Remove the file; return whether nothing of that name is left. A thread frees its blocks."""
        cdef int fd = -1
        try:
            # With O_PATH even a pipe does not block.
            fd = os.open(path, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC)
        except FileNotFoundError:
            return True
        except OSError:     # no descriptor is left
            pass
        try:
            os.unlink(path)
        except FileNotFoundError:
            return True
        except OSError:
            return False
        finally:
            self.close_later(fd)
        return True

    cdef int rename(self, str draft, str path) except -1:
        """Rename atomically; a thread frees the blocks of the replaced file."""
        cdef int fd = -1
        with suppress(OSError):
            fd = os.open(path, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC)
        try:
            os.rename(draft, path)
        finally:
            self.close_later(fd)
        return 0

    cdef bint may_close(self) noexcept:
        """Whether the thread for it accepts another descriptor; if not, work that leaves some should wait."""
        return self.worker is NULL or worker_has_room(self.worker)

    cdef int close_later(self, int fd) except -1:
        if fd < 0:
            return 0
        with suppress(OSError):     # no thread can be started
            self.start()
        if self.worker is NULL or not worker_close_later(self.worker, fd):
            os.close(fd)
        return 0

    # Batches

    cdef int add(self, OpenFile *file, int how) except -1:
        """Takes a reference over; how: 0 or FLUSH_ALL."""
        if self.pending_size == self.pending_capacity:
            try:
                self.widen()
            except MemoryError:
                drop_file(file)
                raise
        self.pending[self.pending_size] = <uintptr_t>file | <uintptr_t>how
        self.pending_size += 1
        if self.pending_size == 1:
            self.announce()
        return 0

    cdef bint make_room(self) except -1:
        """Called before a file is opened: wait for the files being synced if there are too many, or if descriptors run
        short. Return whether descriptors run short."""
        cdef bint is_short = self.lately_opened >= self.short_from
        cdef bint is_crowded = self.pending_size + self.running_size > <size_t> self.open_max
        if is_short or is_crowded:
            self.wait(self.last_ticket())
        return is_short

    cdef bint is_crowded(self) noexcept:
        """Whether so many files are being synced that optional requests should wait."""
        return self.pending_size + self.running_size > <size_t> self.open_max // 2

    cdef bint has_open(self) noexcept:
        """Whether the open batch must run."""
        return self.pending_size > 0

    cdef bint is_running(self) noexcept:
        """Whether the thread has a batch, or its end was not noticed yet."""
        return self.open_ticket != self.done_ticket + 1

    cdef int announce(self) except -1:
        """The open batch has a request, or will have before it is started."""
        if self.on_pending is not None:
            self.on_pending()
        return 0

    cpdef int start_batch(self) except -1:
        """Start the gathered batch, unless one is still running: then completed() will."""
        self.collect()
        if not self.has_open() or self.is_running():
            return 0
        worker_submit(self.worker, self.pending, self.pending_size)
        self.pending = NULL
        self.running_size = self.pending_size
        self.pending_size = 0
        self.pending_capacity = 0
        self.open_ticket += 1
        return 0

    cpdef int wait(self, uint64_t ticket) except -1:
        """Block until the batch has run; its error, if any, is left for completed()."""
        while not self.wait_some(ticket, -1):
            pass
        return 0

    cdef bint wait_some(self, uint64_t ticket, int timeout_ms) except -1:
        """Block until one more batch has run, or for so long; return whether the ticket's batch has."""
        if self.done_ticket < ticket:
            self.start_batch()
            if self.worker is NULL or (not self.has_open() and self.open_ticket <= ticket):
                raise ValueError(f"ticket {ticket} was never given out")
            with nogil:
                worker_wait(self.worker, timeout_ms)
            self.collect()
        return self.done_ticket >= ticket

    cdef uint64_t last_ticket(self) noexcept:
        """When it is done, all requests are done."""
        return self.open_ticket if self.has_open() else self.open_ticket - 1

    cdef int collect(self) except -1:
        cdef int error = 0
        if not self.is_running() or worker_busy(self.worker, &error):
            return 0
        self.done_ticket += 1
        self.running_size = 0
        if error:
            self.error_errno = self.error_errno or error
            self.failed_ticket = self.done_ticket
            self.health.fail("sync", "data", error)
        elif self.health.is_failing and worker_done(self.worker).count > self.sync_count:
            self.health.synced()
        self.sync_count = worker_done(self.worker).count
        return 0

    def completed(self):
        """Call it when fileno() is readable: returns (all up to this ticket was attempted, '' or an error since the
        last call)."""
        cdef uint64_t rings
        if self.worker is not NULL:
            if read(self.worker.event_fd, &rings, sizeof(rings)) < 0:
                pass    # wait() has already read it
            self.start_batch()
        error, self.error_errno = self.error_errno, 0
        return self.done_ticket, f"sync: {os.strerror(error).lower()}" if error else ""

    def figures(self):
        """Return how many fsyncs the thread has done, how many of them failed, and the seconds they took."""
        if self.worker is NULL:
            return 0, 0, 0.0
        cdef Syncs done = worker_done(self.worker)
        return done.count, done.failed_count, done.time_ns / 1e9

    def fileno(self):
        self.start()
        return self.worker.event_fd

    def close(self):
        """Flush what is pending, end the threads and close the folders; a later request begins anew."""
        if self.worker is not NULL:
            self.wait(self.last_ticket())
        self.waiting = deque()
        self.folders = {}
        self.stop()

    def request_fd(self, int fd):
        """request() for tests."""
        cdef int copy = dup(fd)
        if copy < 0:
            raise OSError(errno, os.strerror(errno))
        cdef OpenFile *file = self.open_file(copy)
        try:
            return self.request(file)
        finally:
            drop_file(file)

    cdef int start(self) except -1:
        if self.worker is NULL:
            self.worker = worker_start()
            if self.worker is NULL:
                raise OSError(errno, os.strerror(errno))
        return 0

    cdef int widen(self) except -1:
        cdef size_t capacity = self.pending_capacity * 2 or 16
        cdef uintptr_t *grown = <uintptr_t *>realloc(self.pending, capacity * sizeof(uintptr_t))
        if grown is NULL:
            raise MemoryError
        self.pending = grown
        self.pending_capacity = capacity
        return 0

    cdef void stop(self) noexcept:
        cdef size_t i
        if self.worker is not NULL:
            with nogil:
                worker_stop(self.worker)
            self.worker = NULL
        for i in range(self.pending_size):
            drop_file(<OpenFile *>(self.pending[i] & ~<uintptr_t>1))
        free(self.pending)
        self.pending = NULL
        self.pending_size = 0
        self.pending_capacity = 0
