"""What channels, topics and the end of a turn know of a connection: its consumer, its client and its waiter."""

from libc.stdint cimport int64_t, uint64_t

from nsqfast._ext.core.heap cimport Timed, TimedNode
from nsqfast._ext.core.in_flight_queue cimport InFlightQueue
from nsqfast._ext.core.message cimport Delivery


cdef enum Distance:
    # From the broker, where consumption is topology-aware (spec nsqd-tcp §14); else everybody is as near.
    ZONE_LOCAL = 0
    REGION_LOCAL = 1
    GLOBAL = 2
    DISTANCE_COUNT = 3


cdef class Client(Timed):
    # What the registry knows of a connection.
    cdef int flush(self) except -1
    cdef int go_on(self) except -1
    cdef int on_durable(self, uint64_t done_ticket, str error) except -1
    cdef int drop(self, str reason) except -1


cdef class Consumer:
    # What a channel knows of whoever takes its messages.
    cdef Client client               # whose connection it is; None = it has none
    cdef uint64_t number             # never used twice in one process; 0 is nobody
    cdef int64_t rdy
    cdef int64_t in_flight
    cdef InFlightQueue in_flight_queue    # the same; None until it joins a channel
    cdef TimedNode due               # in the channel's Timeouts
    cdef bint is_watched             # whether it stands there
    cdef int64_t timeout_ns          # of a message in flight to it
    cdef int sample_percent          # 0 = all messages
    cdef int distance
    cdef bint is_linked              # in the channel's ready ring
    cdef bint is_taking              # among those who are handed messages in the next turn
    cdef Consumer next_ready
    cdef Consumer previous_ready

    cdef bint wants(self) noexcept
    cdef int deliver(self, Delivery *delivery) except -1
    cdef int cut(self) except -1
    cdef int take_more(self) except -1


cdef class Waiter:
    # Who awaits the write that a topic deferred to the end of the turn.
    cdef Client client

    cdef bint refuse(self, str error) except -1
    cdef int seal(self) except -1
