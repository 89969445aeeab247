"""A checkpoint sees one queue in each of its steps, with all that was taken from it; the broker goes on between two."""

from nsqfast._ext.core.budget cimport begin_part, is_spent
from nsqfast._ext.core.clock cimport monotonic_ns
from nsqfast._ext.core.due_heap cimport Due

# How often it is looked whether the disk has what a checkpoint waits for.
cdef int64_t WAIT_NS = 2000000

cdef enum:
    # Units that a queue counts for: the clock is read after each.
    QUEUE_UNITS = 64


cdef class Checkpoints(Timed):
    def __init__(self, Store store not None, Topics topics not None):
        self.store, self.timers, self.topics = store, store.timers, topics
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
                return self.timers.arm(self, now_ns + (1 if self.left else WAIT_NS))
            error = ""
        except OSError as failure:
            error = (failure.strerror or str(failure)).lower()
        self.running, self.left = None, []
        return self.store.end_checkpoint(error)

    cdef int begin(self) except -1:
        if self.topics.durability.closing:
            return 0
        self.running = self.store.begin_checkpoint()
        self.left = self.topics.sorted()
        return 0

    cdef bint go_on(self) except -1:
        """Do a part; return whether it is done."""
        cdef Budget budget = begin_part()
        while True:
            if not self.running.work(&budget):
                return False
            if not self.left:
                return self.running.finish(&budget)
            self.add_next()
            if is_spent(&budget, QUEUE_UNITS):
                return False

    cdef int add_next(self) except -1:
        cdef object queue = self.left.pop()
        if isinstance(queue, Channel):
            return 0 if (<Channel> queue).exiting else self.add_channel(queue)
        self.left += (<Topic> queue).channel_list
        return 0 if (<Topic> queue).exiting else self.add_topic(queue)

    cdef int add_topic(self, Topic topic) except -1:
        cdef InFlightQueue deferred = topic.deferred.queue
        cdef Delivery *delivery
        cdef uint64_t i
        self.running.begin_queue(topic.backlog)
        delivery = deferred.first
        while delivery is not NULL:
            self.add_deferred(delivery)
            delivery = delivery.next
        for i in range(deferred.others.size):
            self.add_deferred(<Delivery *> deferred.others.nodes[i])
        for i in range(<uint64_t> topic.takeover.count):
            delivery = topic.takeover.batch[i]
            if topic.takeover.has_deferred:
                self.add_deferred(delivery)
            else:
                self.running.add(delivery)
        return 0

    cdef int add_channel(self, Channel channel) except -1:
        cdef InFlightQueue queue
        cdef int64_t to_wall_ns = self.timers.clock.wall_ns() - self.timers.clock.monotonic_ns()
        cdef Due *due
        cdef uint64_t i
        self.running.begin_queue(channel.backlog)
        for queue in channel.in_flight_queues():
            self.add_queue(queue)
        for i in range(channel.deferred.size):
            self.running.add_deferred(<Delivery *> channel.deferred.nodes[i],
                                      to_wall_ns + channel.deferred.nodes[i].deadline_ns)
        for i in range(channel.stored.heap.size):
            due = &channel.stored.heap.entries[i]
            self.running.add_stored(due.ordinal, to_wall_ns + due.deadline_ns, due.is_told)
        return 0

    cdef int add_queue(self, InFlightQueue queue) except -1:
        cdef Delivery *delivery = queue.first
        cdef uint64_t i
        while delivery is not NULL:
            self.running.add(delivery)
            delivery = delivery.next
        for i in range(queue.others.size):
            self.running.add(<Delivery *> queue.others.nodes[i])
        return 0

    cdef int add_deferred(self, Delivery *delivery) except -1:
        """One that waits for a first channel: its delay begins there."""
        return self.running.add_deferred(
            delivery, self.timers.clock.wall_ns() + <int64_t> delivery.message.defer_ms * 1000000)
