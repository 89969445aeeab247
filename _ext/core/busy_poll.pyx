"""A peer on the same machine that is expected to say something is heard within some microseconds. To sleep until then
and be woken costs both sides more than to look for it; a look that finds nothing costs only us, and so is left out
after some.
"""

cdef enum:
    # Where nothing came in so many looks, one in so many is left.
    LOOK_MISS_MAX = 8
    LOOK_LEFT_OUT_MAX = 64

cdef int64_t LOOK_NS = 30000


cdef class BusyPoll:
    """Begun when something was said, asked at the end of each turn that it causes."""

    cdef void begin(self, int64_t now_ns) noexcept nogil:
        """Something was said now; if that was in the middle of a look, it paid."""
        if self.is_on:
            self.misses = 0
        elif self.misses >= LOOK_MISS_MAX:
            self.left_out += 1
            if self.left_out < LOOK_LEFT_OUT_MAX:
                return
            self.left_out = 0
        self.is_on = True
        self.until_ns = now_ns + LOOK_NS

    cdef void find(self) noexcept nogil:
        """What was looked for is there."""
        if self.is_on:
            self.is_on = False
            self.misses = 0

    cdef void check(self, int64_t now_ns) noexcept nogil:
        """Nothing came in this turn."""
        if self.is_on and now_ns >= self.until_ns:
            self.is_on = False
            self.misses += 1

    cdef void stop(self) noexcept nogil:
        """Others need the processor, or are waited for anyway."""
        self.is_on = False
