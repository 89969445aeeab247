"""A queue of the engine: memory first, then disk, first in, first out."""

from libc.stdint cimport int64_t, uint64_t

from nsqfast._ext.core.budget cimport Budget
from nsqfast._ext.core.heap cimport Timed, Timers
from nsqfast._ext.core.message cimport Delivery, Message
from nsqfast._ext.storage.diskqueue.deferred cimport DiskDeferred, HeldRecords
from nsqfast._ext.storage.diskqueue.eventlog cimport QueueLog
from nsqfast._ext.storage.diskqueue.lag cimport Lag
from nsqfast._ext.storage.diskqueue.lookup cimport Lookup
from nsqfast._ext.storage.diskqueue.queue cimport DiskQueue
from nsqfast._ext.storage.diskqueue.reader cimport OldestRecord
from nsqfast._ext.storage.diskqueue.replay cimport ReplayedQueue
from nsqfast._ext.storage.diskqueue.scan cimport DiskScan
from nsqfast._ext.storage.diskqueue.syncer cimport Syncer
from nsqfast._ext.storage.engine cimport ChannelStore
from nsqfast._ext.storage.scan cimport Record


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


cdef class Backlog(ChannelStore):
    cdef DiskQueue disk
    cdef QueueLog log            # None: nothing is logged of it
    cdef ReplayedQueue logged    # what the log had of it at the start; None = all of that is here
    cdef DiskDeferred found      # what was deferred when the broker stopped; None = nothing is left of it
    cdef HeldRecords held        # the same of the last checkpoint
    cdef Lag lag
    cdef Lookup lookup           # None until something is looked up
    cdef OldestRecord head       # None until someone asks for the age of the oldest
    cdef Syncer syncer
    cdef SyncTick tick
    cdef bint is_dirty           # is in the tick's list
    cdef bint has_failed         # the last sync could not write positions or acknowledgements

    cdef bint store_group(self, Delivery **deliveries, size_t count, bint is_taken) except -1
    cdef int store_new(self, Delivery *delivery) except -1
    cdef int queue_again(self, Delivery *delivery) except -1
    cdef int store_attempts(self, Delivery *delivery) except -1
    cdef int store_record(self, Delivery *delivery) except -1
    cdef int log_return(self, Delivery *delivery, int64_t due_ns) except -1
    cdef int restore(self) except -1
    cdef int store_batch(self, Delivery **batch, size_t count) except -1
    cdef Delivery *next_logged(self, int64_t *due_ns) except? NULL
    cdef Message *read(self, uint64_t *ordinal) except? NULL
    cdef bint is_ahead(self) noexcept
    cdef int find_stale(self) except -1
    cdef int mark_dirty(self) except -1
    cdef uint64_t sync(self) except? 0
    cdef int synced(self, bint is_good) except -1


cdef class BacklogScan(DiskScan):
    cdef Backlog backlog

    cdef int move(self, Record *record) except -1
    cdef int end_change(self, size_t count) except -1


cdef inline bint has_room(Backlog backlog) noexcept:
    """Whether memory has room, and nothing on disk comes first."""
    return (<int64_t> backlog.memory.size < backlog.memory_max and backlog.memory.account.level == 0
            and backlog.disk.reader.depth == 0 and backlog.disk.writer.gathered_count == 0)
