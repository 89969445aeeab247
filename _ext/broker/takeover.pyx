"""A topic's backlog goes to one channel after the other, and to each of them in order.

    deferred, backlog ─► batch ─► channel 0 │ channel 1 │ ... │ channel n ─► its records at the topic are finished
                              have it ──┘ place: continues here in the next part

A channel that cannot take it is tried again later, and none gets the batch twice, except after a kill between two
parts: a batch whose records are not finished is passed on again. So it is smaller when there are more channels.

As in NSQ, a batch that was begun goes to the channels that there were, though others are made or the topic is paused
meanwhile: a channel that is deleted and made again does not get it again.
"""

from libc.stdlib cimport free, malloc
from libc.string cimport memmove

from nsqfast._ext.broker.fanout cimport drop_fresh
from nsqfast._ext.core.budget cimport begin_part, is_spent
from nsqfast._ext.core.clock cimport monotonic_ns
from nsqfast._ext.core.memory cimport MEMORY_SLOW
from nsqfast._ext.core.message cimport delivery_free
from nsqfast._ext.storage.engine cimport FAN_MAX, disk_depth, take_next

cdef enum:
    # Messages of a batch: they share the cost of each channel's write.
    BATCH_MIN = 16
    BATCH_MAX = 512
    # Units that a write to disk counts for: the clock is read after each.
    WRITE_UNITS = 64
    # Bytes of bodies that are put into a channel at once.
    PIECE_SIZE = 1048576


