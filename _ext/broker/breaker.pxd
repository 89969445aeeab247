"""Whether a channel is paused by its policy, because too many of its deliveries fail."""

from libc.stdint cimport int64_t


cdef class Breaker:
    cdef readonly double share
    cdef readonly int64_t window_ns
    cdef readonly int64_t pause_ns
    cdef readonly bint is_open           # it lets nothing through, or one message at a time
    cdef readonly int64_t retry_ns       # when it tries the next one then, on the monotonic clock
    cdef readonly int64_t open_count     # how often it opened
    cdef int64_t begun_ns                # when the window began
    cdef int64_t ended_count             # deliveries that ended in it
    cdef int64_t failed_count            # of these

    cdef bint finish(self, int64_t now_ns) noexcept
    cdef bint fail(self, int64_t now_ns) noexcept
    cdef int count(self, int64_t now_ns) noexcept
