"""Nothing outlives the process and nothing is waited for, so every ticket is 0. Tests run the broker on it; ephemeral
queues of other engines are of it, and so is what these engines hold in memory."""

cimport cython
from libc.stdint cimport INT64_MAX, uint64_t, uintptr_t
from posix.unistd cimport close as close_fd

import os

from nsqfast._ext.core.budget cimport Budget
from nsqfast._ext.core.heap cimport Timers
from nsqfast._ext.core.memory cimport Memory
from nsqfast._ext.core.message cimport Delivery, delivery_free, message_drop
from nsqfast._ext.core.ring cimport Ring
from nsqfast._ext.core.settings cimport Settings
from nsqfast._ext.storage.disposal cimport Disposal, drop_ring
from nsqfast._ext.storage.engine cimport Tickets
from nsqfast._ext.storage.health cimport Health
from nsqfast._ext.storage.scan cimport QueuePlace

cdef size_t NO_MARK = <size_t> -1


cdef class MemoryStore(Store):
    def __init__(self, Settings settings, Timers timers, Memory memory not None):
        self.settings, self.timers, self.broker_memory = settings, timers, memory
        self.health = Health()
        self.disposal = Disposal(timers, self.announce)
        self.event_fd = os.eventfd(0)

    def __dealloc__(self):
        if self.event_fd > 0:
            close_fd(self.event_fd)

    def announce(self):
        if self.on_pending is not None:
            self.on_pending()

    cdef TopicStore open_topic(self, str name, bint is_ephemeral):
        return MemoryTopic(self, name, is_ephemeral)

    cdef Tickets tickets(self) noexcept:
        return Tickets(0, 0, 0, 0)

    cdef tuple completed(self):
        return 0, ""

    cdef int fileno(self) except -1:
        return self.event_fd

    cdef list close_queues(self, object queues, object on_progress):
        count = len(list(queues))
        on_progress(count, count)
        return []

    cdef object close(self):
        self.disposal.finish()


cdef class MemoryTopic(TopicStore):
    """`open_queue` makes the queues, so an engine whose queues are MemoryQueues puts into all of them like this one."""

    def __init__(self, Store store, str name, bint is_ephemeral):
        self.store, self.name = store, name
        self.own = self.open_queue(name, is_ephemeral)
        self.stores = []

    cdef ChannelStore open_queue(self, str name, bint is_ephemeral):
        return MemoryQueue(self.store, is_ephemeral)

    cdef ChannelStore open_channel(self, str name, bint is_ephemeral):
        cdef ChannelStore store = self.open_queue(f"{self.name}:{name}", is_ephemeral)
        self.stores.append(store)
        return store

    cdef int forget_channel(self, ChannelStore channel) except -1:
        self.stores.remove(channel)
        return 0

    cdef int begin(self, ChannelStore only) except -1:
        cdef MemoryQueue queue
        if only is not None:
            return (<MemoryQueue> only).begin()
        for queue in self.stores:
            queue.begin()
        return (<MemoryQueue> self.own).begin()

    cdef int end(self, ChannelStore only) except -1:
        cdef MemoryQueue queue
        try:
            if only is not None:
                (<MemoryQueue> only).write()
                return (<MemoryQueue> only).confirm()
            (<MemoryQueue> self.own).write()
            for queue in self.stores:
                queue.write()
        except BaseException:
            self.roll_back(only)
            raise
        for queue in self.stores:
            queue.confirm()
        return (<MemoryQueue> self.own).confirm()

    cdef int roll_back(self, ChannelStore only) except -1:
        cdef MemoryQueue queue
        if only is not None:
            return (<MemoryQueue> only).roll_back()
        for queue in self.stores:
            queue.roll_back()
        return (<MemoryQueue> self.own).roll_back()

    cdef bint needs_write(self, ChannelStore channel) noexcept:
        return (<MemoryQueue> channel).needs_write()

    cdef bint fits(self, uint64_t count, uint64_t put_max) noexcept:
        return count * <uint64_t> len(self.stores) <= put_max


@cython.no_gc_clear  # the ring is needed until its messages are freed
cdef class MemoryQueue(ChannelStore):
    def __init__(self, Store store, bint is_limited):
        self.store, self.is_limited, self.memory_max = store, is_limited, store.settings.mem_queue_size
        self.memory, self.mark_size = Ring(store.broker_memory), NO_MARK

    def __dealloc__(self):
        cdef Budget endless = Budget(0, INT64_MAX)
        # A broker that is dropped without close() must not leak: memory.pop() does not own its items.
        if self.memory is not None:
            drop_ring(self.memory, &endless)

    cdef bint put(self, Message *message, bint is_wanted) except -1:
        if self.is_limited and not is_wanted and (
                <int64_t> self.memory.size >= self.memory_max or self.memory.account.level):
            return False
        remember(self, message)
        return True

    cdef int done(self, Delivery *delivery) except -1:
        delivery_free(delivery)
        return 0

    cdef int requeue(self, Delivery *delivery) except -1:
        delivery.owner = 0
        return self.memory.push(<void *> delivery)

    cdef int64_t depth(self) noexcept:
        return <int64_t> self.memory.size

    cdef int64_t oldest(self) except -2:
        cdef uintptr_t item = <uintptr_t> self.memory.ahead(0)
        if item & 1:
            return (<Message *> (item & ~<uintptr_t> 1)).timestamp_ns
        return (<Delivery *> item).message.timestamp_ns if item else 0

    cdef uint64_t correct_place(self, QueuePlace *place, int64_t *visible_count) except? 0:
        place.index = place.file = place.position = place.shift = visible_count[0] = 0
        return 0

    cdef int empty(self) except -1:
        return self.store.disposal.free_ring_later(self.memory.take_all())

    cdef int delete(self) except -1:
        self.taker = None
        return MemoryQueue.empty(self)

    # The put of a topic into this one of its queues.

    cdef bint needs_write(self) noexcept:
        self.mark_size = self.memory.size
        return False

    cdef int begin(self) except -1:
        return MemoryQueue.needs_write(self)  # sets the mark; nothing needs a write here

    cdef int write(self) except -1:
        """What is written is not in the queue before confirm()."""
        return 0

    cdef int confirm(self) except -1:
        self.mark_size = NO_MARK
        return 0

    cdef int roll_back(self) except -1:
        while self.memory.size > self.mark_size:
            message_drop(<Message *> (<uintptr_t> self.memory.pop_last() & ~<uintptr_t> 1))
        return MemoryQueue.confirm(self)
