"""Messages go round the circle of ready consumers, the nearest first; the queue fills only while it is empty."""

import logging

from libc.stdint cimport int64_t, uint32_t, uint64_t
from libc.stdlib cimport free

from nsqfast._ext.clock cimport monotonic_ns, wall_ns
from nsqfast._ext.diskdeferred cimport DiskDeferred
from nsqfast._ext.heap cimport HeapNode
from nsqfast._ext.histogram cimport record
from nsqfast._ext.memory cimport MEMORY_FULL, MEMORY_SLOW, account
from nsqfast._ext.message cimport delivery_free

from nsqfast.errors import PublishError
from nsqfast.names import is_ephemeral

log = logging.getLogger("nsqd")

cdef int64_t RETRY_NS = 1000000000  # until a disk that could not be read is asked again


cdef class Channel(Queue):
    """Made by its topic. `on_last_left(name)` is called when an ephemeral channel lost its last consumer."""

    def __init__(self, str topic_name, str name, Storage storage, object on_last_left):
        self.topic_name = topic_name
        self.name = name
        self.ephemeral = is_ephemeral(name)
        self.backlog = Backlog(f"{topic_name}:{name}", storage, self.ephemeral)
        self.timers = storage.timers
        self.latency = None
        if storage.settings.latency_window_ns:
            self.latency = Latency(storage.settings.latency_window_ns)
        self.histogram = Histogram() if storage.settings.has_histogram else None
        self.table = InFlightTable()
        self.in_flight = InFlightLine()
        self.deferred = DeadlineHeap()
        self.members = {}
        self.ready = Circle()
        self.on_last_left = on_last_left
        self.dice = 0x2545F4914F6CDD1D
        self.restore_deferred()

    def __dealloc__(self):
        if self.in_flight is not None:
            drop_line(self.in_flight)
            drop_heap(self.deferred)

    # -- in ------------------------------------------------------------------------------------------------------------

    cdef int put(self, Message *message, int64_t now_ns) except -1:
        """Queue it, or defer it if its publisher asked for that. The caller counts it, and pumps afterwards."""
        cdef Delivery *delivery
        if self.exiting:
            raise PublishError("exiting")
        if message.defer_ms:
            delivery = self.fresh = self.backlog.defer(message)
            self.hold(delivery, now_ns + <int64_t> message.defer_ms * 1000000)
        else:
            self.backlog.put(message, self.ready.first is not None and not self.paused)
        return 0

    cdef int hold(self, Delivery *delivery, int64_t deadline_ns) except -1:
        delivery.owner = 0
        delivery.deadline_ns = deadline_ns
        self.deferred.push(<HeapNode *> delivery)
        return self.rearm(deadline_ns)

    cdef int restore_deferred(self) except -1:
        """What was deferred when the broker was stopped."""
        cdef DiskDeferred found = self.backlog.found_deferred()
        cdef int64_t due_ns = 0, to_monotonic_ns = monotonic_ns() - wall_ns()
        cdef Delivery *delivery = found.next(&due_ns) if found is not None else NULL
        while delivery is not NULL:
            self.hold(delivery, to_monotonic_ns + due_ns)
            delivery = found.next(&due_ns)
        return 0

    # -- out -----------------------------------------------------------------------------------------------------------

    cdef int pump(self) except -1:
        """Hand out what there is as long as somebody wants it."""
        cdef Consumer consumer
        cdef int64_t now_ns = 0
        if self.paused or self.exiting:
            return 0
        while self.ready.first is not None and (self.backlog.memory.size or self.backlog.disk_depth()):
            consumer = self.ready.first
            if not consumer.wants():
                self.ready.remove(consumer)
                continue
            if now_ns == 0:
                now_ns = monotonic_ns()
            if account.level >= MEMORY_SLOW and self.must_wait():
                return self.rearm(now_ns + RETRY_NS)
            try:
                if not self.hand_out(consumer, now_ns):
                    return 0
            except OSError:  # the health of the broker tells
                return self.rearm(now_ns + RETRY_NS)
            if self.ready.first is not None:
                self.ready.first = self.ready.first.next_ready
        return 0

    cdef bint must_wait(self) noexcept:
        """Memory is short, and another message from disk would take more; but one at a time always gets through."""
        if self.backlog.memory.size:
            return False
        return self.in_flight.size > 0 or (account.level >= MEMORY_FULL and self.deferred.size > 0)

    cdef bint hand_out(self, Consumer consumer, int64_t now_ns) except -1:
        """False: there was nothing after all (damage took what was left)."""
        cdef bint was_in_memory = self.backlog.memory.size > 0
        cdef Delivery *delivery = self.backlog.take()
        if delivery is NULL:
            return False
        if consumer.sample_percent and self.roll() >= consumer.sample_percent:
            self.backlog.done(delivery)
            return True
        delivery.attempts += 1
        delivery.owner = consumer.number
        delivery.delivered_ns = now_ns
        delivery.deadline_ns = now_ns + consumer.timeout_ns
        self.table.insert(delivery)
        self.in_flight.push(delivery)
        consumer.in_flight += 1
        self.taken[consumer.distance] += was_in_memory
        self.rearm(delivery.deadline_ns)
        consumer.deliver(delivery)
        return True

    cdef int roll(self) noexcept:
        """0..99, from a xorshift generator; sampling needs no better."""
        self.dice ^= self.dice << 13
        self.dice ^= self.dice >> 7
        self.dice ^= self.dice << 17
        return <int> (self.dice % 100)

    # -- consumers -----------------------------------------------------------------------------------------------------

    cdef int link(self, Consumer consumer) except -1:
        """It wants messages again."""
        if not consumer.is_linked and not self.exiting:
            self.ready.add(consumer)
        return 0

    cdef int join(self, Consumer consumer) except -1:
        self.members[consumer.number] = consumer
        return 0

    cdef int leave(self, Consumer consumer) except -1:
        """What was in flight to it is queued again at once (Go lets it wait for its timeout, §14 row 14)."""
        if self.members.pop(consumer.number, None) is None:
            return 0
        self.ready.remove(consumer)
        if not self.exiting:
            self.take_back(consumer)
            self.pump()
        if self.ephemeral and not self.members and not self.exiting:
            self.on_last_left(self.name)
        return 0

    cdef int take_back(self, Consumer consumer) except -1:
        cdef size_t i, count = 0
        cdef Delivery **owned = self.in_flight.owned_by(consumer.number, &count)
        try:
            for i in range(count):
                self.remove(owned[i])
                self.backlog.requeue(owned[i])
        finally:
            free(owned)
        consumer.in_flight = 0
        return 0

    # -- FIN, REQ, TOUCH -----------------------------------------------------------------------------------------------

    cdef Settled check(self, Consumer consumer, uint64_t id, Delivery **delivery) noexcept:
        cdef Entry *entry = self.table.find(id, consumer.number)
        if entry is NULL:
            return NOT_IN_FLIGHT
        delivery[0] = entry.delivery
        return SETTLED if entry.delivery.owner == consumer.number else NOT_OWNED

    cdef int remove(self, Delivery *delivery) except -1:
        """Take it out of the books on what is in flight."""
        self.table.remove(delivery)
        self.in_flight.remove(delivery)
        return 0

    cdef Settled finish(self, Consumer consumer, uint64_t id) except *:
        cdef Entry *entry = self.table.find(id, consumer.number)
        cdef Delivery *delivery
        if entry is NULL:
            return NOT_IN_FLIGHT
        delivery = entry.delivery
        if delivery.owner != consumer.number:
            return NOT_OWNED
        self.table.remove_at(entry)
        self.in_flight.remove(delivery)
        consumer.in_flight -= 1
        if self.histogram is not None:
            record(&self.histogram.steps, wall_ns() - delivery.message.timestamp_ns)
        if self.latency is not None:
            self.latency.record(wall_ns() - delivery.message.timestamp_ns, monotonic_ns())
        self.backlog.done(delivery)
        return SETTLED

    cdef Settled requeue(self, Consumer consumer, uint64_t id, int64_t delay_ns) except *:
        cdef Delivery *delivery
        cdef Settled settled = self.check(consumer, id, &delivery)
        if settled != SETTLED:
            return settled
        if self.exiting:
            return EXITING  # it stays in flight and so gets stored
        self.remove(delivery)
        consumer.in_flight -= 1
        self.requeue_count += 1
        if delay_ns:
            self.backlog.rewrite(delivery)
            self.hold(delivery, monotonic_ns() + delay_ns)
        else:
            self.backlog.requeue(delivery)
        return SETTLED

    cdef Settled touch(self, Consumer consumer, uint64_t id, int64_t hold_max_ns) except *:
        """A new deadline, never beyond `hold_max_ns` after the delivery."""
        cdef Delivery *delivery
        cdef Settled settled = self.check(consumer, id, &delivery)
        if settled == SETTLED:
            self.in_flight.remove(delivery)
            delivery.deadline_ns = min(monotonic_ns() + consumer.timeout_ns, delivery.delivered_ns + hold_max_ns)
            self.in_flight.push(delivery)
            self.rearm(delivery.deadline_ns)
        return settled

    # -- time ----------------------------------------------------------------------------------------------------------

    cdef int rearm(self, int64_t deadline_ns) except -1:
        """An alarm that is early costs one look; only a late one would be wrong."""
        if not self.is_armed or deadline_ns < self.node.deadline_ns:
            self.timers.arm(self, deadline_ns)
        return 0

    cdef int on_deadline(self, int64_t now_ns) except -1:
        cdef Delivery *due = self.in_flight.peek()
        cdef HeapNode *node = self.deferred.peek()
        while due is not NULL and due.deadline_ns <= now_ns:
            self.expire(due)
            due = self.in_flight.peek()
        if due is not NULL:
            self.rearm(due.deadline_ns)
        while node is not NULL and node.deadline_ns <= now_ns:
            self.deferred.remove(node)
            self.backlog.requeue(<Delivery *> node)
            node = self.deferred.peek()
        if node is not NULL:
            self.rearm(node.deadline_ns)
        return self.pump()

    cdef int expire(self, Delivery *delivery) except -1:
        cdef Consumer consumer = self.members.get(delivery.owner)
        self.remove(delivery)
        self.timeout_count += 1
        self.backlog.requeue(delivery)
        if consumer is not None:
            consumer.in_flight -= 1
            self.link(consumer)
        return 0

    # -- the operator's commands ---------------------------------------------------------------------------------------

    def pause(self):
        """No more deliveries; what is in flight stays so."""
        self.paused = True

    def unpause(self):
        self.paused = False
        self.pump()

    def empty(self):
        """Drop what is queued, in flight and deferred."""
        cdef Consumer consumer
        self.backlog.empty()
        self.table = InFlightTable()
        drop_line(self.in_flight)
        drop_heap(self.deferred)
        for consumer in self.members.values():
            consumer.in_flight = 0
            self.link(consumer)

    cdef Flush flush(self):
        """All that is held in memory to disk, for a stop: queued, then in flight, then deferred. None: there are no
        files."""
        cdef Flush flush
        cdef int64_t queued = <int64_t> self.backlog.memory.size
        self.exiting = True
        self.timers.disarm(self)
        if self.backlog.disk is None:
            return None
        if queued or self.in_flight.size or self.deferred.size:
            log.info("CHANNEL(%s): flushing %d memory %d in-flight %d deferred messages to backend",
                     self.name, queued, self.in_flight.size, self.deferred.size)
        flush = Flush(self.backlog)
        flush.add_memory()
        self.flush_rest(flush)
        flush.end()
        return flush

    cdef int flush_rest(self, Flush flush) except -1:
        """What is in flight and what is deferred, each in the order of its deadlines."""
        cdef Delivery *delivery = self.in_flight.peek()
        cdef int64_t to_wall_ns = wall_ns() - monotonic_ns()
        self.table = InFlightTable()
        while delivery is not NULL:
            self.in_flight.remove(delivery)
            flush.add(delivery)
            delivery = self.in_flight.peek()
        if self.deferred.size:
            flush.begin_deferred()
        while self.deferred.size:
            delivery = <Delivery *> self.deferred.peek()
            self.deferred.remove(<HeapNode *> delivery)
            flush.add_deferred(delivery, to_wall_ns + delivery.deadline_ns)
        return 0

    cdef int delete(self) except -1:
        """Consumers are cut off, files go."""
        cdef Consumer consumer
        self.exiting = True
        self.timers.disarm(self)
        members = list(self.members.values())
        self.members = {}
        for consumer in members:
            self.ready.remove(consumer)
            consumer.cut()
        self.table = InFlightTable()
        drop_line(self.in_flight)
        drop_heap(self.deferred)
        return self.backlog.delete_files()

    # -- figures -------------------------------------------------------------------------------------------------------

    @property
    def depth(self):
        return self.backlog.depth()

    @property
    def backend_depth(self):
        return self.backlog.disk_depth()

    @property
    def in_flight_count(self):
        return self.in_flight.size

    @property
    def deferred_count(self):
        return self.deferred.size

    cdef int64_t oldest(self) except -2:
        cdef int64_t queued_ns = self.backlog.oldest(), in_flight_ns = self.in_flight.oldest()
        if queued_ns <= 0 or 0 < in_flight_ns < queued_ns:
            return in_flight_ns or queued_ns
        return queued_ns

    @property
    def consumer_count(self):
        return len(self.members)

    @property
    def taken_counts(self):
        """Deliveries from memory to consumers of this zone, of this region, and others (spec nsqd-tcp §14).

        Zeros unless consumption is topology-aware.
        """
        if not self.backlog.storage.settings.is_topology_aware:
            return 0, 0, 0
        return self.taken[0], self.taken[1], self.taken[2]

    def consumers(self):
        """The sessions that are subscribed."""
        return list(self.members.values())


cdef int drop_line(InFlightLine line) noexcept:
    cdef Delivery *delivery = line.peek()
    while delivery is not NULL:
        line.remove(delivery)
        delivery_free(delivery)
        delivery = line.peek()
    return 0


cdef int drop_heap(DeadlineHeap heap) noexcept:
    cdef uint32_t i
    for i in range(heap.size):
        delivery_free(<Delivery *> heap.nodes[i])
    heap.size = 0
    return 0
