"""A test may move the wall clock of this process; deadlines are taken from the monotonic clock, which nobody moves."""

from posix.time cimport CLOCK_MONOTONIC, CLOCK_REALTIME, clock_gettime, timespec

cdef int64_t wall_offset_ns = 0


cdef int64_t wall_ns() noexcept:
    cdef timespec now
    clock_gettime(CLOCK_REALTIME, &now)
    return <int64_t> now.tv_sec * 1000000000 + now.tv_nsec + wall_offset_ns


cdef int64_t monotonic_ns() noexcept:
    cdef timespec now
    clock_gettime(CLOCK_MONOTONIC, &now)
    return <int64_t> now.tv_sec * 1000000000 + now.tv_nsec


def now():
    """(wall, monotonic) in nanoseconds."""
    return wall_ns(), monotonic_ns()


def shift_wall(int64_t offset_ns):
    """Let the wall clock of this process run ahead (or behind) by so much; 0 ends it."""
    global wall_offset_ns
    wall_offset_ns = offset_ns
