"""A clean stop: what a queue holds in memory goes to disk, then all queues are synced and closed.

A message that already has a record on disk is written again behind the others, so that Go, which knows only one read
position, finds it. If that fails, its old record remains; messages without a record are lost then, and counted.

Closing takes three steps (DiskQueue.close_some), each for as many queues as there are descriptors for, before the next
one begins. No file is removed or replaced before the last step: file systems try to place a new file where files were
removed in the last seconds, so each removal makes every later file more expensive.
"""

import os
import resource
from itertools import islice

from nsqfast._ext.core.limits cimport GROUP_COUNT_MAX, GROUP_COUNT_MIN, QUEUE_DESCRIPTORS
from nsqfast._ext.core.message cimport delivery_free
from nsqfast._ext.storage.diskqueue.deferred cimport kept_due
from nsqfast._ext.storage.diskqueue.queue cimport CLOSE_STEPS
from nsqfast._ext.storage.engine cimport take_next

cdef enum:
    # Bytes of messages gathered for one write: a full disk refuses the whole write though some of it may have fitted,
    # and memory full of messages has no room for a second copy of them all.
    CLOSING_SIZE = 65536
    # Queues whose files are synced together, while the next ones are written.
    BATCH_COUNT = 512
    # How often the progress is reported while the disk is slow.
    PROGRESS_MS = 1000


cdef class DiskClosing(Closing):
    """Begins with what is in the queue's memory."""

    def __init__(self, Backlog backlog not None):
        cdef size_t _
        self.backlog = backlog
        self.error = None
        backlog.disk.writer.is_ending = True
        backlog.disk.reader.drop_pending()
        backlog.disk.reader.cold = None
        if backlog.lookup is not None:
            backlog.lookup.drop_pending()
        backlog.disk.writer.begin_batch()
        for _ in range(backlog.memory.size):
            self.add(take_next(backlog))

    cdef int add(self, Delivery *delivery) except -1:
        cdef bint is_only_here = delivery.ordinal == 0
        if self.error is not None:
            self.lose(is_only_here)
            delivery_free(delivery)
            return 0
        self.batch_count += is_only_here
        self.batch_size += delivery.message.size
        self.backlog.store_record(delivery)
        if self.batch_size > CLOSING_SIZE:
            self.end()
            self.backlog.disk.writer.begin_batch()
        return 0

    cdef int add_deferred(self, Delivery *delivery, int64_t due_ns) except -1:
        if self.deadlines is None:
            self.begin_deferred()
        self.deadlines.add(delivery.message.id, kept_due(due_ns, delivery.is_told))
        return self.add(delivery)

    cdef int begin_deferred(self) except -1:
        self.end()
        self.deadlines = Deadlines()
        self.deadlines.head.first_index = self.backlog.disk.position.written
        self.deadlines.head.file = self.backlog.disk.position.write_file
        self.deadlines.head.position = self.backlog.disk.position.write_position
        self.backlog.disk.writer.begin_batch()
        return 0

    cdef int lose(self, int64_t count) except -1:
        """So many could not be written: they are lost, unless the log has them."""
        if self.backlog.log is None:
            self.lost_count += count
        else:
            self.backlog.log.log.keep(self.error)
        return 0

    cdef int end(self) except -1:
        try:
            self.backlog.disk.writer.end_batch()
        except OSError as error:
            self.error = error
            self.lose(self.batch_count)
        self.batch_count = self.batch_size = 0
        self.backlog.disk.deadlines = self.deadlines if self.error is None else None
        return 0


cdef class GroupClosing:
    """Closes the queues of an iterator, a group at a time."""

    def __init__(self, Syncer syncer not None, object on_progress):
        self.syncer = syncer
        self.on_progress = on_progress
        self.errors = []

    cdef list run(self, object queues):
        """Return the errors."""
        size = group_size()
        group = list(islice(queues, size))
        while group:
            self.close_group(group)
            group = list(islice(queues, size))
        self.wait(self.syncer.last_ticket())
        return self.errors

    cdef int close_group(self, list group) except -1:
        cdef int step
        cdef Py_ssize_t before = self.closed_count
        for step in range(CLOSE_STEPS):
            self.close_all(group, step)
        self.closed_count = before + len(group)
        return self.tell()

    cdef int close_all(self, list group, int step) except -1:
        """Take one step; one batch is being synced while the next one is begun."""
        cdef Py_ssize_t first, waiting = 0
        cdef uint64_t ticket, before = 0
        for first in range(0, len(group), BATCH_COUNT):
            ticket = self.close_some(group[first:first + BATCH_COUNT], step)
            self.wait(before)
            self.syncer.start_batch()
            self.synced_count += waiting if step == 0 else 0
            waiting = min(<Py_ssize_t> BATCH_COUNT, len(group) - first)
            before = ticket
        self.wait(before)
        self.synced_count += waiting if step == 0 else 0
        return 0

    cdef uint64_t close_some(self, list queues, int step) except? 0:
        """Return the ticket to wait for."""
        cdef uint64_t ticket = 0
        for queue in queues:
            try:
                if isinstance(queue, Backlog):
                    ticket = max(ticket, (<Backlog> queue).disk.close_some(step))
            except OSError as error:
                self.errors.append(error)
        return ticket

    cdef int wait(self, uint64_t ticket) except -1:
        """Wait, reporting progress however long the disk takes."""
        while not self.syncer.wait_some(ticket, PROGRESS_MS):
            self.tell()
        return self.tell()

    cdef int tell(self) except -1:
        self.on_progress(self.synced_count, self.closed_count)
        return 0


cdef Py_ssize_t group_size():
    """Return for how many queues there are descriptors."""
    limit = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    if limit == resource.RLIM_INFINITY:
        return GROUP_COUNT_MAX
    count = (limit - len(os.listdir("/proc/self/fd"))) // QUEUE_DESCRIPTORS
    return min(max(count, GROUP_COUNT_MIN), GROUP_COUNT_MAX)
