"""Ids grow strictly. Where Go's factory waits (sequence used up, clock set back), this one borrows the next tick."""

cimport cython

cdef int64_t EPOCH_TICKS = 1288834974288


@cython.final
cdef class GuidFactory:
    """Makes ids for one topic; `node_id` in [0, 1024). after_ns: all are larger than those of that Unix time."""

    def __init__(self, int64_t node_id, int64_t after_ns=0):
        assert 0 <= node_id < 1 << NODE_BITS
        self.node_id = node_id
        self.last_tick = after_ns >> TICK_SHIFT
        self.sequence = SEQUENCE_MAX

    cdef uint64_t next(self, int64_t now_ns) noexcept:
        cdef int64_t tick = now_ns >> TICK_SHIFT
        if tick > self.last_tick:
            self.last_tick = tick
            self.sequence = 0
        elif self.sequence < SEQUENCE_MAX:
            self.sequence += 1
        else:
            self.last_tick += 1
            self.sequence = 0
        return self.last()

    cdef uint64_t next_many(self, int64_t now_ns, uint64_t count) noexcept:
        """Return the first of so many; next_id() has the others."""
        cdef uint64_t _, first = self.next(now_ns)
        for _ in range(count - 1):
            self.next(now_ns)
        return first

    cdef uint64_t last(self) noexcept:
        """Return the id that `next` returned last."""
        return (<uint64_t> (self.last_tick - EPOCH_TICKS) << (NODE_BITS + SEQUENCE_BITS)
                | <uint64_t> self.node_id << SEQUENCE_BITS | <uint64_t> self.sequence)

    def make(self, int64_t now_ns):
        """Return the next id as a number; `now_ns` is Unix time."""
        return self.next(now_ns)


cdef int64_t time_of(uint64_t id) noexcept:
    return (<int64_t> (id >> (NODE_BITS + SEQUENCE_BITS)) + EPOCH_TICKS + 1 << TICK_SHIFT) - 1
