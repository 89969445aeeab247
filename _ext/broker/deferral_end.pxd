"""The end of a message's deferral before its time, by the id that its publisher was told."""

from libc.stdint cimport int64_t, uint64_t

from nsqfast._ext.broker.channel cimport Channel
from nsqfast._ext.broker.topic cimport Topic
from nsqfast._ext.core.budget cimport Budget


cdef class DeferralEnd:
    cdef Topic topic
    cdef uint64_t id
    cdef bint is_run             # queued at once, not dropped
    cdef Py_ssize_t place        # the channels from here on were asked
    cdef readonly int64_t count  # copies that were still deferred

    cdef bint go_on(self, Budget *budget) except -1
    cdef bint end_stored(self, Channel channel) except -1
    cdef int end_at_topic(self) except -1
    cdef int end_in_batch(self) except -1
