"""Deadlines come from the monotonic clock, timestamps from the wall clock; a test may move both for its process."""

from posix.time cimport CLOCK_MONOTONIC, CLOCK_REALTIME, clock_gettime, timespec

cdef int64_t wall_offset_ns = 0
cdef int64_t monotonic_offset_ns = 0


cdef int64_t wall_ns() noexcept:
    cdef timespec now
    clock_gettime(CLOCK_REALTIME, &now)
    return <int64_t> now.tv_sec * 1000000000 + now.tv_nsec + wall_offset_ns


cdef int64_t monotonic_ns() noexcept:
    cdef timespec now
    clock_gettime(CLOCK_MONOTONIC, &now)
    return <int64_t> now.tv_sec * 1000000000 + now.tv_nsec + monotonic_offset_ns


def now():
    """(wall, monotonic) in nanoseconds."""
    return wall_ns(), monotonic_ns()


def shift_wall(int64_t offset_ns):
    """Let the wall clock of this process run ahead (or behind) by so much; 0 ends it."""
    global wall_offset_ns
    wall_offset_ns = offset_ns


def let_pass(int64_t duration_ns):
    """Let that much time pass at once on this process's monotonic clock; returns the new time."""
    global monotonic_offset_ns
    assert duration_ns >= 0
    monotonic_offset_ns += duration_ns
    return monotonic_ns()
