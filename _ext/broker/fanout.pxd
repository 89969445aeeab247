"""The queues that a publish goes to: a topic's own, or those of all its channels. Either all get it, or none."""

from libc.stdint cimport int64_t, uint64_t

from nsqfast._ext.broker.channel cimport Channel
from nsqfast._ext.core.limits cimport GATHER_SIZE, LENGTH_SIZE, MESSAGE_HEADER_SIZE
from nsqfast._ext.core.message cimport Message
from nsqfast._ext.storage.engine cimport TopicStore

cdef enum:
    # The most that is put into all channels at once, in messages to the memory of one; some milliseconds.
    FAN_MAX = 32768


cdef class Fanout:
    cdef TopicStore store
    cdef list channels               # Channel; the topic's own list
    cdef uint64_t postponed_count    # messages whose write is postponed and that are not counted yet
    cdef uint64_t postponed_bytes
    cdef uint64_t postponed_spread   # those of these messages that went to all channels

    cdef bint put(self, Message *message, int64_t now_ns, bint counts) except -1
    cdef bint put_in_memory(self, Message *message, int64_t now_ns, bint counts) except -1
    cdef bint fits_turn(self, uint64_t count) except -1
    cdef int begin(self) except -1
    cdef int roll_back(self) except -1
    cdef tuple take_counts(self)


cdef int drop_fresh(Channel channel) except -1


# Inline, because durable publishers call them for each message.
cdef inline bint is_large(Fanout fanout) noexcept:
    """Whether so much was postponed that it is written before more is taken."""
    return fanout.postponed_bytes + (LENGTH_SIZE + MESSAGE_HEADER_SIZE) * fanout.postponed_count > GATHER_SIZE


cdef inline void count_postponed(Fanout fanout, uint64_t count, uint64_t size, bint is_spread) noexcept:
    """Remember what to count; take_counts() returns it."""
    fanout.postponed_count += count
    fanout.postponed_bytes += size
    if is_spread:
        fanout.postponed_spread += count
