"""A dead letter goes back as a new message of the channel, without failures, in a way that the channel or the topic of
dead letters has it at any time: with a commit log one batch says both that it came and that it went. Those that are
to be deleted only go.

It takes what is ready, in order. What it leaves goes behind the others.
"""

from nsqfast._ext.broker.fanout cimport drop_fresh
from nsqfast._ext.core.body_search cimport BodySearch, is_met
from nsqfast._ext.core.budget cimport begin_part, is_spent
from nsqfast._ext.core.message cimport message_drop, message_new
from nsqfast._ext.storage.engine cimport has_next, take_next

cdef enum:
    # Bytes of bodies that are put together.
    PIECE_SIZE = 262144
    # Of a message: it is taken, copied, and perhaps written.
    UNITS = 4


cdef class Redrive:
    """From a topic or a channel of it to a channel, or to nowhere; `needle` is in the body of each that goes, which
    meets `terms` (see `body_search`). What came behind `until_ns` (Unix time; 0 = any) stays."""

    def __init__(self, MessageQueue source not None, Topic topic not None, Channel channel not None,
                 bytes needle not None=b"", bint deletes=False, int64_t until_ns=0,
                 tuple terms not None=()):
        self.source, self.topic, self.channel = source, topic, channel
        self.search_for = BodySearch(needle, terms)
        self.deletes, self.until_ns = deletes, until_ns
        self.left_count = source.backlog.depth()

    @property
    def is_gone(self):
        """One of the two is deleted, or the broker stops."""
        return self.topic.exiting or self.channel.exiting or self.source.exiting

    def go_on(self, int64_t most, dict choices=None):
        """Move up to so many, for a part of a turn; of so many as there are choices, by id, those chosen. What has no
        choice is examined later. False: it has to wait, for a disk or for room in the channel. MemoryError."""
        cdef Budget budget = begin_part()
        cdef size_t count
        cdef int64_t left_before
        self.examine_max = self.left_count if choices is None else <int64_t> len(choices)
        while most > 0 and self.left_count > 0 and self.examine_max > 0 and not self.is_gone:
            if not self.has_room(1):
                return False
            left_before = self.examine_max
            try:
                count = self.take(most, &budget, choices)
                if count:
                    if not self.deletes:
                        self.put(count)
                    self.finish(count)
                    most -= <int64_t> count
            except OSError:     # the broker's health reports it
                return False
            if not has_next(self.source.backlog):
                self.left_count = 0
            elif self.examine_max == left_before:
                return False        # a disk has to answer first
            if is_spent(&budget, UNITS):
                break
        return True

    cdef bint has_room(self, size_t count) except -1:
        if self.topic.durability.store.must_wait():
            return False
        if self.deletes or self.channel.drops_head or not self.channel.is_limited():
            return True
        return self.channel.has_room(count, 0)

    cdef size_t take(self, int64_t most, Budget *budget, dict choices) except? 0:
        """Take the next ones, up to a batch."""
        cdef size_t count = 0
        cdef uint64_t size = 0, examined_size
        cdef Delivery *delivery
        most = min(most, BATCH_MAX)
        while <int64_t> count < most and size < PIECE_SIZE and self.left_count > 0 and self.examine_max > 0:
            if count and not self.has_room(count + 1):
                break
            try:
                delivery = take_next(self.source.backlog)
            except OSError:
                if count == 0:
                    raise
                break       # those before an unreadable one go without it
            if delivery is NULL:
                break
            self.left_count -= 1
            self.examine_max -= 1
            examined_size = delivery.message.size
            if self.is_chosen(delivery, choices):
                self.taken[count] = delivery
                size += delivery.message.size
                count += 1
            else:
                self.source.backlog.requeue(delivery)
            if is_spent(budget, UNITS + (examined_size >> 10)):
                break
        return count

    cdef bint is_chosen(self, Delivery *delivery, dict choices) except -1:
        if choices is not None and not choices.get(delivery.message.id):
            self.left_count += delivery.message.id not in choices
            return False
        if 0 < self.until_ns < delivery.message.timestamp_ns:
            return False
        return is_met(&self.search_for.terms, delivery.message.body, delivery.message.size)

    cdef int put(self, size_t count) except -1:
        """The channel gets those that were taken; after an error they wait where they were, behind the others."""
        cdef int64_t wall = self.topic.clock.wall_ns(), now_ns = self.topic.clock.monotonic_ns()
        cdef uint64_t size = 0
        cdef size_t i, made = 0
        try:
            for i in range(count):
                size += self.taken[i].message.size
            self.topic.store.admit(2 * count, size)
            for i in range(count):
                self.copies[i] = message_new(self.topic.account, self.taken[i].message.body,
                                             self.taken[i].message.size, wall, self.topic.guid.next(wall))
                if self.copies[i] is NULL:
                    raise MemoryError
                made += 1
            self.channel.fresh = NULL
            self.channel.backlog.begin()
            try:
                for i in range(count):
                    self.channel.put(self.copies[i], now_ns)
                self.channel.backlog.write()
                self.channel.backlog.confirm()
                for i in range(count):
                    self.topic.store.note_published(self.copies[i], False, self.channel.backlog)
            except BaseException:
                self.channel.backlog.roll_back()
                drop_fresh(self.channel)
                raise
            self.topic.store.note_copies(self.source.backlog, self.channel.backlog)
        except BaseException:
            for i in range(count):
                self.source.backlog.requeue(self.taken[i])
            self.left_count += <int64_t> count
            raise
        finally:
            for i in range(made):
                message_drop(self.copies[i])
        return 0

    cdef int finish(self, size_t count) except -1:
        """Those that were taken are here no more."""
        cdef size_t i
        for i in range(count):
            self.source.backlog.done(self.taken[i])
        self.moved_count += <int64_t> count
        if self.deletes:
            return 0
        self.channel.message_count += <uint64_t> count
        if self.channel.ready.first is not None:
            self.channel.pump()
        return self.channel.drop_excess() if self.channel.drops_head else 0
