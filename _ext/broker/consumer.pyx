"""Client and Consumer are interfaces: a room above implements them, so that the broker knows no socket."""

from nsqfast._ext.core.budget cimport Budget, begin_part, is_spent
from nsqfast._ext.core.clock cimport monotonic_ns

cdef enum:
    # Messages in flight that are examined to find the one that was delivered first: half a millisecond.
    OLDEST_SCAN_MAX = 16384
    # Units that a consumer counts for when it takes more, or is disconnected: some messages.
    CALL_UNITS = 16

cdef int64_t TAKE_LATER_NS = 1000000


cdef class Client(Timed):
    """A connection, which publishes, consumes, or does both."""

    cdef int flush(self) except -1:
        """Send what was gathered; the loop turn ends."""
        raise NotImplementedError

    cdef int go_on(self) except -1:
        """Continue with the input that the last part had no time for."""
        raise NotImplementedError

    cdef bint on_written(self, str error) except -1:
        """The write that a topic postponed to the end of the turn is done, or (with `error`) failed. Return whether an
        answer told of that, so that on_durable has to be called."""
        raise NotImplementedError

    cdef int on_durable(self, uint64_t done_ticket, str error) except -1:
        """Everything up to the ticket is on disk, or (with `error`) could not be written."""
        raise NotImplementedError

    cdef int close(self) except -1:
        """End the connection; what it was sent until now arrives."""
        raise NotImplementedError

    cdef int drop(self, str reason) except -1:
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
