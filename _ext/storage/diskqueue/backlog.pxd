"""The queue of a topic or a channel: memory first, then disk, first in, first out."""

from libc.stdint cimport int64_t, uint16_t, uint64_t

from nsqfast._ext.core.budget cimport Budget
from nsqfast._ext.core.heap cimport Timed, Timers
from nsqfast._ext.core.memory cimport account
from nsqfast._ext.core.message cimport Delivery, Message
from nsqfast._ext.core.ring cimport Ring
from nsqfast._ext.core.settings cimport Settings
from nsqfast._ext.storage.diskqueue.deferred cimport DiskDeferred
from nsqfast._ext.storage.diskqueue.disposal cimport Disposal
from nsqfast._ext.storage.diskqueue.oldest_record cimport OldestRecord
from nsqfast._ext.storage.diskqueue.queue cimport DiskQueue
from nsqfast._ext.storage.diskqueue.scan cimport DiskScan
from nsqfast._ext.storage.diskqueue.syncer cimport Syncer


cdef class SyncTick(Timed):
    cdef Timers timers
    cdef int64_t period_ns
    cdef SyncEnd end
    cdef object dirty            # backlogs whose disk part changed since the last tick
    cdef Py_ssize_t left         # so many of them in the current tick

    cdef int add(self, Backlog backlog) except -1
    cdef int on_deadline(self, int64_t now_ns) except -1


cdef class SyncEnd(Timed):
    cdef Timers timers
    cdef Syncer syncer
    cdef object drafted          # (ticket, backlog) of those whose positions are being synced
    cdef object ended            # (done ticket, whether all went well) of batches that something has to follow
    cdef Py_ssize_t unseen       # queues that wait for copies and are still to be checked for the first of these

    cdef int add(self, uint64_t done_ticket, bint is_good) except -1
    cdef bint work(self) except -1
    cdef bint keep_cursors(self, Budget *budget) except -1
    cdef bint install(self, uint64_t done_ticket, bint is_good, Budget *budget) except -1
    cdef int on_deadline(self, int64_t now_ns) except -1


cdef class Storage:
    cdef readonly Settings settings
    cdef readonly Syncer syncer
    cdef readonly Timers timers
    cdef SyncTick tick
    cdef SyncEnd sync_end
    cdef Disposal disposal
    cdef Py_ssize_t stored_count # messages that came back and were written to disk one by one, in this turn

    cdef int write_postponed(self) except -1


cdef class Backlog:
    cdef Ring memory             # Message * with its lowest bit set, or Delivery * of a requeued one
    cdef int64_t memory_max
    cdef DiskQueue disk          # None: nothing of this outlives the process
    cdef OldestRecord head       # None until someone asks for the age of the oldest
    cdef Storage storage
    cdef bint is_dirty           # is in the tick's list
    cdef bint has_failed         # the last sync could not write positions or acknowledgements
    cdef size_t mark_size        # of the memory, at `begin`

    cdef int64_t depth(self) noexcept
    cdef int64_t disk_depth(self) noexcept
    cdef bint has_disk(self) noexcept
    cdef bint is_new_on_disk(self) noexcept
    cdef int64_t unwritten_count(self) noexcept
    cdef DiskScan scan_disk(self, uint64_t index, int64_t file, int64_t position)
    cdef uint64_t request_sync(self) except? 0
    cdef bint put(self, Message *message, bint is_wanted) except -1
    cdef Delivery *defer(self, Message *message) except NULL
    cdef int requeue(self, Delivery *delivery) except -1
    cdef int store(self, Delivery *delivery) except -1
    cdef int rewrite(self, Delivery *delivery) except -1
    cdef DiskDeferred found_deferred(self)
    cdef Delivery *take(self) except? NULL
    cdef Message *read(self, uint64_t *ordinal) except? NULL
    cdef int done(self, Delivery *delivery) except -1
    cdef int begin(self) except -1
    cdef int write(self) except -1
    cdef int confirm(self) except -1
    cdef int revoke(self) except -1
    cdef int take_back(self) except -1
    cdef uint64_t ticket(self) except? 0
    cdef int64_t oldest(self) except -2
    cdef int empty(self) except -1
    cdef uint64_t close_some(self, int step) except? 0
    cdef int note_copies(self, uint64_t ticket) except -1
    cdef bint is_ahead(self) noexcept
    cdef int delete_files(self) except -1
    cdef int remember(self, Message *message) except -1
    cdef int mark_dirty(self) except -1
    cdef uint64_t sync(self) except? 0
    cdef int synced(self, bint is_good) except -1


# Inline, since a publish asks each of its channels.
cdef inline bint has_room(Backlog backlog) noexcept:
    """Whether memory has room, and nothing on disk comes first."""
    return (<int64_t> backlog.memory.size < backlog.memory_max and account.level == 0
            and (backlog.disk is None or backlog.disk.reader.depth + backlog.disk.writer.later_count == 0))


cdef inline bint writes(Backlog backlog) noexcept:
    """Whether the next put goes to disk."""
    return backlog.disk is not None and not has_room(backlog)


cdef class Queue(Timed):
    """A topic or a channel."""
    cdef Backlog backlog

    cdef int64_t oldest(self) except -2
