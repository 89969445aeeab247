"""The engine that keeps everything in memory: what the contract asks, and no more."""

from libc.stdint cimport int64_t, uintptr_t

from nsqfast._ext.core.message cimport Message, message_keep
from nsqfast._ext.storage.engine cimport ChannelStore, Store, TopicStore


cdef class MemoryStore(Store):
    cdef int event_fd            # is never readable


cdef class MemoryTopic(TopicStore):
    cdef Store store
    cdef str name

    cdef ChannelStore open_queue(self, str name, bint is_ephemeral)


cdef class MemoryQueue(ChannelStore):
    cdef Store store
    cdef bint is_limited         # as ephemeral ones are: what does not fit is lost
    cdef int64_t memory_max
    cdef size_t mark_size        # of the memory at the begin of a put; NO_MARK: there is nothing to undo

    cdef bint needs_write(self) noexcept
    cdef int begin(self) except -1
    cdef int write(self) except -1
    cdef int confirm(self) except -1
    cdef int roll_back(self) except -1


cdef inline int remember(MemoryQueue queue, Message *message) except -1:
    queue.memory.push(<void *> (<uintptr_t> message | 1))
    message_keep(message)
    return 0
