"""Client and Consumer are interfaces: a room above implements them, so that the broker knows no socket."""

cimport cython

from nsqfast._ext.core.budget cimport Budget, begin_part, is_spent
from nsqfast._ext.core.clock cimport monotonic_ns
from nsqfast._ext.core.heap cimport HeapNode
from nsqfast._ext.core.memory cimport Memory

cdef enum:
    # Messages in flight that are examined to find the one that was delivered first: half a millisecond.
    OLDEST_SCAN_MAX = 16384
    # Units that a consumer counts for when it takes more, or is disconnected: some messages.
    CALL_UNITS = 16

cdef int64_t TAKE_LATER_NS = 1000000


cdef Distance distance_to(str zone, str region, object options) except? GLOBAL:
    if zone == options.topology_zone:
        return ZONE_LOCAL
    return REGION_LOCAL if region == options.topology_region else GLOBAL


cdef class Client(Timed):
    """A connection, which publishes, consumes, or does both."""

    cdef int flush(self) except -1:
        """Send what was gathered; the loop turn ends."""
        raise NotImplementedError

    cdef int go_on(self) except -1:
        """Continue with the input that the last part had no time for."""
        raise NotImplementedError

    cdef int on_durable(self, uint64_t done_ticket, str error) except -1:
        """Everything up to the ticket is on disk, or (with `error`) could not be written."""
        raise NotImplementedError

    cdef int close(self) except -1:
        """End the connection; what it was sent until now arrives."""
        raise NotImplementedError

    cdef int disconnect(self, str reason) except -1:
        """End the connection at once, with a line in the log."""
        raise NotImplementedError


cdef class Consumer:
    """A client that may subscribe to one channel."""

    cdef bint wants(self) noexcept:
        """Whether it wants one more message now."""
        return False

    cdef int deliver(self, Delivery *delivery) except -1:
        """Write the message out; the channel has it in flight already."""
        raise NotImplementedError

    cdef int take_more(self) except -1:
        """Ask the channel for messages, if it wants any."""
        raise NotImplementedError

    def held_ns(self):
        """For how long it has held messages without a FIN or REQ; 0 = it has none."""
        return monotonic_ns() - self.held_since_ns if self.in_flight else 0

    def oldest_in_flight_ns(self):
        """Since the oldest message in flight to it was delivered; 0 = there is none."""
        return monotonic_ns() - self.in_flight_queue.oldest(OLDEST_SCAN_MAX, True) if self.in_flight else 0


cdef int64_t longest_held(dict members):
    """In ns: since the last FIN or REQ of a consumer that has messages; 0 = none has."""
    cdef Consumer consumer
    cdef int64_t now_ns = monotonic_ns(), since_ns = now_ns
    for consumer in members.values():
        if consumer.in_flight:
            since_ns = min(since_ns, consumer.held_since_ns)
    return now_ns - since_ns


@cython.final
cdef class ReadyRing:
    """One ring for each distance. `first` is in the nearest one that has members, so finding the next takes no search.

    While all are equally near, as they are unless consumption is topology-aware, there is a single ring.
    """

    cdef int add_elsewhere(self, Consumer consumer) except -1:
        """Insert it when `first` is nearer, or not as near."""
        cdef Consumer first = self.first, other
        if self.farther is None:
            self.farther = [None] * DISTANCE_COUNT
        other = self.farther[consumer.distance]
        if consumer.distance < first.distance:
            self.farther[first.distance] = first
            close_alone(consumer)
            self.first = consumer
        elif other is None:
            close_alone(consumer)
            self.farther[consumer.distance] = consumer
        else:
            insert(consumer, other)
        return 0

    cdef int remove_elsewhere(self, Consumer consumer) except -1:
        """Remove it from its ring; if it was `first`, the nearest remaining one becomes that."""
        cdef Consumer after = None if consumer.next_ready is consumer else consumer.next_ready
        cdef int distance
        if self.first is not consumer:
            if self.farther[consumer.distance] is consumer:
                self.farther[consumer.distance] = after
            return 0
        self.first = after
        for distance in range(consumer.distance + 1, <int> DISTANCE_COUNT):
            if self.first is None:
                self.first = self.farther[distance]
                self.farther[distance] = None
        return 0


cdef class Timeouts:
    """A consumer's time in the heap is not later than the first deadline of its in-flight queue. So a FIN costs nothing
    here; a time that is too early is corrected when the consumer reaches the top. Its consumers are kept alive by
    others.
    """

    def __init__(self, Memory memory not None):
        self.heap = DeadlineHeap(memory)

    cdef int put(self, Consumer consumer, int64_t deadline_ns) except -1:
        """Nothing in its in-flight queue times out before that."""
        consumer.due.deadline_ns = deadline_ns
        if consumer.is_watched:
            self.heap.moved(<HeapNode *> &consumer.due)
            return 0
        consumer.due.timed = <void *> consumer
        self.heap.push(<HeapNode *> &consumer.due)
        consumer.is_watched = True
        return 0

    cdef int remove(self, Consumer consumer) except -1:
        if consumer.is_watched:
            consumer.is_watched = False
            self.heap.remove(<HeapNode *> &consumer.due)
        return 0

    cdef Consumer first(self):
        """Whose message times out first, at `due.deadline_ns`; None if nothing is in flight."""
        cdef TimedNode *node = <TimedNode *> self.heap.peek()
        cdef Consumer consumer
        cdef Delivery *delivery
        while node is not NULL:
            consumer = <Consumer> node.timed
            delivery = consumer.in_flight_queue.peek()
            if delivery is NULL:
                self.remove(consumer)
            elif delivery.deadline_ns > node.deadline_ns:
                self.put(consumer, delivery.deadline_ns)
            else:
                return consumer
            node = <TimedNode *> self.heap.peek()
        return None


cdef class TakeLater(Timed):
    """Consumers that take more messages after a short delay."""

    def __init__(self, Timers timers):
        self.timers = timers
        self.consumers = []

    cdef int add(self, Consumer consumer) except -1:
        self.consumers.append(consumer)
        if not self.is_armed:
            self.timers.arm(self, monotonic_ns() + TAKE_LATER_NS)
        return 0

    cdef int call(self, Consumer consumer) except -1:
        return consumer.take_more()

    cdef int on_deadline(self, int64_t now_ns) except -1:
        """Call the consumers that came first, as far as a part goes; the others in later turns."""
        cdef Budget budget = begin_part()
        cdef list consumers = self.consumers
        cdef Py_ssize_t done = 0, count = len(consumers)
        self.consumers = []
        try:
            while done < count:
                done += 1
                self.call(consumers[done - 1])
                if is_spent(&budget, CALL_UNITS):
                    break
        finally:
            if done < count:
                self.consumers = consumers[done:] + self.consumers
                self.timers.arm(self, now_ns + 1)
        return 0


cdef class DisconnectLater(TakeLater):
    """Consumers whose channel was deleted."""

    cdef int call(self, Consumer consumer) except -1:
        return consumer.client.close()
