"""Deadlines come from the monotonic clock, timestamps from the wall clock; a test may move both for its process."""

from posix.time cimport CLOCK_MONOTONIC, CLOCK_REALTIME, clock_gettime, timespec

cdef int64_t wall_offset_ns = 0
cdef int64_t monotonic_offset_ns = 0

# While the clocks are stopped: what they showed when first read; 0 = not read yet.
cdef bint is_standing = False
cdef int64_t stood_wall_ns = 0
cdef int64_t stood_monotonic_ns = 0


cdef int64_t wall_ns() noexcept:
    global stood_wall_ns
    cdef timespec now
    cdef int64_t now_ns
    if stood_wall_ns:
        return stood_wall_ns
    clock_gettime(CLOCK_REALTIME, &now)
    now_ns = <int64_t> now.tv_sec * 1000000000 + now.tv_nsec + wall_offset_ns
    if is_standing:
        stood_wall_ns = now_ns
    return now_ns


cdef int64_t monotonic_ns() noexcept:
    global stood_monotonic_ns
    cdef int64_t now_ns
    if stood_monotonic_ns:
        return stood_monotonic_ns
    now_ns = now_monotonic() + monotonic_offset_ns
    if is_standing:
        stood_monotonic_ns = now_ns
    return now_ns


cdef void stop_clocks() noexcept:
    """Everything that one read of a socket brought happens at one moment: the clocks stop until free_clocks().

    Reading them for every message would cost as much as all the other work on it.
    """
    global is_standing
    is_standing = True


cdef void free_clocks() noexcept:
    global is_standing, stood_wall_ns, stood_monotonic_ns
    is_standing = False
    stood_wall_ns = stood_monotonic_ns = 0


cdef int64_t now_monotonic() noexcept nogil:
    """The system's time, ignoring stopped and moved clocks: for threads that do not hold the interpreter's lock."""
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
