"""One helper thread that runs fdatasync for everybody, a batch at a time, and reports through an eventfd.

    request(file) ─► pending (batch 8) ─ kick() ─► thread: fdatasync each (batch 7) ─► eventfd ─► completed()

Batches run in order, so a ticket (the number of a batch) covers every smaller one too. While one runs, the next
gathers: the slower the disk, the more requests share one flush.
"""

from libc.errno cimport errno
from libc.stdint cimport uint64_t, uintptr_t
from libc.stdlib cimport free, realloc
from posix.unistd cimport dup, read

import os
from contextlib import suppress

from nsqfast._ext.health cimport Health

cdef enum:
    # A file of up to this size is removed in no time.
    DISPOSE_SIZE = 4194304


cdef extern from "syncer.h" nogil:
    enum:
        DROP "NSQ_DROP"
        FLUSH_ALL "NSQ_FLUSH_ALL"
    Worker *worker_start "nsq_syncer_start"()
    void worker_submit "nsq_syncer_submit"(Worker *worker, uintptr_t *entries, size_t size)
    ctypedef struct Syncs "struct nsq_syncs":
        uint64_t count
        uint64_t failed_count
        uint64_t time_ns

    Syncs worker_done "nsq_syncer_done"(Worker *worker)
    bint worker_busy "nsq_syncer_busy"(Worker *worker, int *error)
    void worker_wait "nsq_syncer_wait"(Worker *worker)
    void worker_stop "nsq_syncer_stop"(Worker *worker)
    OpenFile *share_fd "nsq_file_open"(int fd)


cdef OpenFile *open_file(int fd) except NULL:
    cdef OpenFile *file = share_fd(fd)
    if file is NULL:
        raise MemoryError
    return file


cdef class Folder:
    def __cinit__(self, str path):
        self.file = open_file(os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC))

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
        self.failed_ticket = self.all_ticket = 0
        self.waiting = []

    def __dealloc__(self):
        self.stop()

    cdef uint64_t request(self, OpenFile *file) except 0:
        """The ticket whose batch will flush the file. The caller may drop it at once."""
        self.start()
        keep_file(file)
        self.add(file, 0)
        return self.open_ticket

    cdef uint64_t request_folder(self, str path) except 0:
        """The same for the names in a folder."""
        self.open_folder(path)
        return self.request((<Folder> self.folders[path]).file)

    cdef uint64_t request_all(self, str path) except 0:
        """The ticket behind which all that a killed process wrote to the folder's file system is on disk; once."""
        if self.all_ticket == 0:
            self.open_folder(path)
            self.start()
            keep_file((<Folder> self.folders[path]).file)
            self.add((<Folder> self.folders[path]).file, FLUSH_ALL)
            self.all_ticket = self.open_ticket
        return self.all_ticket

    cdef int open_folder(self, str path) except -1:
        """Before the descriptors are used up."""
        if path not in self.folders:
            self.folders[path] = Folder(path)
        return 0

    cdef int dispose(self, str path) except -1:
        """Remove a file, if it is there; what the kernel has to do for a large one is done by the thread.

        No ticket waits for that: the thread does it behind the flushes of the batch, before it begins the next one.
        """
        cdef int fd = -1
        with suppress(OSError):
            fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        with suppress(OSError):
            os.unlink(path)
        if fd < 0:
            return 0
        if os.fstat(fd).st_size > DISPOSE_SIZE:
            self.start()
            return self.add(open_file(fd), DROP)
        os.close(fd)
        return 0

    cdef int add(self, OpenFile *file, int how) except -1:
        """Takes a reference over; how: 0, DROP or FLUSH_ALL."""
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

    cdef uint64_t promise(self) except 0:
        """The ticket of a request that is still to come, or turns out not to be needed."""
        self.start()
        if not self.has_open():
            self.is_promised = True
            self.announce()
        return self.open_ticket

    cdef bint has_open(self) noexcept:
        """Whether the open batch is to be run."""
        return self.pending_size > 0 or self.is_promised

    cdef bint is_running(self) noexcept:
        """Whether a batch is with the thread, or its end was not noticed yet."""
        return self.open_ticket != self.done_ticket + 1

    cdef int announce(self) except -1:
        """The open batch has something, or will have before it is started."""
        if self.on_pending is not None:
            self.on_pending()
        return 0

    cpdef int kick(self) except -1:
        """Start the gathered batch, unless one is still running: then completed() will."""
        self.collect()
        if not self.has_open() or self.is_running():
            return 0
        worker_submit(self.worker, self.pending, self.pending_size)
        self.pending = NULL
        self.pending_size = 0
        self.pending_capacity = 0
        self.is_promised = False
        self.open_ticket += 1
        return 0

    cpdef int wait(self, uint64_t ticket) except -1:
        """Block until the batch has run; its error, if any, is left for completed()."""
        while self.done_ticket < ticket:
            self.kick()
            if self.worker is NULL or (not self.has_open() and self.open_ticket <= ticket):
                raise ValueError(f"ticket {ticket} was never given out")
            with nogil:
                worker_wait(self.worker)
            self.collect()
        return 0

    cdef int collect(self) except -1:
        cdef int error = 0
        if not self.is_running() or worker_busy(self.worker, &error):
            return 0
        self.done_ticket += 1
        if error:
            self.error_errno = self.error_errno or error
            self.failed_ticket = self.done_ticket
            self.health.fail("sync", "data", error)
        elif self.health.is_failing and worker_done(self.worker).count > self.sync_count:
            self.health.synced()
        self.sync_count = worker_done(self.worker).count
        return 0

    def completed(self):
        """When fileno() is readable: (all up to this ticket was attempted, '' or an error since the last call)."""
        cdef uint64_t rings
        if self.worker is not NULL:
            if read(self.worker.event_fd, &rings, sizeof(rings)) < 0:
                pass    # Nothing rang: wait() has collected it before us.
            self.kick()
        error, self.error_errno = self.error_errno, 0
        return self.done_ticket, f"sync: {os.strerror(error).lower()}" if error else ""

    def figures(self):
        """How many fsyncs the thread has done, how many of them failed, and the seconds they took."""
        if self.worker is NULL:
            return 0, 0, 0.0
        cdef Syncs done = worker_done(self.worker)
        return done.count, done.failed_count, done.time_ns / 1e9

    def fileno(self):
        self.start()
        return self.worker.event_fd

    def close(self):
        """Flush what is pending and end the thread; a later request starts a new one."""
        if self.worker is not NULL:
            self.wait(self.open_ticket if self.has_open() else self.open_ticket - 1)
        self.waiting = []
        self.stop()

    def request_fd(self, int fd):
        """request() for tests."""
        cdef int copy = dup(fd)
        if copy < 0:
            raise OSError(errno, os.strerror(errno))
        cdef OpenFile *file = open_file(copy)
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
            drop_file(<OpenFile *>(self.pending[i] & ~<uintptr_t>3))
        free(self.pending)
        self.pending = NULL
        self.pending_size = 0
        self.pending_capacity = 0
