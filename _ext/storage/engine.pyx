"""What each method promises stands in engine.pxd. Here stands the least that keeps it: everything is in memory, nothing
outlives the process and nothing is waited for, so every ticket is 0.

Tests run the broker on it; ephemeral queues of other engines are of it, and so is what these hold in memory.
"""

cimport cython
from libc.stdint cimport INT64_MAX
from posix.unistd cimport close as close_fd

import os
from contextlib import nullcontext

from nsqfast._ext.core.message cimport delivery_free, message_drop
from nsqfast._ext.storage.disposal cimport drop_ring

cdef size_t NO_MARK = <size_t> -1


cdef class Store:
    def __init__(self, Settings settings, Timers timers, Memory memory not None):
        self.settings, self.timers, self.broker_memory = settings, timers, memory
        self.health = Health()
        self.disposal = Disposal(timers, (<object> self).announce)
        self.event_fd = os.eventfd(0)

    def __dealloc__(self):
        if self.event_fd > 0:
            close_fd(self.event_fd)

    cpdef int announce(self) except -1:
        """There is work to do at the end of a turn."""
        if self.on_pending is not None:
            self.on_pending()
        return 0

    cdef TopicStore open_topic(self, str name, bint is_ephemeral):
        return TopicStore(self, name, is_ephemeral)

    cdef Tickets tickets(self) noexcept:
        return Tickets(0, 0, 0, 0)

    cdef bint start_batch(self) except -1:
        return False

    cdef bint must_wait(self) noexcept:
        return False

    cdef bint delays_answers(self) noexcept:
        return False

    cdef bint write_log(self) except -1:
        return False

    cdef Checkpoint begin_checkpoint(self):
        return None

    cdef int end_checkpoint(self, str error) except -1:
        pass

    cdef list logged_names(self):
        return []

    cdef bint remove_cut(self, str queue) except -1:
        return False

    cdef tuple completed(self):
        return 0, ""

    cdef int fileno(self) except -1:
        return self.event_fd

    cdef int64_t count_unstored(self, ChannelStore queue, int64_t taken) noexcept:
        return 0

    cdef Closing begin_closing(self, ChannelStore queue):
        return None

    cdef list close_queues(self, object queues, object on_progress):
        count = len(list(queues))
        on_progress(count, count)
        return []

    cdef object close(self):
        self.disposal.finish()

    def figures(self):
        """Return how many fsyncs were done, how many of them failed, and the seconds they took."""
        return 0, 0, 0.0

    def log_figures(self):
        """Return what a commit log has to say of itself (see EventLog.figures); None: there is none."""

    def starting(self):
        """Return a context in which many topics are opened, one after the other."""
        return nullcontext()


cdef class TopicStore:
    def __init__(self, Store store, str name, bint is_ephemeral):
        self.store, self.name = store, name
        self.own = self.open_queue(name, is_ephemeral)
        self.stores = []

    cdef ChannelStore open_queue(self, str name, bint is_ephemeral):
        return ChannelStore(self.store, is_ephemeral)

    cdef ChannelStore open_channel(self, str name, bint is_ephemeral):
        cdef ChannelStore queue = self.open_queue(f"{self.name}:{name}", is_ephemeral)
        self.stores.append(queue)
        return queue

    cdef int begin(self) except -1:
        cdef ChannelStore queue
        for queue in self.stores:
            queue.begin()
        return self.own.begin()

    cdef int end(self) except -1:
        cdef ChannelStore queue
        try:
            self.own.write()
            for queue in self.stores:
                queue.write()
        except BaseException:
            self.roll_back()
            raise
        for queue in self.stores:
            queue.confirm()
        return self.own.confirm()

    cdef int roll_back(self) except -1:
        cdef ChannelStore queue
        for queue in self.stores:
            queue.roll_back()
        return self.own.roll_back()

    cdef bint fits(self, uint64_t count) noexcept:
        return count * <uint64_t> len(self.stores) <= FAN_MAX

    cdef int admit(self, uint64_t count, uint64_t size) except -1:
        return 0

    cdef int note_published(self, Message *message, bint is_spread, ChannelStore only) except -1:
        return 0

    cdef uint64_t begin_pieces(self) except? 0:
        return 0

    cdef bint may_note_piece(self, uint64_t mpub) except -1:
        return True

    cdef int note_piece(self, uint64_t mpub, uint64_t piece, int64_t published_ns, uint64_t first_id,
                        const char *bodies, size_t size) except -1:
        return 0

    cdef int note_released(self, uint64_t mpub, uint64_t piece, uint64_t count, bint is_spread) except -1:
        return 0

    cdef int end_pieces(self, uint64_t mpub) except -1:
        return 0

    cdef uint64_t mark(self) noexcept:
        return 0

    cdef int cut(self, uint64_t mark) except -1:
        return 0

    cdef uint64_t ticket(self) noexcept:
        return 0

    cdef int note_copies(self, ChannelStore source, ChannelStore only) except -1:
        return 0

    cdef bint is_ahead(self) noexcept:
        return False


