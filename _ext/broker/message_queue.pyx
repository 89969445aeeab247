"""How old the oldest message is that waits in a topic or a channel, and what goes when there are too many."""

from libc.stdint cimport uintptr_t

from nsqfast._ext.broker.dead_letters cimport EXPIRED, OVER_LIMIT
from nsqfast._ext.core.budget cimport begin_short_part, is_spent
from nsqfast._ext.core.clock cimport wall_ns
from nsqfast._ext.core.limits cimport DISK_RETRY_NS
from nsqfast._ext.core.message cimport Message
from nsqfast._ext.storage.engine cimport disk_depth, has_next, take_next


cdef class MessageQueue(Timed):

    cdef int64_t oldest(self) except -2:
        """When it was published; 0 = there is none, -1 = unreadable."""
        return self.backlog.oldest()

    @property
    def backend_depth(self):
        return disk_depth(self.backlog)

    def age_ns(self):
        """The age of the oldest message here, without deferred ones; 0 = there is none, -1 = it is on disk and
        unreadable."""
        cdef int64_t oldest_ns = self.oldest()
        return max(wall_ns() - oldest_ns, 0) if oldest_ns > 0 else oldest_ns

    cdef int rearm(self, int64_t deadline_ns) except -1:
        """Call on_deadline no later than this. Too early costs one check; too late would be wrong."""
        if not self.is_armed or deadline_ns < self.node.deadline_ns:
            self.timers.arm(self, deadline_ns)
        return 0

    # -- limits --------------------------------------------------------------------------------------------------------

    cdef int64_t waiting_count(self) noexcept:
        return self.backlog.depth()

    cdef bint is_limited(self) noexcept:
        return self.max_messages > 0 or self.max_bytes > 0

    cdef bint has_room(self, uint64_t count, uint64_t size) noexcept:
        """Whether so many messages, with so many bytes in all, may come to those that wait."""
        if self.max_messages and self.waiting_count() + <int64_t> count > self.max_messages:
            return False
        return self.max_bytes == 0 or self.backlog.size() + <int64_t> size <= self.max_bytes

    cdef int drop_excess(self) except -1:
        """Drop a part of what is beyond the limits; the rest follows in later turns."""
        cdef Budget budget = begin_short_part()
        try:
            return 0 if self.drop_some(&budget) else self.rearm(self.timers.clock.monotonic_ns())
        except OSError:  # the broker's health reports it
            return self.rearm(self.timers.clock.monotonic_ns() + DISK_RETRY_NS)

    cdef bint drop_some(self, Budget *budget) except -1:
        """False: the part ended first. What a disk has yet to return is dropped when it is there."""
        cdef Delivery *delivery
        while self.drops_head and not self.has_room(0, 0) and has_next(self.backlog) and self.may_drop():
            delivery = take_next(self.backlog)
            if delivery is NULL:
                break
            if not self.drop(delivery, OVER_LIMIT):
                break
            if is_spent(budget, 1):
                return False
        return True

    cdef bint may_drop(self) except -1:
        return True

    cdef bint drop(self, Delivery *delivery, Reason reason) except -1:
        """False: it stays, outside the backlog, and so do the others for now."""
        self.backlog.done(delivery)
        if reason == EXPIRED:
            self.expired_count += 1
            self.backlog.store.expired_count += 1
        else:
            self.dropped_count += 1
            self.backlog.store.dropped_count += 1
        return True

    # -- age -----------------------------------------------------------------------------------------------------------

    def set_age(self, int64_t max_age_ns):
        """Let nothing wait for longer; 0 = any time."""
        self.max_age_ns = max_age_ns
        self.drop_old()

    cdef bint is_old(self, const Delivery *delivery) noexcept:
        return 0 < self.max_age_ns <= wall_ns() - delivery.message.timestamp_ns

    cdef int drop_old(self) except -1:
        """Drop what is too old, as far as it is in front, for a part; look again when the next one is."""
        cdef Budget budget = begin_short_part()
        if self.max_age_ns == 0:
            return 0
        try:
            while has_next(self.backlog) and self.drop_next_old():
                if is_spent(&budget, 1):
                    return self.rearm(self.timers.clock.monotonic_ns())
        except OSError:  # the broker's health reports it
            return self.rearm(self.timers.clock.monotonic_ns() + DISK_RETRY_NS)
        return 0

    cdef bint drop_next_old(self) except -1:
        """False: the next one is not too old, or cannot be dropped now."""
        cdef int64_t published_ns = next_published(self.backlog), now_ns = self.timers.clock.monotonic_ns()
        cdef int64_t left_ns = published_ns + self.max_age_ns - wall_ns()
        cdef Delivery *delivery
        if published_ns <= 0 or left_ns > 0:
            return self.rearm(now_ns + (left_ns if published_ns > 0 else DISK_RETRY_NS)) != 0
        if not self.may_drop():
            return False
        delivery = take_next(self.backlog)
        if delivery is NULL:
            return False
        if not self.is_old(delivery):
            self.backlog.requeue(delivery)
            return True
        return self.drop(delivery, EXPIRED)


cdef int64_t next_published(ChannelStore backlog) except -2:
    """When what take_next() takes was published; 0 = there is none, -1 = unreadable."""
    cdef uintptr_t item
    if backlog.memory.size == 0:
        return backlog.oldest()
    item = <uintptr_t> backlog.memory.ahead(0)
    if item & 1:
        return (<Message *> (item & ~<uintptr_t> 1)).timestamp_ns
    return (<Delivery *> item).message.timestamp_ns
