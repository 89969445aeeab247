"""Wall clock for timestamps and ids, monotonic clock for deadlines; both in nanoseconds."""

from libc.stdint cimport int64_t


cdef int64_t wall_ns() noexcept
cdef int64_t monotonic_ns() noexcept
cdef int64_t now_monotonic() noexcept nogil
cdef void stop_clocks() noexcept
cdef void free_clocks() noexcept
# For tests: the wall clock runs ahead by so much, and so much time passes at once on the monotonic one.
cdef void move_clocks(int64_t wall_ahead_ns, int64_t passed_ns) noexcept
cdef int64_t wall_ahead() noexcept
