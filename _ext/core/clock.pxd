"""Wall clock for timestamps and ids, monotonic clock for deadlines; both in nanoseconds."""

cimport cython
from libc.stdint cimport int64_t


cdef int64_t wall_ns() noexcept
cdef int64_t monotonic_ns() noexcept
cdef int64_t now_monotonic() noexcept nogil
# For tests: set the wall clock ahead by so much, and let so much time pass at once on the monotonic one.
cdef void move_clocks(int64_t wall_ahead_ns, int64_t passed_ns) noexcept
cdef int64_t wall_ahead() noexcept


@cython.final
cdef class Clock:
    # While it stands: what it showed when first read; 0 = not read yet.
    cdef bint is_standing
    cdef int64_t stood_wall_ns
    cdef int64_t stood_monotonic_ns

    # Inline, since they are asked for each message.
    cdef inline int64_t wall_ns(self) noexcept:
        return self.stood_wall_ns or self.read_wall_ns()

    cdef inline int64_t monotonic_ns(self) noexcept:
        return self.stood_monotonic_ns or self.read_monotonic_ns()

    cdef int64_t read_wall_ns(self) noexcept
    cdef int64_t read_monotonic_ns(self) noexcept
    cdef void stop(self) noexcept
    cdef void go_on(self) noexcept
