"""A message goes to the next consumer of the ready ring, the nearest first; the queue fills only when it is empty."""

import logging

from libc.stdint cimport INT64_MAX, int64_t, uint64_t

from nsqfast._ext.broker.consumer cimport DisconnectLater
from nsqfast._ext.broker.dead_letters cimport EXPIRED, FAILED, REJECTED
from nsqfast._ext.broker.deferrals cimport begin_deferral
from nsqfast._ext.broker.stored_deferrals cimport AWAITED, READ, Recall
from nsqfast._ext.core.budget cimport begin_part, begin_short_part, is_spent
from nsqfast._ext.core.due_heap cimport Due, DueHeap
from nsqfast._ext.core.heap cimport HeapNode
from nsqfast._ext.core.histogram cimport record
from nsqfast._ext.core.in_flight cimport InFlightQueue, oldest_published
from nsqfast._ext.core.limits cimport DISK_RETRY_NS
from nsqfast._ext.core.memory cimport MEMORY_FULL, MEMORY_SLOW
from nsqfast._ext.core.message cimport FAILURES_MAX, delivery_free, message_new
from nsqfast._ext.storage.disposal cimport Disposal
from nsqfast._ext.storage.engine cimport has_next, take_next

from nsqfast._ext.broker.dead_letters import REASONS
from nsqfast.wire.names import is_ephemeral
from nsqfast.wire.refusals import NotTakenError

log = logging.getLogger("nsqd")

# The reason of what a consumer gives back unseen, since it ends: no failure.
cdef bytes NOT_TRIED = b"-"

cdef enum:
    # Deferred messages that one write stores, and bytes of their bodies.
    STORED_GROUP = 64
    STORED_SIZE = 262144
    # Of writing or reading one of them.
    STORED_UNITS = 16

# What is due earlier stays in memory: it would cost a write and a read.
cdef int64_t LONG_NS = 60000000000
# Time to wait until the disk has taken some of what gathers for the log.
cdef int64_t LOG_WAIT_NS = 5000000
# What a rate allows in this time may go at once.
cdef int64_t BURST_NS = 100000000


