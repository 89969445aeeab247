"""Message ids: 42 bits of time, 10 of node, 12 of sequence (spec nsqd-core §1)."""

from libc.stdint cimport int64_t, uint64_t


cdef enum GuidLayout:
    NODE_BITS = 10
    SEQUENCE_BITS = 12
    SEQUENCE_MAX = 4095
    TICK_SHIFT = 20  # a tick is 2**20 ns


cdef class GuidFactory:
    cdef int64_t node_id
    cdef int64_t last_tick
    cdef int64_t sequence

    cdef uint64_t next(self, int64_t now_ns) noexcept
    cdef uint64_t next_many(self, int64_t now_ns, uint64_t count) noexcept
    cdef uint64_t last(self) noexcept


# The end of the tick that the id is of, as Unix time.
cdef int64_t time_of(uint64_t id) noexcept


cdef inline uint64_t next_id(uint64_t id) noexcept:
    """What a factory makes behind this one at the same time."""
    if id & SEQUENCE_MAX == SEQUENCE_MAX:
        return id - SEQUENCE_MAX + (<uint64_t> 1 << (NODE_BITS + SEQUENCE_BITS))
    return id + 1
