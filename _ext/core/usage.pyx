"""What the connections of one identity use together: how many they are, and how fast they publish.

The rate is that of a leaky bucket: a second's worth of messages may come at once, and an MPUB may be larger than that;
what was published too early has to be waited for afterwards, since nothing that was received is thrown away.
"""

from nsqfast._ext.core.clock cimport monotonic_ns

cdef int64_t SECOND_NS = 1000000000


cdef class Usage:
    cdef bint join(self) noexcept:
        """Whether one more connection may be there; then it is counted until leave()."""
        if self.connections_max and self.connection_count >= self.connections_max:
            return False
        self.connection_count += 1
        return True

    cdef int leave(self) except -1:
        self.connection_count -= 1
        return 0

    cdef int64_t pay(self, int64_t count, int64_t now_ns) noexcept:
        """So many messages were published; return how long (ns) the next ones have to wait, 0 = not at all."""
        if self.rate_max == 0:
            return 0
        self.paid_until_ns = max(self.paid_until_ns, now_ns - SECOND_NS) + count * SECOND_NS // self.rate_max
        return max(0, self.paid_until_ns - now_ns)

    def pay_now(self, int64_t count):
        """pay() for HTTP."""
        return self.pay(count, monotonic_ns())
