"""What is known of a topic's dead letters, until somebody has written it."""

from libc.stdint cimport int64_t, uint8_t, uint16_t, uint32_t, uint64_t

from nsqfast._ext.broker.dead_letters cimport Reason
from nsqfast._ext.core.message cimport Delivery


ctypedef struct Death:
    # As nsqfast/nsqd/deaths.py reads it.
    uint64_t id              # of the dead letter
    int64_t died_ns          # Unix time
    uint64_t first_id        # of the message that died, ...
    int64_t published_ns     # ... and when that was published
    uint32_t size            # of this and its texts
    uint16_t attempts
    uint8_t failures
    uint8_t reason
    uint8_t topic_size       # of the texts, which follow in this order
    uint8_t channel_size
    uint8_t client_size
    uint8_t unused
    uint32_t error_size


cdef class Deaths:
    cdef readonly str topic
    cdef list pieces         # of what is known, as take() returns it
    cdef bytearray data      # the last piece: Death and its texts, one after the other
    cdef uint64_t first_id, last_id
    cdef int64_t died_ns     # the last one

    cdef int add(self, uint64_t id, const Delivery *delivery, Reason reason, str topic, str channel, str client,
                 bytes error, int64_t now_ns) except -1
    cdef int end_piece(self) except -1
