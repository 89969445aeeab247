"""A local peer usually answers within microseconds. Sleeping until then and being woken costs both sides more than
polling does; a poll that finds nothing costs only us, so after several of those most polls are skipped.
"""

cdef enum:
    # After so many polls without success, only one in so many is made.
    POLL_MISS_MAX = 8
    POLL_SKIP_MAX = 64

cdef int64_t POLL_NS = 30000


cdef class BusyPoll:
    """The owner calls `begin` when it has sent something, and `check` at the end of each turn that follows."""

    cdef void begin(self, int64_t now_ns) noexcept nogil:
        """Something was sent now; if a poll is under way, it was worth it."""
        if self.is_on:
            self.misses = 0
        elif self.misses >= POLL_MISS_MAX:
            self.skipped += 1
            if self.skipped < POLL_SKIP_MAX:
                return
            self.skipped = 0
        self.is_on = True
        self.until_ns = now_ns + POLL_NS

    cdef void find(self) noexcept nogil:
        """The awaited data has arrived."""
        if self.is_on:
            self.is_on = False
            self.misses = 0

    cdef void check(self, int64_t now_ns) noexcept nogil:
        """Nothing came in this turn."""
        if self.is_on and now_ns >= self.until_ns:
            self.is_on = False
            self.misses += 1

    cdef void stop(self) noexcept nogil:
        """Others need the processor, or the answer is awaited in another way."""
        self.is_on = False