cdef class Channel(MessageQueue):
    """The topic creates it. `on_last_left(name)` is called when an ephemeral channel loses its last consumer."""

    def __init__(self, str topic_name, str name, Store store, ChannelStore backlog, object on_last_left):
        self.topic_name = topic_name
        self.name = name
        self.ephemeral = is_ephemeral(name)
        self.backlog = backlog
        self.store, self.timers = store, store.timers
        self.account = store.broker_memory.account
        self.clock = self.timers.clock
        self.latency = None
        if store.settings.latency_window_ns:
            self.latency = Latency(store.settings.latency_window_ns)
        self.histogram = Histogram() if store.settings.has_histogram else None
        self.table = InFlightTable(store.broker_memory)
        self.timeouts = Timeouts(store.broker_memory)
        self.returning = []
        self.deferred = DeferredHeap(store.broker_memory)
        self.stored = StoredDeferrals(backlog, store.broker_memory)
        self.members = {}
        self.ready = ReadyRing()
        self.on_last_left = on_last_left
        self.random_state = 0x2545F4914F6CDD1D
        backlog.taker = self
        self.restore_deferred()

    # -- in ------------------------------------------------------------------------------------------------------------

    cdef int put(self, Message *message, int64_t now_ns) except -1:
        """Queue the message, or defer it if its publisher asked for that. The caller counts it and pumps afterwards."""
        cdef Delivery *delivery
        if self.exiting:
            raise NotTakenError("exiting")
        if message.defer_ms:
            delivery = self.fresh = begin_deferral(self.backlog, message)
            self.defer(delivery, now_ns + <int64_t> message.defer_ms * 1000000)
        else:
            self.backlog.put(message, self.ready.first is not None and not self.paused)
        return self.rearm(now_ns + self.max_age_ns) if self.max_age_ns else 0

    cdef int defer(self, Delivery *delivery, int64_t deadline_ns) except -1:
        delivery.owner = 0
        delivery.deadline_ns = deadline_ns
        self.deferred.push(<HeapNode *> delivery)
        if self.backlog.keeps_records and self.deferred.is_crowded() and self.gather_deferred(NULL):
            deadline_ns = self.clock.monotonic_ns()     # store_deferred
        return self.rearm(deadline_ns)

    cdef int defer_again(self, Delivery *delivery) except -1:
        """It was removed, and its deferral goes on."""
        if self.backlog.checkpoint is not None:
            self.backlog.checkpoint.add_deferred(
                delivery, delivery.deadline_ns - self.clock.monotonic_ns() + self.clock.wall_ns())
        return self.defer(delivery, delivery.deadline_ns)

    cdef int restore_deferred(self) except -1:
        """Defer again what was deferred when the broker stopped."""
        cdef int64_t due_ns = 0, to_monotonic_ns = self.clock.monotonic_ns() - self.clock.wall_ns()
        cdef Budget endless = Budget(0, INT64_MAX)
        cdef Delivery *delivery = self.backlog.next_found(&due_ns)
        while delivery is not NULL:
            self.defer(delivery, to_monotonic_ns + due_ns)
            self.store_deferred(&endless, False)
            delivery = self.backlog.next_found(&due_ns)
        # Few messages would keep the memory that all had.
        return self.store_deferred(&endless, self.stored.heap.size > 0) - 1

    # -- out -----------------------------------------------------------------------------------------------------------

    cdef int pump(self) except -1:
        """Hand out messages while consumers want them; when the part is over, the rest follows in later turns."""
        cdef Consumer consumer
        cdef int64_t now_ns = 0
        cdef Budget budget = begin_short_part()
        if self.paused or self.exiting:
            return 0
        while self.ready.first is not None and has_next(self.backlog):
            consumer = self.ready.first
            if not consumer.wants():
                self.ready.remove(consumer)
                continue
            if now_ns == 0:
                now_ns = self.clock.monotonic_ns()
            if (self.max_in_flight or self.interval_ns or self.breaker is not None) and not self.may_deliver(now_ns):
                return 0
            if self.account.level >= MEMORY_SLOW and self.must_wait():
                return self.rearm(now_ns + DISK_RETRY_NS)
            try:
                if not self.deliver_next(consumer, now_ns):
                    return self.rearm(now_ns + 1) if has_next(self.backlog) and not self.backlog.is_pending else 0
            except OSError:  # the broker's health reports it
                return self.rearm(now_ns + DISK_RETRY_NS)
            if self.ready.first is not None:
                self.ready.first = self.ready.first.next_ready
            if is_spent(&budget, 1):
                return self.rearm(now_ns + 1)
        return 0

    cdef bint must_wait(self) noexcept:
        """Memory is short, and a message from disk would take more of it; but one at a time always gets through."""
        if self.backlog.memory.size:
            return False
        return self.table.size > 0 or (self.account.level >= MEMORY_FULL and self.deferred.size > 0)

    cdef bint deliver_next(self, Consumer consumer, int64_t now_ns) except -1:
        """Deliver the next message to it; False: there was none (all that was left is damaged), or not yet."""
        cdef bint was_in_memory = self.backlog.memory.size > 0
        cdef Delivery *delivery = take_next(self.backlog)
        if delivery is NULL:
            return False
        if consumer.sample_percent and self.random_share() * 100 >= consumer.sample_percent:
            self.backlog.done(delivery)
            return True
        if 0 < self.failures_max <= delivery.failures and not self.dead_letters.is_exempt():
            return True if self.bury(delivery, FAILED, None, b"") else self.keep_dead(delivery) == 0
        if self.max_age_ns and self.is_old(delivery):
            self.drop(delivery, EXPIRED)
            return True
        delivery.attempts += 1
        delivery.owner = consumer.number
        delivery.delivered_ns = now_ns
        delivery.deadline_ns = now_ns + consumer.timeout_ns
        self.table.insert(delivery)
        if consumer.in_flight == 0 and now_ns - consumer.timed_out_ns > consumer.timeout_ns:
            consumer.held_since_ns = now_ns
        consumer.in_flight_queue.push(delivery)
        consumer.in_flight += 1
        self.delivery_count += 1
        if self.interval_ns:
            self.next_ns = max(self.next_ns, now_ns - BURST_NS) + self.interval_ns
        self.taken[consumer.distance] += was_in_memory
        if not consumer.is_watched or delivery.deadline_ns < consumer.due.deadline_ns:
            self.watch(consumer, delivery.deadline_ns)
        consumer.deliver(delivery)
        return True

    cdef bint may_deliver(self, int64_t now_ns) except -1:
        """Whether the policy lets another one go; if not, it goes as soon as it may."""
        self.is_held = 0 < self.max_in_flight <= <int64_t> self.table.size
        if self.breaker is not None and self.breaker.is_open:
            if now_ns < self.breaker.retry_ns:
                return self.rearm(self.breaker.retry_ns) != 0
            self.is_held = self.is_held or self.table.size > 0
        if self.is_held:
            return False
        if self.interval_ns and self.next_ns > now_ns:
            return self.rearm(self.next_ns)
        return True

    cdef double random_share(self) noexcept:
        """From 0 up to 1, from a xorshift generator; sampling and jitter need no better one."""
        self.random_state ^= self.random_state << 13
        self.random_state ^= self.random_state >> 7
        self.random_state ^= self.random_state << 17
        return (self.random_state >> 11) * (1.0 / 9007199254740992)     # 53 bits

    # -- consumers -----------------------------------------------------------------------------------------------------

    cdef int add_ready(self, Consumer consumer) except -1:
        """Enter the consumer into the ready ring."""
        if not consumer.is_in_ring and not self.exiting:
            self.ready.add(consumer)
        return 0

    cdef int join(self, Consumer consumer) except -1:
        self.last_number += 1
        consumer.number = self.last_number
        consumer.in_flight_queue = InFlightQueue(self.store.broker_memory)
        consumer.held_since_ns = self.clock.monotonic_ns()
        self.members[consumer.number] = consumer
        return 0

    cdef int leave(self, Consumer consumer) except -1:
        """Remove the consumer. What was in flight to it is queued again in later turns; Go waits for the timeout
        instead (spec nsqd-core §14 row 14)."""
        if self.members.pop(consumer.number, None) is None:
            return 0
        self.ready.remove(consumer)
        self.timeouts.remove(consumer)
        consumer.in_flight = 0
        if consumer.in_flight_queue.size and not self.exiting:
            self.returning.append(consumer.in_flight_queue)
            self.rearm(self.clock.monotonic_ns())
        if self.ephemeral and not self.members and not self.exiting:
            self.on_last_left(self.name)
        return 0

    cdef bint requeue_returning(self, Budget *budget) except -1:
        """Queue again what was in flight to consumers that left; False: the part ended first."""
        cdef InFlightQueue queue
        cdef Delivery *delivery
        while self.returning:
            queue = self.returning[0]
            while queue.size:
                delivery = queue.peek()
                self.table.remove(delivery)
                queue.remove(delivery)
                self.backlog.requeue(delivery)
                if is_spent(budget, 1):
                    return False
            del self.returning[0]
        return True

    # -- FIN, REQ, TOUCH -----------------------------------------------------------------------------------------------

    cdef Outcome check(self, Consumer consumer, uint64_t id, Delivery **delivery) noexcept:
        cdef Entry *entry = self.table.find(id, consumer.number)
        if entry is NULL:
            return NOT_IN_FLIGHT
        delivery[0] = entry.delivery
        return DONE if entry.delivery.owner == consumer.number else NOT_OWNED

    cdef int remove(self, Consumer consumer, Delivery *delivery) except -1:
        """The delivery is not in flight any more."""
        self.table.remove(delivery)
        consumer.in_flight_queue.remove(delivery)
        consumer.in_flight -= 1
        if self.is_held:
            self.rearm(self.clock.monotonic_ns())
        return 0

    cdef Outcome finish(self, Consumer consumer, uint64_t id) except *:
        cdef Entry *entry = self.table.find(id, consumer.number)
        cdef Delivery *delivery
        if entry is NULL:
            return NOT_IN_FLIGHT
        delivery = entry.delivery
        if delivery.owner != consumer.number:
            return NOT_OWNED
        self.table.remove_at(entry)
        consumer.in_flight_queue.remove(delivery)
        consumer.in_flight -= 1
        consumer.held_since_ns = self.clock.monotonic_ns()
        self.finish_count += 1
        if self.histogram is not None:
            record(&self.histogram.steps, self.clock.wall_ns() - delivery.message.timestamp_ns)
        if self.latency is not None:
            self.latency.record(self.clock.wall_ns() - delivery.message.timestamp_ns, self.clock.monotonic_ns())
        if self.breaker is not None and self.breaker.finish(consumer.held_since_ns):
            log.info("CHANNEL(%s:%s) goes on, a message was finished", self.topic_name, self.name)
            self.rearm(consumer.held_since_ns)
        if self.is_held:
            self.rearm(self.clock.monotonic_ns())
        self.backlog.done(delivery)
        return DONE

    cdef Outcome requeue(self, Consumer consumer, uint64_t id, int64_t delay_ns, bytes error=b"") except *:
        cdef Delivery *delivery
        cdef Outcome outcome = self.check(consumer, id, &delivery)
        if outcome != DONE:
            return outcome
        if self.exiting:
            return EXITING  # it stays in flight, so it is stored
        self.remove(consumer, delivery)
        consumer.held_since_ns = self.clock.monotonic_ns()
        self.requeue_count += 1
        self.give_back(consumer, delivery, delay_ns, error)
        return DONE

    cdef Outcome reject(self, Consumer consumer, uint64_t id, bytes error) except *:
        """It dies at once, whatever is left of its attempts."""
        cdef Delivery *delivery
        cdef Outcome outcome = self.check(consumer, id, &delivery)
        if outcome != DONE:
            return outcome
        if self.exiting or self.dead_letters.is_exempt():
            return EXITING if self.exiting else REFUSED
        self.remove(consumer, delivery)
        consumer.held_since_ns = self.clock.monotonic_ns()
        if not self.bury(delivery, REJECTED, consumer, error):
            self.keep_dead(delivery)
        return DONE

    cdef int give_back(self, Consumer consumer, Delivery *delivery, int64_t delay_ns, bytes error) except -1:
        """It failed: its consumer gave it back, or its time is over."""
        cdef bint has_failed = error != NOT_TRIED
        if has_failed and self.breaker is not None:
            self.note_failure()
        if has_failed and self.failures_max:
            delivery.failures += delivery.failures < FAILURES_MAX
            if delivery.failures >= self.failures_max and not self.dead_letters.is_exempt():
                return 0 if self.bury(delivery, FAILED, consumer, error) else self.keep_dead(delivery)
        if delay_ns == 0 and has_failed and self.retry is not None:
            delay_ns = self.retry.delay_ns(delivery.attempts, self.random_share())
        if delay_ns == 0:
            self.backlog.requeue(delivery)
            return self.rearm(self.clock.monotonic_ns()) if self.max_age_ns else 0
        self.backlog.defer(delivery, False, delay_ns)
        return self.defer(delivery, self.clock.monotonic_ns() + delay_ns)

    cdef bint must_wait_to_die(self, uint64_t id) noexcept:
        """Whether a message that fails for the last time should do so later: the log takes its body once more."""
        cdef Entry *entry
        if not self.failures_max or not self.store.delays_answers():
            return False
        entry = self.table.find(id, 0)
        return entry is not NULL and entry.delivery.failures + 1 >= self.failures_max

    cdef bint bury(self, Delivery *delivery, Reason reason, Consumer consumer, bytes error) except -1:
        """A dead letter takes its place; False: none can now."""
        if not self.dead_letters.take(delivery, reason, consumer, error):
            return False
        self.dead_counts[<int> reason] += 1
        self.backlog.done(delivery)
        return True

    cdef int keep_dead(self, Delivery *delivery) except -1:
        """The topic of dead letters has no room for it: it waits, and is tried again before it would be delivered."""
        cdef int64_t now_ns = self.clock.monotonic_ns(), until_ns = max(self.dead_letters.retry_ns, now_ns + 1)
        # It has been due, whatever becomes of it.
        delivery.failures = max(delivery.failures, 1)
        self.backlog.defer(delivery, False, until_ns - now_ns)
        return self.defer(delivery, until_ns)

    cdef bint may_drop(self) except -1:
        """False: what would be dropped dies, and there is no room for it."""
        if (self.dead_letters is None or not self.dead_letters.takes_dropped
                or self.clock.monotonic_ns() >= self.dead_letters.retry_ns):
            return True
        return self.rearm(self.dead_letters.retry_ns) != 0

    cdef bint drop(self, Delivery *delivery, Reason reason) except -1:
        if self.dead_letters is None or not self.dead_letters.takes_dropped or self.dead_letters.is_exempt():
            return MessageQueue.drop(self, delivery, reason)
        if not self.bury(delivery, reason, None, b""):
            self.keep_dead(delivery)
            return False
        return True

    cdef int note_failure(self) except -1:
        cdef bint was_open = self.breaker.is_open
        if self.breaker.fail(self.clock.monotonic_ns()) and not was_open:
            log.warning("CHANNEL(%s:%s) is paused for %d ms by its policy: %d of %d deliveries failed", self.topic_name,
                        self.name, self.breaker.pause_ns // 1000000, self.breaker.failed_count,
                        self.breaker.ended_count)
        return 0

    cdef Outcome touch(self, Consumer consumer, uint64_t id, int64_t in_flight_max_ns) except *:
        """Set a new deadline, at most `in_flight_max_ns` after the delivery."""
        cdef Delivery *delivery
        cdef Outcome outcome = self.check(consumer, id, &delivery)
        if outcome == DONE:
            consumer.in_flight_queue.remove(delivery)
            delivery.deadline_ns = min(self.clock.monotonic_ns() + consumer.timeout_ns,
                                       delivery.delivered_ns + in_flight_max_ns)
            consumer.in_flight_queue.push(delivery)
            if not consumer.is_watched or delivery.deadline_ns < consumer.due.deadline_ns:
                self.watch(consumer, delivery.deadline_ns)
        return outcome

    # -- time ----------------------------------------------------------------------------------------------------------

    cdef int watch(self, Consumer consumer, int64_t deadline_ns) except -1:
        """Check at this time what is in flight to the consumer."""
        if consumer.is_watched or consumer.number in self.members:
            self.timeouts.put(consumer, deadline_ns)
        return self.rearm(deadline_ns)

    cdef int on_deadline(self, int64_t now_ns) except -1:
        """Process as much of what is due as fits into a part; the rest follows in later turns."""
        cdef Budget budget = begin_part()
        if not (self.requeue_returning(&budget) and self.expire(now_ns, &budget)
                and self.queue_deferred(now_ns, &budget) and self.store_deferred(&budget, False)
                and self.renew(&budget)):
            self.rearm(now_ns + 1)
        self.pump()
        if self.max_age_ns:
            self.drop_old()
        return self.drop_excess() if self.drops_head else 0

    cdef bint expire(self, int64_t now_ns, Budget *budget) except -1:
        """Queue again what timed out; False: the part ended first."""
        cdef Consumer consumer = self.timeouts.first()
        cdef Delivery *delivery
        while consumer is not None and consumer.due.deadline_ns <= now_ns:
            delivery = consumer.in_flight_queue.peek()
            self.remove(consumer, delivery)
            consumer.timed_out_ns = now_ns
            consumer.timeout_count += 1
            self.timeout_count += 1
            self.add_ready(consumer)
            self.give_back(consumer, delivery, 0, b"")
            if is_spent(budget, 1):
                return False
            consumer = self.timeouts.first()
        if consumer is not None:
            self.rearm(consumer.due.deadline_ns)
        return True

    cdef bint queue_deferred(self, int64_t now_ns, Budget *budget) except -1:
        """Queue the deferred messages that are due, in memory and on disk; False: the part ended first."""
        cdef HeapNode *node = self.deferred.peek()
        cdef DueHeap stored = self.stored.heap
        cdef bint is_awaiting = False
        cdef int64_t units
        while True:
            if stored.size and not is_awaiting and (
                    node is NULL or stored.entries[0].deadline_ns < node.deadline_ns):
                if stored.entries[0].deadline_ns > now_ns:
                    return self.rearm(stored.entries[0].deadline_ns) == 0
                is_awaiting = not self.queue_stored(now_ns)
                units = STORED_UNITS
            elif node is not NULL and node.deadline_ns <= now_ns:
                self.deferred.remove(node)
                self.queue_due(<Delivery *> node)
                units = 1
            else:
                break
            if is_spent(budget, units):
                return False
            node = self.deferred.peek()
        if node is not NULL:
            self.rearm(node.deadline_ns)
        return True

    cdef bint queue_stored(self, int64_t now_ns) except -1:
        """Queue the first of those on disk; False: a disk has to answer first."""
        cdef Delivery *delivery = NULL
        cdef Recall recall = self.stored.recall_first(now_ns, &delivery)
        if recall == READ:
            self.queue_due(delivery)
        return recall != AWAITED

    cdef int queue_due(self, Delivery *delivery) except -1:
        """Where age counts, that of a message which its publisher deferred begins now; other channels may have the
        same one."""
        cdef Message *message
        if self.max_age_ns == 0 or delivery.attempts or delivery.failures:
            return self.backlog.requeue(delivery)
        message = message_new(self.account, delivery.message.body, delivery.message.size, self.clock.wall_ns(),
                              delivery.message.id)
        if message is NULL:
            raise MemoryError
        return self.backlog.requeue_as(delivery, message)

    cdef bint store_deferred(self, Budget *budget, bint is_all) except -1:
        """Keep only the first of the deferred messages in memory, or (is_all) those due soon; False: the part ended
        first."""
        cdef Delivery *group[STORED_GROUP]
        cdef size_t i, count
        if self.exiting or not self.backlog.keeps_records:
            return True
        while is_all or self.deferred.is_crowded():
            count = self.gather_deferred(group)
            if count == 0 or not self.backlog.store_deferred(group, count):
                break
            for i in range(count):
                self.stored.put(group[i])
                self.deferred.remove(<HeapNode *> group[i])
                delivery_free(group[i])
            if is_spent(budget, STORED_UNITS * <int64_t> count):
                return False
        if self.stored.heap.size:
            self.rearm(self.stored.heap.peek().deadline_ns)
        return True

    cdef size_t gather_deferred(self, Delivery **group) noexcept:
        """The last members of a heap are due late, if not last. Return how many of these are to be on disk alone; if
        `group` is NULL, only whether there are any."""
        cdef int64_t until_ns = self.clock.monotonic_ns() + LONG_NS, size = 0
        cdef Delivery *delivery
        cdef size_t count = 0
        while count < STORED_GROUP and count + 1 < self.deferred.size and size < STORED_SIZE:
            delivery = <Delivery *> self.deferred.nodes[self.deferred.size - 1 - count]
            if delivery.deadline_ns < until_ns:
                break
            size += delivery.message.size
            count += 1
            if group is NULL:
                break
            group[count - 1] = delivery
        return count

    cdef bint renew(self, Budget *budget) except -1:
        """Write stale records again; False: the part ended first."""
        if self.renewal is None:
            if self.backlog.stale_before == 0 or self.exiting:
                return True
            self.renewal = Renewal(self.backlog)
        if self.store.must_wait():
            return self.rearm(self.clock.monotonic_ns() + LOG_WAIT_NS) == 0
        if not self.renewal.go_on(self.table, self.deferred, self.stored, budget):
            return self.renewal.is_waiting
        self.renewal = None
        return True

    cdef int end_showing(self) except -1:
        """Nothing is shown to a checkpoint any more."""
        self.backlog.checkpoint = self.deferred.checkpoint = self.stored.checkpoint = None
        self.deferred.shown = self.stored.shown = 0
        return 0

    # -- the operator's commands ---------------------------------------------------------------------------------------

    def pause(self):
        """Stop deliveries; messages in flight stay in flight."""
        self.paused = True

    def unpause(self):
        self.paused = False
        self.pump()

    def set_flow(self, int64_t max_in_flight, int64_t interval_ns):
        """Let no more be in flight, and leave such a time between two deliveries, on average; 0 = any."""
        self.max_in_flight, self.interval_ns, self.next_ns = max_in_flight, interval_ns, 0
        self.pump()

    def empty(self):
        """Drop all messages: queued, in flight and deferred."""
        cdef Consumer consumer
        self.backlog.empty()
        self.drop_deliveries()
        for consumer in self.members.values():
            consumer.in_flight = 0
            self.add_ready(consumer)

    cdef int drop_deliveries(self) except -1:
        """Drop messages in flight and deferred ones."""
        cdef InFlightQueue queue
        cdef Disposal disposal = self.store.disposal
        for queue in self.in_flight_queues():
            disposal.free_later(queue.take_all())
        disposal.free_later(self.deferred)
        self.table = InFlightTable(self.store.broker_memory)
        self.deferred = DeferredHeap(self.store.broker_memory)
        self.stored = StoredDeferrals(self.backlog, self.store.broker_memory)
        self.returning = []
        return 0

    cdef Closing close(self):
        """Write everything in memory to disk, for a stop: queued, then in flight, then deferred. None: there are no
        files."""
        cdef Closing closing
        cdef int64_t queued = <int64_t> self.backlog.memory.size
        self.exiting = True
        self.timers.disarm(self)
        self.end_showing()
        closing = self.store.begin_closing(self.backlog)
        if closing is None:
            return None
        if queued or self.table.size or self.deferred_count:
            log.info("CHANNEL(%s): flushing %d memory %d in-flight %d deferred messages to backend",
                     self.name, queued, self.table.size, self.deferred_count)
        self.add_deliveries(closing)
        closing.end()
        return closing

    cdef int add_deliveries(self, Closing closing) except -1:
        """Write what is in flight, to consumers that left first, and what is deferred, each in order of deadline."""
        cdef InFlightQueue queue
        cdef Consumer consumer
        cdef Delivery *delivery
        cdef int64_t to_wall_ns = self.clock.wall_ns() - self.clock.monotonic_ns()
        self.table = InFlightTable(self.store.broker_memory)
        for queue in self.returning:
            while queue.size:
                delivery = queue.peek()
                queue.remove(delivery)
                closing.add(delivery)
        consumer = self.timeouts.first()
        while consumer is not None:
            delivery = consumer.in_flight_queue.peek()
            consumer.in_flight_queue.remove(delivery)
            closing.add(delivery)
            consumer = self.timeouts.first()
        delivery = self.take_deferred()
        while delivery is not NULL:
            closing.add_deferred(delivery, to_wall_ns + delivery.deadline_ns)
            delivery = self.take_deferred()
        return 0

    cdef Delivery *take_deferred(self) except? NULL:
        """Remove and return the one that is due first, in memory or on disk; NULL: no more. What cannot be read now is
        left to the next start, and due at once."""
        cdef Delivery *delivery = NULL
        cdef Due *due = self.stored.heap.peek()
        while due is not NULL and (self.deferred.size == 0 or due.deadline_ns < self.deferred.peek().deadline_ns):
            if self.stored.recall_first(INT64_MAX - DISK_RETRY_NS, &delivery) == READ:
                return delivery
            due = self.stored.heap.peek()
            if due is not NULL and due.deadline_ns == INT64_MAX:
                due = NULL
        delivery = <Delivery *> self.deferred.peek()
        if delivery is not NULL:
            self.deferred.remove(<HeapNode *> delivery)
        return delivery

    cdef int delete(self) except -1:
        """Remove messages and files; consumers are disconnected from the next turn on."""
        cdef Consumer consumer
        cdef DisconnectLater later = DisconnectLater(self.timers)
        self.exiting = True
        self.timers.disarm(self)
        self.drop_deliveries()
        members, self.members = self.members, {}
        for consumer in members.values():
            self.ready.remove(consumer)
            self.timeouts.remove(consumer)
            later.add(consumer)
        return self.backlog.delete()

    # -- figures -------------------------------------------------------------------------------------------------------

    @property
    def depth(self):
        return self.backlog.depth()

    @property
    def in_flight_count(self):
        return self.table.size

    @property
    def deferred_count(self):
        return self.deferred.size + self.stored.count()

    cdef int64_t waiting_count(self) noexcept:
        return self.backlog.depth() + <int64_t> self.deferred.size + <int64_t> self.stored.count()

    cdef list in_flight_queues(self):
        """Return the queues of all consumers, and of those that left."""
        cdef Consumer consumer
        return self.returning + [consumer.in_flight_queue for consumer in self.members.values()]

    cdef int64_t oldest(self) except -2:
        cdef int64_t queued_ns = self.backlog.oldest(), in_flight_ns = oldest_published(self.in_flight_queues())
        if queued_ns <= 0 or 0 < in_flight_ns < queued_ns:
            return in_flight_ns or queued_ns
        return queued_ns

    @property
    def dead_counts(self):
        """How many of its messages died, by reason."""
        return {reason: self.dead_counts[number] for number, reason in enumerate(REASONS)}

    @property
    def consumer_count(self):
        return len(self.members)

    def held_ns(self):
        """The longest time for which a consumer has held messages without a FIN or REQ; 0 = nothing is in flight."""
        return longest_held(self.members) if self.table.size else 0

    @property
    def taken_counts(self):
        """Deliveries from memory to consumers of this zone, of this region, and others (spec nsqd-tcp §14).

        Zeros unless consumption is topology-aware.
        """
        if not self.store.settings.is_topology_aware:
            return 0, 0, 0
        return self.taken[0], self.taken[1], self.taken[2]

    def consumers(self):
        """The subscribed sessions."""
        return list(self.members.values())
