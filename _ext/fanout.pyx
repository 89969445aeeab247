"""A put into several queues is written to all of their files before any of them counts it.

    begin ─► each queue gathers ─► write: into every file ─► confirm: every queue counts it
                   │                       │
                   └──── take_back ◄───────┴ one of them fails: every file is cut back, every queue is as before

On a durable broker what is put in one turn of the loop goes through this together, at the end of the turn.
"""

from nsqfast._ext.channel cimport Channel
from nsqfast._ext.heap cimport HeapNode
from nsqfast._ext.message cimport delivery_free

cdef enum:
    # Bytes whose write is put off until the end of the turn.
    GATHER_SIZE = 1048576


cdef class Fanout:
    def __init__(self, Backlog backlog, list channels):
        self.backlog = backlog
        self.channels = channels

    cdef int begin(self) except -1:
        """Have the queues gather what is put until write() or take_back()."""
        cdef Channel channel
        self.backlog.begin()
        for channel in self.channels:
            channel.fresh = NULL
            channel.backlog.begin()
        return 0

    cdef int write(self) except -1:
        """All that was gathered or put off. OSError: nothing of it is there."""
        cdef Channel channel
        try:
            self.backlog.write()
            for channel in self.channels:
                channel.backlog.write()
        except BaseException:
            self.backlog.revoke()
            for channel in self.channels:
                channel.backlog.revoke()
            raise
        self.backlog.confirm()
        for channel in self.channels:
            channel.backlog.confirm()
        return 0

    cdef int take_back(self) except -1:
        """All that came since begin(); nobody saw it yet."""
        cdef Channel channel
        self.backlog.take_back()
        for channel in self.channels:
            channel.backlog.take_back()
            if channel.fresh is not NULL:
                channel.deferred.remove(<HeapNode *> channel.fresh)
                delivery_free(channel.fresh)
                channel.fresh = NULL
        return 0

    cdef bint is_large(self) noexcept:
        """So much was put off that it is written before more comes."""
        cdef Channel channel
        if self.backlog.put_off_size() > GATHER_SIZE:
            return True
        for channel in self.channels:
            if channel.backlog.put_off_size() > GATHER_SIZE:
                return True
        return False

    cdef int count_put_off(self, uint64_t count, uint64_t size, bint is_spread) except -1:
        """Until take_counts(): whether they are accepted is not known before the fsync."""
        cdef Channel channel
        self.fresh_count += count
        self.fresh_bytes += size
        if is_spread:
            for channel in self.channels:
                channel.fresh_count += count
        return 0

    cdef tuple take_counts(self):
        """(messages, bytes, [(channel, messages)]) that were put off since the last call."""
        cdef Channel channel
        cdef list of_channels = []
        for channel in self.channels:
            if channel.fresh_count:
                of_channels.append((channel, channel.fresh_count))
                channel.fresh_count = 0
        count, size = self.fresh_count, self.fresh_bytes
        self.fresh_count = self.fresh_bytes = 0
        return count, size, of_channels
