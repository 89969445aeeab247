"""The queues that a publish goes to: a topic's own, or those of all its channels. Either all get it, or none."""

from libc.stdint cimport int64_t, uint64_t

from nsqfast._ext.broker.channel cimport Channel
from nsqfast._ext.core.message cimport Message
from nsqfast._ext.storage.engine cimport TopicStore

cdef class Fanout:
    cdef TopicStore store
    cdef list channels     # Channel; the topic's own list

    cdef bint put(self, Message *message, int64_t now_ns) except -1
    cdef bint put_in_memory(self, Message *message, int64_t now_ns) except -1
    cdef int begin(self) except -1
    cdef int roll_back(self) except -1


cdef int drop_fresh(Channel channel) except -1
