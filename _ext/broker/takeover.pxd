"""Moves a topic's backlog to all its channels: a batch at a time, a part of it in each turn of the loop."""

from libc.stdint cimport int64_t, uint64_t

from nsqfast._ext.broker.channel cimport Channel
from nsqfast._ext.broker.deferrals cimport DeferredList
from nsqfast._ext.broker.durability cimport Durability
from nsqfast._ext.core.budget cimport Budget
from nsqfast._ext.core.message cimport Delivery
from nsqfast._ext.storage.engine cimport ChannelStore, TopicStore


cdef enum Progress:
    PASSED_ALL = 0      # nothing is left, or to be begun
    PART_OVER = 1
    AHEAD = 2           # of the fsyncs of messages passed on: the rest waits for them
    PENDING = 3         # the next is being read


cdef class Takeover:
    cdef Durability durability
    cdef TopicStore store        # the topic's, as are the next three
    cdef ChannelStore backlog
    cdef DeferredList deferred
    cdef list channels           # Channel; the topic's own list
    cdef Delivery **batch        # NULL = nothing is left
    cdef int count               # of the batch; 0 = there is none
    cdef Py_ssize_t place        # the channels before this one have the batch
    cdef Py_ssize_t end          # those before it get it; 0 = all of them were deleted
    cdef int put_count           # so many of it are in the channel at that place
    cdef int had_count           # and so many were in some channel
    cdef bint has_deferred       # all of the batch is deferred, else none of it
    cdef bint has_records        # some of it has records on the topic's disk
    cdef uint64_t owed           # messages that publishers have to pass on

    cdef bint is_begun(self) noexcept
    cdef Progress run(self, bint is_owed, bint may_begin, int64_t now_ns) except *
    cdef int begin_batch(self, Budget *budget, bint is_owed) except -1
    cdef int take_batch(self, Budget *budget, bint is_owed) except -1
    cdef int batch_max(self, bint is_owed) noexcept
    cdef int pass_to(self, Channel channel, int64_t now_ns) except -1
    cdef int piece_end(self) noexcept
    cdef int put_some(self, Channel channel, int end, int64_t now_ns) except -1
    cdef int end_first(self, int count) except -1
    cdef int complete(self) except -1
    cdef Delivery *find_told(self, uint64_t id) noexcept
    cdef Py_ssize_t lacking_count(self, Delivery *delivery) noexcept
    cdef void leave_out(self, Delivery *delivery) noexcept
    cdef int place_in_batch(self, Delivery *delivery) noexcept
    cdef int forget(self, Py_ssize_t place) except -1
    cdef int drop(self) noexcept
    cdef int64_t oldest(self) noexcept
