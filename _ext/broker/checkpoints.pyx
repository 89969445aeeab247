"""A checkpoint is shown one queue after the other, a part in each turn, and the broker goes on between two parts.

    memory ─► in flight, or a topic's list of deferred ones ─► deferred ─► deferred on disk alone, or a topic's batch

What moves on in that order between two parts is met there; what goes back is shown by its ChannelStore when it does.
"""

from libc.stdint cimport INT64_MAX, uint32_t, uintptr_t

from nsqfast._ext.core.budget cimport begin_part, is_spent
from nsqfast._ext.core.clock cimport monotonic_ns
from nsqfast._ext.core.message cimport tries_before
from nsqfast._ext.core.ring cimport Ring

# How often it is looked whether the disk has what a checkpoint waits for.
cdef int64_t WAIT_NS = 2000000

cdef enum:
    # Units that a queue counts for: the clock is read after each.
    QUEUE_UNITS = 64

cdef enum:
    # What of a queue comes next.
    MEMORY = 0
    IN_FLIGHT = 1
    DEFERRED = 2
    STORED = 3
    ENDED = 4


cdef class Checkpoints(Timed):
    def __init__(self, Store store not None, Topics topics not None):
        self.store, self.timers, self.topics, self.queues = store, store.timers, topics, []
        store.on_checkpoint = self.want

    def want(self, int64_t delay_ns):
        """Begin one so much later."""
        if self.running is None:
            self.timers.arm(self, monotonic_ns() + delay_ns)

    cdef int on_deadline(self, int64_t now_ns) except -1:
        try:
            if self.running is None:
                self.begin()
            if self.running is None:
                return 0
            if not self.go_on():
                return self.timers.arm(self, now_ns + (WAIT_NS if self.queue is None and not self.left else 1))
            error = ""
        except OSError as failure:
            error = (failure.strerror or str(failure)).lower()
        if self.queue is not None:
            self.end_queue()
        self.running, self.left = None, []
        return self.store.end_checkpoint(error)

    cdef int begin(self) except -1:
        if self.topics.durability.closing:
            return 0
        self.running = self.store.begin_checkpoint()
        self.left = list(self.topics.by_name.values())
        return 0

    cdef bint go_on(self) except -1:
        """Do a part; return whether it is done."""
        cdef Budget budget = begin_part()
        while self.queue is not None or self.left:
            if self.queue is None:
                self.begin_queue(self.left.pop())
            if not self.show(&budget):
                return False
            self.end_queue()
            if is_spent(&budget, QUEUE_UNITS):
                return False
        return self.running.finish(&budget)

    cdef int begin_queue(self, MessageQueue queue) except -1:
        cdef Ring memory = queue.backlog.memory
        self.queue, self.phase = queue, ENDED
        if isinstance(queue, Topic):
            self.left += (<Topic> queue).channel_list
        if self.is_exiting() or not self.running.begin_queue(queue.backlog):
            return 0
        self.phase = MEMORY
        self.place = memory.number()
        self.end = self.place + <int64_t> memory.size
        queue.backlog.checkpoint = self.running
        return 0

    cdef bint is_exiting(self):
        if isinstance(self.queue, Topic):
            return (<Topic> self.queue).exiting
        return (<Channel> self.queue).exiting

    cdef int end_queue(self) except -1:
        """All of it was shown, or it is deleted, or there is no checkpoint."""
        cdef InFlightQueue queue
        if isinstance(self.queue, Channel):
            (<Channel> self.queue).end_showing()
        for queue in self.queues:
            queue.cursor = NULL
        self.queue.backlog.checkpoint = None
        self.queue, self.queues = None, []
        return 0

    # What a queue has, a part in each call: False as long as there is more

    cdef bint show(self, Budget *budget) except -1:
        while self.phase < ENDED and not self.is_exiting():
            if not self.show_some(budget):
                return False
            self.phase += 1
            self.place = INT64_MAX
        return True

    cdef bint show_some(self, Budget *budget) except -1:
        cdef int64_t to_wall_ns = self.timers.clock.wall_ns() - self.timers.clock.monotonic_ns()
        cdef Channel channel
        if self.phase == MEMORY:
            return self.show_memory(budget)
        if isinstance(self.queue, Topic):
            if self.phase == IN_FLIGHT:
                self.queues = [(<Topic> self.queue).deferred.queue]
            return self.show_queues(budget) if self.phase < STORED else self.show_batch(self.queue, budget)
        channel = self.queue
        if self.phase == IN_FLIGHT:
            if not self.queues:
                self.queues = channel.in_flight_queues()
            return self.show_queues(budget)
        if self.phase == DEFERRED:
            return channel.deferred.show(self.running, to_wall_ns, budget)
        return channel.stored.show(self.running, to_wall_ns, budget)

    cdef bint show_memory(self, Budget *budget) except -1:
        cdef Ring memory = self.queue.backlog.memory
        cdef int64_t first = memory.number(), end = first + <int64_t> memory.size
        cdef uintptr_t item
        cdef Message *message
        if self.running.has_moved:
            self.running.has_moved = False
            self.end = end      # what was before the old one may be behind it
        end = min(end, self.end)
        self.place = max(self.place, first)
        while self.place < end:
            item = <uintptr_t> memory.ahead(<size_t> (self.place - first))
            self.place += 1
            if item & 1:
                message = <Message *> (item & ~<uintptr_t> 1)
                self.running.keep(message, tries_before(message), 0)
            else:
                message = (<Delivery *> item).message
                self.running.add(<Delivery *> item)
            if self.place < end and self.running.ends_part(budget, message.size):
                return False
        return True

    cdef bint show_queues(self, Budget *budget) except -1:
        while self.queues:
            if not self.show_queue(self.queues[len(self.queues) - 1], budget):
                return False
            self.queues.pop()
        return True

    cdef bint show_queue(self, InFlightQueue queue, Budget *budget) except -1:
        """The heap last, in one go with the end of the list: one that is touched goes behind the others or there."""
        cdef uint64_t size
        cdef uint32_t i
        if queue.cursor is NULL:
            # Or the last one left, between two parts.
            queue.cursor = queue.first
        while queue.cursor is not NULL:
            self.show_one(queue.cursor)
            size = queue.cursor.message.size
            queue.cursor = queue.cursor.next
            if queue.cursor is not NULL and self.running.ends_part(budget, size):
                return False
        for i in range(queue.others.size):
            self.show_one(<Delivery *> queue.others.nodes[i])
        return True

    cdef bint show_batch(self, Topic topic, Budget *budget) except -1:
        """From its end: one that is left out has others behind it follow. A new batch was shown where it comes from."""
        cdef Delivery *delivery
        self.place = min(self.place, topic.takeover.count)
        while self.place:
            self.place -= 1
            delivery = topic.takeover.batch[self.place]
            self.show_one(delivery)
            if self.place and self.running.ends_part(budget, delivery.message.size):
                return False
        return True

    cdef void show_one(self, Delivery *delivery) noexcept:
        """The delay of one that waits for a first channel begins there."""
        if delivery.message.defer_ms and isinstance(self.queue, Topic):
            self.running.add_deferred(
                delivery, self.timers.clock.wall_ns() + <int64_t> delivery.message.defer_ms * 1000000)
        else:
            self.running.add(delivery)
