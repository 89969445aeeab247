"""Messages on their way from a topic of dead letters back to the channel that they died in, or to nowhere."""

from libc.stdint cimport int64_t, uint64_t

from nsqfast._ext.broker.channel cimport Channel
from nsqfast._ext.broker.message_queue cimport MessageQueue
from nsqfast._ext.broker.topic cimport Topic
from nsqfast._ext.core.body_search cimport BodySearch
from nsqfast._ext.core.budget cimport Budget
from nsqfast._ext.core.message cimport Delivery, Message


cdef enum:
    # Messages that are put together.
    BATCH_MAX = 64


cdef class Redrive:
    cdef MessageQueue source
    cdef Topic topic             # of the channel
    cdef Channel channel
    cdef BodySearch search_for
    cdef bint deletes            # nothing comes to the channel
    cdef int64_t until_ns
    cdef readonly int64_t left_count     # of those that were there at the begin, to be examined
    cdef readonly int64_t moved_count
    cdef int64_t examine_max     # so many more are examined in this call
    cdef Delivery *taken[BATCH_MAX]
    cdef Message *copies[BATCH_MAX]

    cdef size_t take(self, int64_t most, Budget *budget, dict choices) except? 0
    cdef bint is_chosen(self, Delivery *delivery, dict choices) except -1
    cdef bint has_room(self, size_t count) except -1
    cdef int put(self, size_t count) except -1
    cdef int finish(self, size_t count) except -1
