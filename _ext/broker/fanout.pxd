"""The queues that a publish goes to: a topic's own, or those of all its channels. All of them have it, or none."""

from libc.stdint cimport int64_t, uint64_t

from nsqfast._ext.broker.channel cimport Channel
from nsqfast._ext.core.limits cimport GATHER_SIZE
from nsqfast._ext.core.message cimport Message
from nsqfast._ext.disk.backlog cimport Backlog
from nsqfast._ext.disk.segment cimport RECORD_SIZE_MIN

cdef enum:
    # What is put into all channels at once, in messages to the memory of one; some milliseconds. A queue's write to its
    # disk costs as much as so many of them, and one that has yet to make its files.
    FAN_MAX = 32768
    WRITE_COST = 64
    BEGIN_COST = 4096


cdef class Fanout:
    cdef Backlog backlog
    cdef list channels           # the topic's own list
    cdef uint64_t fresh_count    # messages put off and not counted yet
    cdef uint64_t fresh_bytes
    cdef uint64_t fresh_spread   # of these messages, those that went to all channels

    cdef bint put(self, Message *message, int64_t now_ns, bint counts) except -1
    cdef bint put_in_memory(self, Message *message, int64_t now_ns, bint counts) except -1
    cdef bint fits_turn(self, uint64_t count) except -1
    cdef int begin(self) except -1
    cdef int write(self) except -1
    cdef int take_back(self) except -1
    cdef tuple take_counts(self)


cdef int take_back(Channel channel) except -1


# Inline, as durable publishers come here for each message.
cdef inline bint is_large(Fanout fanout) noexcept:
    """So much was put off that it is written before more comes."""
    return fanout.fresh_bytes + RECORD_SIZE_MIN * fanout.fresh_count > GATHER_SIZE


cdef inline void count_put_off(Fanout fanout, uint64_t count, uint64_t size, bint is_spread) noexcept:
    """Until take_counts()."""
    fanout.fresh_count += count
    fanout.fresh_bytes += size
    if is_spread:
        fanout.fresh_spread += count