@cython.no_gc_clear  # the ring is needed until its messages are freed
cdef class ChannelStore:
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

    cdef Delivery *read_next(self) except? NULL:
        return NULL

    cdef int done(self, Delivery *delivery) except -1:
        delivery_free(delivery)
        return 0

    cdef int requeue(self, Delivery *delivery) except -1:
        delivery.owner = 0
        return remember_again(self, delivery)

    cdef int requeue_as(self, Delivery *delivery, Message *message) except -1:
        message_drop(delivery.message)
        delivery.message = message
        return self.requeue(delivery)

    cdef int defer(self, Delivery *delivery, bint is_new, int64_t delay_ns) except -1:
        return 0

    cdef bint store_deferred(self, Delivery **deliveries, size_t count) except -1:
        pass

    cdef Delivery *load(self, uint64_t ordinal, uint64_t id) except? NULL:
        pass

    cdef bint is_loading(self) noexcept:
        pass

    cdef bint is_unfinished(self, uint64_t ordinal) noexcept:
        pass

    cdef int finish_record(self, uint64_t ordinal, uint64_t id) except -1:
        pass

    cdef Delivery *next_found(self, int64_t *due_ns) except? NULL:
        pass

    cdef bint renew(self, Delivery *delivery, bint is_deferred) except -1:
        pass

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

    cdef Scan scan(self, QueuePlace *place, uint64_t end):
        return None

    cdef Reads reads(self):
        return None

    cdef int64_t size(self) noexcept:
        return self.memory_bytes

    cdef int empty(self) except -1:
        self.memory_bytes = 0
        return self.store.disposal.free_later(self.memory.take_all())

    cdef int delete(self) except -1:
        self.taker = None
        return ChannelStore.empty(self)

    cdef bint needs_write(self) noexcept:
        self.mark_size = self.memory.size
        return False

    cdef int begin(self) except -1:
        self.mark_size = self.memory.size
        return 0

    cdef int write(self) except -1:
        return 0

    cdef int confirm(self) except -1:
        self.mark_size = NO_MARK
        return 0

    cdef int roll_back(self) except -1:
        cdef Message *message
        while self.memory.size > self.mark_size:
            message = <Message *> (<uintptr_t> self.memory.pop_last() & ~<uintptr_t> 1)
            self.memory_bytes -= message.size
            message_drop(message)
        return ChannelStore.confirm(self)


cdef class Checkpoint:
    cdef bint begin_queue(self, ChannelStore queue) except -1:
        pass

    cdef void add(self, Delivery *delivery) noexcept:
        pass

    cdef void add_deferred(self, Delivery *delivery, int64_t due_ns) noexcept:
        pass

    cdef void add_stored(self, uint64_t ordinal, int64_t due_ns, bint is_told) noexcept:
        pass

    cdef void keep(self, Message *message, uint32_t tries, int64_t due_ns) noexcept:
        pass

    cdef bint ends_part(self, Budget *budget, uint64_t size) except -1:
        pass

    cdef bint finish(self, Budget *budget) except -1:
        pass


cdef class Closing:
    cdef int add(self, Delivery *delivery) except -1:
        pass

    cdef int add_deferred(self, Delivery *delivery, int64_t due_ns) except -1:
        pass

    cdef int end(self) except -1:
        pass
