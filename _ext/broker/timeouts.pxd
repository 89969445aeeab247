"""The consumers of a channel, ordered by what times out first."""

from libc.stdint cimport int64_t

from nsqfast._ext.broker.consumer cimport Consumer
from nsqfast._ext.core.heap cimport DeadlineHeap


cdef class Timeouts:
    cdef DeadlineHeap heap       # of Consumer.due

    cdef int put(self, Consumer consumer, int64_t deadline_ns) except -1
    cdef int remove(self, Consumer consumer) except -1
    cdef Consumer first(self)