cdef class Takeover:
    def __init__(self, Durability durability not None, TopicStore store not None, DeferredList deferred not None,
                 list channels not None):
        self.durability = durability
        self.store, self.backlog = store, store.own
        self.deferred = deferred
        self.channels = channels

    def __dealloc__(self):
        self.drop()

    cdef bint is_begun(self) noexcept:
        """Whether some channels of a batch are left to get it."""
        return self.count > 0 and self.end > 0

    cdef Progress run(self, bint is_owed, bint may_begin, int64_t now_ns) except *:
        """Run one part; with is_owed, pass on no more than publishers owe. OSError: some queue could not be read or
        written."""
        cdef Budget budget = begin_part()
        cdef Channel channel
        cdef int units
        while self.channels:
            if not self.is_begun():
                if not may_begin:
                    return PASSED_ALL
                if self.store.is_ahead():
                    return AHEAD
                if is_owed and self.owed == 0:
                    return PART_OVER
                if self.begin_batch(&budget, is_owed) == 0:
                    self.drop()
                    if self.backlog.is_pending:
                        return PENDING
                    return PART_OVER if disk_depth(self.backlog) else PASSED_ALL
            while self.place < self.end:
                channel = self.channels[self.place]
                units = self.pass_to(channel, now_ns)
                self.place += 1
                if channel.ready.first is not None:
                    channel.pump()
                if channel.drops_head:
                    channel.drop_excess()
                if is_spent(&budget, units) and self.place < self.end:
                    return PART_OVER
            self.end_first(self.count)
            if is_spent(&budget, 0):
                break
        return PART_OVER

    cdef int begin_batch(self, Budget *budget, bint is_owed) except -1:
        """Return how many there are. What is left of a batch whose channels were deleted is the first."""
        if self.count == 0:
            self.take_batch(budget, is_owed)
        self.place = self.put_count = self.had_count = 0
        self.end = len(self.channels)
        return self.count

    cdef int take_batch(self, Budget *budget, bint is_owed) except -1:
        """Those before an unreadable one are passed on without it."""
        cdef int most = self.batch_max(is_owed)
        cdef Delivery *delivery
        if self.batch is NULL:
            self.batch = <Delivery **> malloc(BATCH_MAX * sizeof(Delivery *))
            if self.batch is NULL:
                raise MemoryError
        self.has_deferred = self.deferred.queue.size > 0
        self.has_records = False
        try:
            while self.count < most:
                delivery = self.deferred.pop() if self.has_deferred else take_next(self.backlog)
                if delivery is NULL:
                    break
                self.batch[self.count] = delivery
                self.count += 1
                self.has_records |= delivery.ordinal != 0
                if is_spent(budget, 1):
                    break
        except OSError:
            if self.count == 0:
                raise
        return 0

    cdef int batch_max(self, bint is_owed) noexcept:
        cdef uint64_t most = FAN_MAX // <uint64_t> len(self.channels)
        most = max(<uint64_t> BATCH_MIN, min(<uint64_t> BATCH_MAX, most))
        if self.durability.store.broker_memory.account.level >= MEMORY_SLOW:
            return 1
        return <int> (min(most, self.owed) if is_owed else most)

    cdef int pass_to(self, Channel channel, int64_t now_ns) except -1:
        """Pass on what the channel lacks of the batch; return the units that took. OSError: it still lacks some."""
        cdef int units = self.count - self.put_count
        while self.put_count < self.count:
            # A channel can undo only the last deferred message.
            self.put_some(channel, self.put_count + 1 if self.has_deferred else self.piece_end(), now_ns)
        if self.has_records:
            self.store.note_copies(self.backlog, channel.backlog)
        self.put_count = 0
        return units + (WRITE_UNITS if channel.backlog.needs_write() else 0)

    cdef int piece_end(self) noexcept:
        """Up to which message the next put goes: a log has room for so much."""
        cdef int end = self.put_count + 1
        cdef uint64_t size = self.batch[self.put_count].message.size
        while end < self.count and size + self.batch[end].message.size <= PIECE_SIZE:
            size += self.batch[end].message.size
            end += 1
        return end

    cdef int put_some(self, Channel channel, int end, int64_t now_ns) except -1:
        """Put up to the message with that number: all of them, or none after an OSError."""
        cdef int i
        cdef uint64_t size = 0
        for i in range(self.put_count, end):
            size += self.batch[i].message.size
        self.store.admit(<uint64_t> (end - self.put_count), size)
        channel.fresh = NULL
        channel.backlog.begin()
        try:
            for i in range(self.put_count, end):
                channel.put(self.batch[i].message, now_ns)
            channel.backlog.write()
            channel.backlog.confirm()
            for i in range(self.put_count, end):
                self.store.note_published(self.batch[i].message, False, channel.backlog)
        except BaseException:
            channel.backlog.roll_back()
            drop_fresh(channel)
            raise
        channel.message_count += <uint64_t> (end - self.put_count)
        self.put_count = end
        self.had_count = max(self.had_count, end)
        return 0

    cdef int end_first(self, int count) except -1:
        """The channels have so many of the batch."""
        cdef int i, left_count = self.count - count
        self.count = 0
        self.owed -= min(self.owed, <uint64_t> count)
        for i in range(count):
            self.backlog.done(self.batch[i])
        memmove(self.batch, self.batch + count, left_count * sizeof(Delivery *))
        self.count = left_count
        return 0

    cdef int complete(self) except -1:
        """Before a stop: pass the batch to those that lack it. If a disk refuses it, or there is no channel, it stays
        here for all of them."""
        cdef int i
        cdef int64_t now_ns = monotonic_ns()
        if self.count == 0:
            return 0
        try:
            while self.place < self.end:
                self.pass_to(self.channels[self.place], now_ns)
                self.place += 1
        except OSError:
            pass
        else:
            if self.end:
                return self.end_first(self.count)
        for i in range(self.count):
            if self.has_deferred:
                self.deferred.push(self.batch[i])
            else:
                self.backlog.requeue(self.batch[i])
        self.count = 0
        return 0

    cdef int forget(self, Py_ssize_t place) except -1:
        """The channel at that place is about to be deleted."""
        if not self.is_begun() or place >= self.end:
            return 0
        self.end -= 1
        if place < self.place:
            self.place -= 1
        elif place == self.place:
            self.put_count = 0
        if self.end == 0:
            # What the deleted ones had is gone with them; the next channels get the others.
            self.end_first(self.had_count)
        return 0

    cdef Delivery *find_told(self, uint64_t id) noexcept:
        """Return the deferred message of the batch whose publisher was told that id, or NULL."""
        cdef int i
        for i in range(self.count if self.has_deferred else 0):
            if self.batch[i].message.id == id and self.batch[i].is_told and self.batch[i].message.defer_ms:
                return self.batch[i]
        return NULL

    cdef int place_in_batch(self, Delivery *delivery) noexcept:
        cdef int i = 0
        while self.batch[i] is not delivery:
            i += 1
        return i

    cdef Py_ssize_t lacking_count(self, Delivery *delivery) noexcept:
        """How many channels have yet to get this message of the batch; 1 if the next ones do."""
        return self.end - self.place - (self.place_in_batch(delivery) < self.put_count) if self.end else 1

    cdef void leave_out(self, Delivery *delivery) noexcept:
        """Remove this message from the batch: those channels do not get it."""
        cdef int i, place = self.place_in_batch(delivery)
        self.put_count -= place < self.put_count
        self.had_count -= place < self.had_count
        self.count -= 1
        for i in range(place, self.count):
            self.batch[i] = self.batch[i + 1]

    cdef int drop(self) noexcept:
        """Free the messages of the batch, and its memory."""
        cdef int i
        for i in range(self.count):
            delivery_free(self.batch[i])
        self.count = 0
        free(self.batch)
        self.batch = NULL
        return 0

    cdef int64_t oldest(self) noexcept:
        """When the first of the batch was published; 0 = there is none, or it is deferred."""
        return self.batch[0].message.timestamp_ns if self.count and not self.has_deferred else 0
