"""Who waits for the disk: for a write that was postponed to the end of the turn, then for an fsync."""

from libc.stdint cimport uint64_t

from nsqfast._ext.broker.consumer cimport Client
from nsqfast._ext.broker.fanout cimport Fanout
from nsqfast._ext.broker.message_queue cimport MessageQueue
from nsqfast._ext.core.heap cimport Timers
from nsqfast._ext.core.settings cimport Settings
from nsqfast._ext.storage.engine cimport Store


cdef class PostponingQueue(MessageQueue):
    # A topic as it is seen from here.
    cdef readonly uint64_t message_count
    cdef readonly uint64_t message_bytes
    cdef Fanout fanout
    cdef bint is_postponed       # has messages whose write is postponed
    cdef list publishers         # Client: those who published these messages

    cdef int count(self, uint64_t count, uint64_t size, list channels) except -1
    cdef int add_publisher(self, Client client) except -1
    cdef int on_written(self) except -1


cdef class Durability:
    cdef readonly Store store
    cdef Settings settings
    cdef Timers timers
    cdef readonly bint closing
    cdef set waiting                 # clients whose OK waits for an fsync
    cdef list callbacks              # (ticket, callable) that wait for an fsync, too
    cdef list postponed              # PostponingQueue: those with postponed writes of this turn
    cdef list postponed_callbacks    # (ticket, callable, queue) of this turn, whose write is postponed
    cdef list uncounted              # (ticket, queue, its counts) of messages that wait for an fsync
    cdef list refused                # clients to be told of a failed write at the end of the turn
    cdef object news                 # deque of (ticket done, error or None, clients and callables not told yet)
    cdef uint64_t told_ticket        # the last one that all clients were told of

    cpdef int write_postponed(self) except -1
    cdef int postpone(self, PostponingQueue queue) except -1
    cdef int count_later(self, uint64_t ticket, PostponingQueue queue) except -1
    cdef int finish_postponed(self) except -1
    cdef int refuse(self, PostponingQueue queue, str error) except -1
    cdef int wait(self, Client client) except -1
    cdef int end_wait(self, Client client) except -1
    cdef int end_batch(self) except -1
    cdef int count_messages(self, uint64_t done, bint is_good) except -1
    cdef int add_news(self, uint64_t done, object error) except -1
