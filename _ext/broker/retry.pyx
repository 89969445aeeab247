"""Of exponential growth with jitter, so that messages which failed together do not come back together."""


cdef class Retry:
    """`min_ns` after the first attempt, and `multiplier` (at least 1) times as long after each further one, up to
    `max_ns`; of that a share of up to `jitter` (0 to 1) is left out by chance."""

    def __init__(self, int64_t min_ns, int64_t max_ns, double multiplier, double jitter):
        assert 0 < min_ns <= max_ns and multiplier >= 1 and 0 <= jitter <= 1
        self.min_ns, self.max_ns, self.multiplier, self.jitter = min_ns, max_ns, multiplier, jitter

    cdef int64_t delay_ns(self, uint16_t attempts, double share) noexcept:
        """At least 1: 0 would not be a delay. `share` of what jitter may leave out is left out."""
        cdef double delay = <double> self.min_ns
        while attempts > 1 and delay < self.max_ns and self.multiplier > 1:
            delay *= self.multiplier
            attempts -= 1
        delay = min(delay, <double> self.max_ns) * (1 - self.jitter * share)
        return max(<int64_t> delay, 1)
