"""What a topic and a channel have in common: messages that wait."""

from libc.stdint cimport int64_t

from nsqfast._ext.core.heap cimport Timed
from nsqfast._ext.core.memory cimport Account
from nsqfast._ext.storage.engine cimport ChannelStore


cdef class MessageQueue(Timed):
    cdef ChannelStore backlog
    cdef Account *account         # of the broker, which the store keeps

    cdef int64_t oldest(self) except -2
