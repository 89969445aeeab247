"""Checkpoints of the commit log: each queue of a broker, one after the other."""

from libc.stdint cimport int64_t, uint64_t

from nsqfast._ext.broker.channel cimport Channel
from nsqfast._ext.broker.topic cimport Topic
from nsqfast._ext.broker.topics cimport Topics
from nsqfast._ext.core.budget cimport Budget
from nsqfast._ext.core.heap cimport Timed, Timers
from nsqfast._ext.core.in_flight cimport InFlightQueue
from nsqfast._ext.core.message cimport Delivery
from nsqfast._ext.storage.engine cimport Checkpoint, Store


cdef class Checkpoints(Timed):
    cdef Store store
    cdef Timers timers
    cdef Topics topics
    cdef Checkpoint running          # None: none runs
    cdef list left                   # topics and channels that are still to be added

    cdef int on_deadline(self, int64_t now_ns) except -1
    cdef int begin(self) except -1
    cdef bint go_on(self) except -1
    cdef int add_next(self) except -1
    cdef int add_topic(self, Topic topic) except -1
    cdef int add_channel(self, Channel channel) except -1
    cdef int add_queue(self, InFlightQueue queue) except -1
    cdef int add_deferred(self, Delivery *delivery) except -1
