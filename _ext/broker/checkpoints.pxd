"""Checkpoints of the commit log: each queue of a broker, one after the other."""

from libc.stdint cimport int64_t, uint64_t

from nsqfast._ext.broker.channel cimport Channel
from nsqfast._ext.broker.topic cimport Topic
from nsqfast._ext.broker.topics cimport Topics
from nsqfast._ext.core.budget cimport Budget
from nsqfast._ext.core.heap cimport Timed, Timers
from nsqfast._ext.broker.message_queue cimport MessageQueue
from nsqfast._ext.core.in_flight cimport InFlightQueue
from nsqfast._ext.core.message cimport Delivery, Message
from nsqfast._ext.storage.engine cimport Checkpoint, Store


cdef class Checkpoints(Timed):
    cdef Store store
    cdef Timers timers
    cdef Topics topics
    cdef Checkpoint running          # None: none runs
    cdef list left                   # topics and channels that are still to be shown
    cdef MessageQueue queue          # which is being shown; None = between two of them
    cdef int phase                   # what of it comes next
    cdef int64_t place               # the number of the next in its memory; or how many of a batch are left
    cdef int64_t end                 # behind the last that was in its memory
    cdef list queues                 # those of its InFlightQueues that are left

    cdef int on_deadline(self, int64_t now_ns) except -1
    cdef int begin(self) except -1
    cdef bint go_on(self) except -1
    cdef int begin_queue(self, MessageQueue queue) except -1
    cdef bint is_exiting(self)
    cdef int end_queue(self) except -1
    cdef bint show(self, Budget *budget) except -1
    cdef bint show_some(self, Budget *budget) except -1
    cdef bint show_memory(self, Budget *budget) except -1
    cdef bint show_queues(self, Budget *budget) except -1
    cdef bint show_queue(self, InFlightQueue queue, Budget *budget) except -1
    cdef bint show_batch(self, Topic topic, Budget *budget) except -1
    cdef void show_one(self, Delivery *delivery) noexcept
