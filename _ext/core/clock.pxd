"""Wall clock for timestamps and ids, monotonic clock for deadlines; both in nanoseconds."""

from libc.stdint cimport int64_t


cdef int64_t wall_ns() noexcept
cdef int64_t monotonic_ns() noexcept
cdef int64_t now_monotonic() noexcept nogil
cdef void stop_clocks() noexcept
cdef void free_clocks() noexcept
# For tests: set the wall clock ahead by so much, and let so much time pass at once on the monotonic one.
cdef void move_clocks(int64_t wall_ahead_ns, int64_t passed_ns) noexcept
cdef int64_t wall_ahead() noexcept
