"""The engine: a queue on disk with a ring in memory before it, for each topic and for each channel."""

from libc.stdint cimport int64_t, uint64_t

from nsqfast._ext.commitlog.recovery cimport Recovery
from nsqfast._ext.commitlog.ring cimport CommitRing
from nsqfast._ext.core.heap cimport Timed, Timers
from nsqfast._ext.storage.diskqueue.backlog cimport SyncEnd, SyncTick
from nsqfast._ext.storage.diskqueue.checkpoint cimport DiskCheckpoint
from nsqfast._ext.storage.diskqueue.cold_reads cimport ColdReads
from nsqfast._ext.storage.diskqueue.eventlog cimport EventLog
from nsqfast._ext.storage.diskqueue.replay cimport Replay
from nsqfast._ext.storage.diskqueue.syncer cimport Syncer
from nsqfast._ext.storage.disposal cimport Disposal
from nsqfast._ext.storage.engine cimport Store, TopicStore


cdef class DiskStore


cdef class LogSync(Timed):
    # Syncs the log of interval mode.
    cdef Timers timers
    cdef CommitRing ring
    cdef int64_t period_ns

    cdef int begin(self) except -1
    cdef int on_deadline(self, int64_t now_ns) except -1


cdef class HoldEnd(Timed):
    # Ends the wait of a batch for publishers.
    cdef DiskStore store

    cdef int on_deadline(self, int64_t now_ns) except -1


cdef class DiskStore(Store):
    cdef readonly Syncer syncer
    cdef SyncTick tick
    cdef SyncEnd sync_end
    cdef ColdReads cold
    cdef readonly EventLog log       # None: an OK promises nothing
    cdef Replay replay               # what the log has of queues that are not open yet
    cdef bint names_all              # the log was not closed, and it has every queue of which something was answered
    cdef str log_folder
    cdef object poll                 # an epoll of the descriptors of the syncer and of the log; None = there is no log
    cdef LogSync log_sync
    # A batch may wait for publishers that were just answered, until then; 0 = it does not.
    cdef int64_t hold_until_ns
    cdef Py_ssize_t expected_count   # clients whose OK waits when all of them have come back
    cdef bint is_telling             # they are being answered
    cdef int unheld_count            # so many batches do not wait, since it was in vain
    cdef double commits_ns           # that all batches took
    cdef HoldEnd hold_end
    cdef DiskCheckpoint checkpoint   # the one that runs
    cdef bint is_asked               # for the next one
    cdef bint is_slow                # the one that is asked for begins after some time; an urgent one does not wait
    cdef str trouble                 # why the last one failed
    cdef bint is_failure_told

    cdef int open_log(self) except -1
    cdef Replay repeat(self, Recovery recovery)
    cdef int refuse_open_log(self) except -1
    cdef object refuse_log(self, object error)
    cdef object close_log(self)
    cdef int ask_checkpoint(self) except -1
    cdef int check_log(self) except -1
    cdef int commit_log(self) except -1
    cdef int begin_hold(self) except -1
    cdef int hold(self) except -1
    cdef bint is_holding(self) noexcept
    cdef int write_files(self) except -1
    cdef int write_later(self) except -1


cdef class DiskTopic(TopicStore):
    cdef EventLog log            # None: nothing is logged of it


cdef class DiskDisposal(Disposal):
    cdef Syncer syncer
