"""A put into several queues is written to all of their files before any of them counts it.

    begin ─► each queue gathers ─► end: written into every file ─► every queue counts it
                   │                       │
                   └──── roll_back ◄───────┴ one of them fails: every file is cut back, every queue is as before

A put that would take longer than a turn may last goes to none of them, but behind the topic's own backlog (see
`takeover`).
"""

from nsqfast._ext.broker.channel cimport Channel
from nsqfast._ext.core.heap cimport HeapNode
from nsqfast._ext.core.message cimport delivery_free


cdef class Fanout:
    def __init__(self, TopicStore store, list channels):
        self.store = store
        self.channels = channels

    cdef bint put(self, Message *message, int64_t now_ns) except -1:
        """Put it into all channels, and count it there. OSError: none of them has it. False: it would take
        too long."""
        cdef Channel channel
        if len(self.channels) == 1:
            channel = self.channels[0]
            channel.put(message, now_ns)
            channel.message_count += 1
            return True
        if message.defer_ms == 0 and self.put_in_memory(message, now_ns):
            return True
        if not self.store.fits(1):
            return False
        self.begin()
        try:
            for channel in self.channels:
                channel.put(message, now_ns)
            self.store.end()
        except BaseException:
            self.roll_back()
            raise
        for channel in self.channels:
            channel.message_count += 1
        return True

    cdef bint put_in_memory(self, Message *message, int64_t now_ns) except -1:
        """The same in one pass, unless one of them writes to its disk."""
        cdef Channel channel, other
        for channel in self.channels:
            if channel.backlog.needs_write():
                break
            channel.put(message, now_ns)
            channel.message_count += 1
        else:
            return True
        for other in self.channels:
            if other is channel:
                break
            other.backlog.roll_back()
            other.message_count -= 1
        return False

    cdef int begin(self) except -1:
        """Let the queues gather what is put until the store's end() or roll_back()."""
        cdef Channel channel
        for channel in self.channels:
            channel.fresh = NULL
        return self.store.begin()

    cdef int roll_back(self) except -1:
        """Undo everything since begin(); no consumer saw it yet."""
        cdef Channel channel
        for channel in self.channels:
            drop_fresh(channel)
        return self.store.roll_back()

cdef int drop_fresh(Channel channel) except -1:
    """Drop what the current put deferred in the channel."""
    if channel.fresh is not NULL:
        channel.deferred.remove(<HeapNode *> channel.fresh)
        delivery_free(channel.fresh)
        channel.fresh = NULL
    return 0
