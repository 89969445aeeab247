"""A clean stop of all queues: their memory is written, everything is synced, and their files are closed.

This takes three steps (DiskQueue.close_some), each for as many queues as there are descriptors for, before the next one
begins. No file is removed or replaced before the last step: file systems try to place a new file where files were
removed in the last seconds, so each removal makes every later file more expensive.
"""

from libc.stdint cimport int64_t, uint64_t

import os
import resource
from itertools import islice

from nsqfast._ext.broker.channel cimport Channel
from nsqfast._ext.broker.topic cimport Topic
from nsqfast._ext.core.limits cimport GROUP_COUNT_MAX, GROUP_COUNT_MIN, LOST_SHOWN, QUEUE_DESCRIPTORS
from nsqfast._ext.storage.diskqueue.backlog cimport Backlog
from nsqfast._ext.storage.diskqueue.flush cimport Flush
from nsqfast._ext.storage.diskqueue.queue cimport CLOSE_STEPS

cdef enum:
    # Queues whose files are synced together, while the next ones are written.
    BATCH_COUNT = 512
    # How often the progress is reported while the disk is slow.
    PROGRESS_MS = 1000


cdef class Shutdown:
    def __init__(self, Storage storage not None, list topics not None, object on_progress):
        cdef Topic topic
        self.storage = storage
        self.topics = topics
        self.on_progress = on_progress
        for topic in topics:
            self.count += 1 + len(topic.channel_list)
        self.flushes = []
        self.errors = []

    def run(self):
        """Return an OSError that says in one line what was lost, or None."""
        queues = self.flush_all()
        size = group_size()
        group = list(islice(queues, size))
        while group:
            self.close_group(group)
            group = list(islice(queues, size))
        self.wait(self.storage.syncer.last_ticket())
        return self.losses()

    def flush_all(self):
        """Yield the backlogs, each after its queue's memory was written."""
        cdef Topic topic
        cdef Channel channel
        for topic in self.topics:
            topic.complete()
            for channel in topic.channels():
                self.flushes.append((f"{topic.name}:{channel.name}", channel.flush()))
                yield channel.backlog
            self.flushes.append((topic.name, topic.flush()))
            yield topic.backlog
            self.tell()

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
            self.storage.syncer.start_batch()
            self.synced_count += waiting if step == 0 else 0
            waiting = min(<Py_ssize_t> BATCH_COUNT, len(group) - first)
            before = ticket
        self.wait(before)
        self.synced_count += waiting if step == 0 else 0
        return 0

    cdef uint64_t close_some(self, list queues, int step) except? 0:
        """Return the ticket to wait for."""
        cdef Backlog backlog
        cdef uint64_t ticket = 0
        for backlog in queues:
            try:
                ticket = max(ticket, backlog.close_some(step))
            except OSError as error:
                self.errors.append(error)
        return ticket

    cdef int wait(self, uint64_t ticket) except -1:
        """Wait, reporting progress however long the disk takes."""
        while not self.storage.syncer.wait_some(ticket, PROGRESS_MS):
            self.tell()
        return self.tell()

    cdef int tell(self) except -1:
        if self.on_progress is not None:
            self.on_progress(self.count, self.synced_count, self.closed_count)
        return 0

    cdef object losses(self):
        """Return one OSError for everything, or None."""
        cdef Flush flush
        lost = []
        errors = self.errors
        for name, flush in self.flushes:
            if flush is not None and flush.lost_count:
                lost.append(f"{flush.lost_count} of {name}")
                errors.append(flush.error)
        if not errors:
            return None
        number, reason = errors[0].errno, errors[0].strerror or str(errors[0])
        if not lost:
            return OSError(number, f"not everything could be closed - {reason}")
        others = f" and of {len(lost) - LOST_SHOWN} others" if len(lost) > LOST_SHOWN else ""
        return OSError(number, f"messages lost: {', '.join(lost[:LOST_SHOWN])}{others} - {reason}")


def count_unstored(list topics not None):
    """The messages that are only in memory, which a stop writes and a kill loses, but for those of ephemeral queues."""
    cdef Topic topic
    cdef Channel channel
    cdef int64_t count = 0
    for topic in topics:
        count += unstored(topic.backlog, <int64_t> topic.deferred.queue.size + topic.takeover.count)
        for channel in topic.channel_list:
            count += unstored(channel.backlog, <int64_t> channel.table.size + channel.deferred.size)
    return count


cdef int64_t unstored(Backlog backlog, int64_t elsewhere) noexcept:
    """Of those in it, and of so many that it gave out and that are not finished."""
    if backlog.disk is None:
        return 0
    return max(backlog.depth() + elsewhere - backlog.disk.position.unacked, 0)


cdef Py_ssize_t group_size():
    """Return for how many queues there are descriptors."""
    limit = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    if limit == resource.RLIM_INFINITY:
        return GROUP_COUNT_MAX
    count = (limit - len(os.listdir("/proc/self/fd"))) // QUEUE_DESCRIPTORS
    return min(max(count, GROUP_COUNT_MIN), GROUP_COUNT_MAX)
