"""A circuit breaker (M. Nygard, Release It!, 2007): consumers that fail all the time get time to recover, and messages
do not use up their attempts meanwhile.

    closed ─ a share of those that ended in a window failed ─► open: nothing is delivered for pause_ns
    open ──► then one message at a time: a FIN closes it, a failure is the begin of another pause
"""

cdef enum:
    # Fewer deliveries in a window say nothing.
    LEAST_COUNT = 10


cdef class Breaker:
    """A window begins with the first delivery that ends behind the one before."""

    def __init__(self, double share, int64_t window_ns, int64_t pause_ns):
        assert 0 < share <= 1 and window_ns > 0 and pause_ns > 0
        self.share, self.window_ns, self.pause_ns = share, window_ns, pause_ns

    cdef bint finish(self, int64_t now_ns) noexcept:
        """A message was finished; True: that closes it."""
        cdef bint was_open = self.is_open and now_ns >= self.retry_ns
        if was_open:
            self.is_open = False
            self.begun_ns = now_ns - self.window_ns
        self.count(now_ns)
        return was_open

    cdef bint fail(self, int64_t now_ns) noexcept:
        """One was given back, or timed out; True: nothing is delivered from now on."""
        if self.is_open:
            # What was in flight when it opened says nothing new.
            if now_ns < self.retry_ns:
                return False
        else:
            self.count(now_ns)
            self.failed_count += 1
            if self.ended_count < LEAST_COUNT or self.failed_count < self.share * self.ended_count:
                return False
            self.open_count += 1
        self.is_open, self.retry_ns = True, now_ns + self.pause_ns
        return True

    cdef int count(self, int64_t now_ns) noexcept:
        if now_ns - self.begun_ns >= self.window_ns:
            self.begun_ns, self.ended_count, self.failed_count = now_ns, 0, 0
        self.ended_count += 1
        return 0
