"""When the deferred messages of a channel are due, by steps of time."""

from libc.stdint cimport int64_t

from nsqfast._ext.broker.channel cimport Channel


cdef class DeferralCalendar:
    cdef Channel channel
    cdef int64_t first_ns
    cdef readonly int64_t later_count    # of those that are due behind all steps
    cdef readonly int64_t last_ns        # when the last one that was seen is due; 0 = there is none
    cdef int64_t step_ns
    cdef int64_t to_wall_ns
    cdef size_t in_memory                # entries of the heap in memory that are still to be seen
    cdef size_t stored                   # and of the one of those on disk
    cdef int64_t *steps
    cdef int step_count

    cdef void add(self, int64_t deadline_ns) noexcept
