"""Deadlines come from the monotonic clock, timestamps from the wall clock; a test may move both for its process."""

cimport cython
from posix.time cimport CLOCK_MONOTONIC, CLOCK_REALTIME, clock_gettime, timespec

cdef int64_t wall_offset_ns = 0
cdef int64_t monotonic_offset_ns = 0


cdef int64_t wall_ns() noexcept:
    cdef timespec now
    clock_gettime(CLOCK_REALTIME, &now)
    return <int64_t> now.tv_sec * 1000000000 + now.tv_nsec + wall_offset_ns


cdef int64_t monotonic_ns() noexcept:
    return now_monotonic() + monotonic_offset_ns


@cython.final
cdef class Clock:
    """The time of one broker. Everything that one read of a socket brought happens at one moment: the clock stands from
    stop() to go_on(). Reading the system's for every message would cost as much as all the other work on it.
    """

    cdef int64_t read_wall_ns(self) noexcept:
        cdef int64_t now_ns = wall_ns()
        if self.is_standing:
            self.stood_wall_ns = now_ns
        return now_ns

    cdef int64_t read_monotonic_ns(self) noexcept:
        cdef int64_t now_ns = monotonic_ns()
        if self.is_standing:
            self.stood_monotonic_ns = now_ns
        return now_ns

    cdef void stop(self) noexcept:
        self.is_standing = True

    cdef void go_on(self) noexcept:
        self.is_standing = False
        self.stood_wall_ns = self.stood_monotonic_ns = 0


cdef int64_t now_monotonic() noexcept nogil:
    """The system's time, ignoring moved clocks: for threads that do not hold the interpreter's lock."""
    cdef timespec now
    clock_gettime(CLOCK_MONOTONIC, &now)
    return <int64_t> now.tv_sec * 1000000000 + now.tv_nsec


def now():
    """Return (wall, monotonic) in nanoseconds."""
    return wall_ns(), monotonic_ns()


cdef void move_clocks(int64_t wall_ahead_ns, int64_t passed_ns) noexcept:
    global wall_offset_ns, monotonic_offset_ns
    wall_offset_ns = wall_ahead_ns
    monotonic_offset_ns += passed_ns


cdef int64_t wall_ahead() noexcept:
    return wall_offset_ns
