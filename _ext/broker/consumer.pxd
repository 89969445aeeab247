"""A client as the broker sees it: its connection, and what a channel knows of it as a consumer."""

cimport cython
from libc.stdint cimport int64_t, uint64_t

from nsqfast._ext.core.heap cimport DeadlineHeap, Timed, TimedNode, Timers
from nsqfast._ext.core.in_flight cimport InFlightQueue
from nsqfast._ext.core.message cimport Delivery


cdef enum Distance:
    # From the broker, if consumption is topology-aware (spec nsqd-tcp §14); else all are equally near.
    ZONE_LOCAL = 0
    REGION_LOCAL = 1
    GLOBAL = 2
    DISTANCE_COUNT = 3


# Of a client that says it is there, from a broker with these options.
cdef Distance distance_to(str zone, str region, object options) except? GLOBAL


cdef class Client(Timed):
    cdef int flush(self) except -1
    cdef int go_on(self) except -1
    cdef int on_durable(self, uint64_t done_ticket, str error) except -1
    cdef int close(self) except -1
    cdef int disconnect(self, str reason) except -1


cdef class Consumer:
    cdef readonly Client client      # its connection; None = there is none
    cdef readonly str client_id      # which it says of itself
    cdef uint64_t number             # unique in its channel; 0 = it has not joined one
    cdef readonly int64_t rdy
    cdef readonly int64_t in_flight
    cdef InFlightQueue in_flight_queue    # what is in flight to it; None until it joins a channel
    cdef TimedNode due               # in the channel's Timeouts
    cdef bint is_watched             # whether `due` is there
    cdef int64_t timeout_ns          # of messages in flight to it
    cdef int64_t held_since_ns       # the last FIN or REQ, or since when it has had messages; timeouts do not end that
    cdef int64_t timed_out_ns        # when a message in flight to it last timed out
    cdef readonly uint64_t timeout_count
    cdef readonly int sample_percent     # 0 = all messages
    cdef int distance
    cdef bint is_in_ring             # in the channel's ready ring
    cdef bint is_taking              # in the list of consumers that are handed messages in the next turn
    cdef Consumer next_ready
    cdef Consumer previous_ready

    cdef bint wants(self) noexcept
    cdef int deliver(self, Delivery *delivery) except -1
    cdef int take_more(self) except -1


cdef inline void close_alone(Consumer consumer) noexcept:
    consumer.next_ready = consumer
    consumer.previous_ready = consumer


cdef inline void insert(Consumer consumer, Consumer before) noexcept:
    """Insert it as the last in turn into the ring whose next is `before`."""
    consumer.next_ready = before
    consumer.previous_ready = before.previous_ready
    before.previous_ready.next_ready = consumer
    before.previous_ready = consumer


# Those that are ready: the nearest first, taking turns among those that are equally near.
@cython.final
cdef class ReadyRing:
    cdef Consumer first      # gets the next message; None: none is ready
    cdef list farther        # by distance: the next of those not as near as `first`; None while there were none

    cdef int add_elsewhere(self, Consumer consumer) except -1
    cdef int remove_elsewhere(self, Consumer consumer) except -1

    cdef inline int add(self, Consumer consumer) except -1:
        """Insert it as the last in turn, unless it is in the ring already."""
        cdef Consumer first
        if consumer.is_in_ring:
            return 0
        consumer.is_in_ring = True
        first = self.first
        if first is None:
            close_alone(consumer)
            self.first = consumer
        elif consumer.distance == first.distance:
            insert(consumer, first)
        else:
            self.add_elsewhere(consumer)
        return 0

    cdef inline int remove(self, Consumer consumer) except -1:
        if not consumer.is_in_ring:
            return 0
        consumer.is_in_ring = False
        if self.farther is not None:
            self.remove_elsewhere(consumer)
        elif self.first is consumer:
            self.first = None if consumer.next_ready is consumer else consumer.next_ready
        if consumer.next_ready is not consumer:
            consumer.previous_ready.next_ready = consumer.next_ready
            consumer.next_ready.previous_ready = consumer.previous_ready
        consumer.next_ready = None
        consumer.previous_ready = None
        return 0


# The consumers of a channel, by what times out first.
cdef class Timeouts:
    cdef DeadlineHeap heap       # of Consumer.due

    cdef int put(self, Consumer consumer, int64_t deadline_ns) except -1
    cdef int remove(self, Consumer consumer) except -1
    cdef Consumer first(self)


cdef class TakeLater(Timed):
    cdef Timers timers
    cdef list consumers              # Consumer

    cdef int add(self, Consumer consumer) except -1
    cdef int call(self, Consumer consumer) except -1
    cdef int on_deadline(self, int64_t now_ns) except -1


cdef class DisconnectLater(TakeLater):
    pass


cdef int64_t longest_held(dict members)
