"""What the commit log need not keep any more, because the files of the queues and one file more have it."""

from libc.stdint cimport int64_t, uint8_t, uint16_t, uint32_t, uint64_t

from nsqfast._ext.commitlog.contents cimport RingContents
from nsqfast._ext.core.budget cimport Budget
from nsqfast._ext.core.message cimport Delivery, Message
from nsqfast._ext.storage.diskqueue.ackmapping cimport Place
from nsqfast._ext.storage.diskqueue.backlog cimport Backlog
from nsqfast._ext.storage.diskqueue.eventlog cimport CheckpointFigures, EventLog
from nsqfast._ext.storage.diskqueue.replay cimport Replay
from nsqfast._ext.storage.diskqueue.syncer cimport OpenFile, Syncer
from nsqfast._ext.storage.engine cimport ChannelStore, Checkpoint


cdef class DiskCheckpoint(Checkpoint):
    cdef EventLog log
    cdef Syncer syncer
    cdef str folder
    cdef OpenFile *file
    cdef int64_t begun_ns
    cdef uint64_t begun              # the batch from which on the log is needed after it
    cdef uint64_t begun_batch        # the one that was being filled then, ...
    cdef uint64_t begun_count        # ... and the records that it had
    cdef uint64_t log_end            # the batch up to which the log has to be on disk
    cdef uint64_t ticket             # of the fsyncs that it waits for
    cdef list places                 # (Backlog, index, file, position): where each began
    cdef Backlog backlog             # whose messages come now; None = nothing is kept of them
    cdef uint64_t end_index          # behind its last record
    cdef int error                   # that came while a queue was shown; 0 = none
    cdef char *data                  # of the file, not written yet
    cdef size_t used
    cdef size_t data_capacity
    cdef uint64_t written            # bytes of the file
    cdef uint32_t crc
    cdef int step

    cdef int put_places(self) except -1
    cdef int put_holes(self) except -1
    cdef char *put(self, uint8_t kind, uint32_t tries, uint32_t subject, size_t size) except NULL
    cdef char *room(self, size_t size) except NULL
    cdef int write(self) except -1
    cdef int put_mpubs(self) except -1
    cdef int end_file(self) except -1
    cdef bint is_synced(self) except -1
    cdef bint end(self, Budget *budget) except -1
    cdef void count_done(self, CheckpointFigures *figures) noexcept


cdef int load_carried(RingContents ring, uint64_t first, Replay replay) except -1
