"""A session is a consumer, its connection a client, and its publisher a waiter."""

from nsqfast._ext.core.clock cimport monotonic_ns

cdef enum:
    # Messages in flight that are examined to find the one that was delivered first: half a millisecond.
    OLDEST_SCAN_MAX = 16384

cdef uint64_t last_number = 0


cdef class Client(Timed):

    cdef int flush(self) except -1:
        """Send what was gathered; the loop turn ends."""
        raise AssertionError("a Client without flush")

    cdef int go_on(self) except -1:
        """Continue with the input that the last part had no time for."""
        raise AssertionError("a Client without go_on")

    cdef int on_durable(self, uint64_t done_ticket, str error) except -1:
        """Everything up to the ticket is on disk, or (with `error`) could not be written."""
        raise AssertionError("a Client without on_durable")

    cdef int drop(self, str reason) except -1:
        """End the connection at once, with a line in the log."""
        raise AssertionError("a Client without drop")


cdef class Consumer:

    def __cinit__(self):
        global last_number
        last_number += 1
        self.number = last_number

    cdef bint wants(self) noexcept:
        """Whether it wants one more message now."""
        return False

    cdef int deliver(self, Delivery *delivery) except -1:
        """Write the message out; the channel has it in flight already."""
        raise AssertionError("a Consumer without deliver")

    cdef int disconnect(self) except -1:
        """End the connection: the channel is being deleted."""
        raise AssertionError("a Consumer without cut")

    cdef int take_more(self) except -1:
        """Ask the channel for messages, if it wants any."""
        raise AssertionError("a Consumer without take_more")

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


cdef class Waiter:

    cdef bint refuse(self, str error) except -1:
        """The write failed; False = nothing waited for it."""
        raise AssertionError("a Waiter without refuse")

    cdef int on_written(self) except -1:
        """The write succeeded."""
        raise AssertionError("a Waiter without seal")
