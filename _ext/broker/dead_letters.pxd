"""Where the messages of a channel go that die in it."""

from libc.stdint cimport int64_t

from nsqfast._ext.broker.consumer cimport Consumer
from nsqfast._ext.core.message cimport Delivery


cdef enum Reason:
    FAILED = 0
    EXPIRED = 1
    OVER_LIMIT = 2
    REJECTED = 3
    REASON_COUNT = 4


cdef class DeadLetters:
    cdef readonly str name       # of the topic
    cdef readonly str refusal    # why the last one was not taken; None = it was
    cdef readonly bint takes_dropped     # what a limit drops, too
    cdef int64_t retry_ns        # nothing is tried before, after a refusal
    cdef int64_t pause_ns        # between two tries, longer after each

    # Whether nothing dies there: its messages are dead letters themselves.
    cdef bint is_exempt(self) noexcept

    # Copy the message, in a way that its finish in its own channel has to follow in this turn. consumer: who had it
    # last, or None. False: it stays.
    cdef bint take(self, Delivery *delivery, Reason reason, Consumer consumer, bytes error) except -1
