"""All topics and all clients of a broker, and what happens once per loop turn."""

from libc.stdint cimport int64_t, uint32_t, uint64_t

from nsqfast._ext.backlog cimport Storage
from nsqfast._ext.consumer cimport Consumer
from nsqfast._ext.heap cimport Timed, Timers
from nsqfast._ext.settings cimport Settings
from nsqfast._ext.syncer cimport Syncer
from nsqfast._ext.topic cimport Topic


cdef class Release(Timed):
    cdef Timers timers

    cdef int look(self) except -1
    cdef int on_deadline(self, int64_t now_ns) except -1


cdef class Registry:
    cdef readonly Settings settings
    cdef readonly Timers timers
    cdef readonly Syncer syncer
    cdef readonly bint closing
    cdef public object on_change     # ("topic+", "topic-", "channel+" or "channel-", topic, channel or None)
    cdef public object on_turn       # asks the loop to call flush() at the end of this turn
    cdef Storage storage
    cdef dict topic_by_name
    cdef set clients
    cdef list written                # consumers with something to write this turn
    cdef bint is_turn_asked
    cdef Py_ssize_t written_size     # bytes of this turn
    cdef bint is_looking             # turns are asked for although nothing has come
    cdef int64_t look_until_ns
    cdef uint32_t look_misses        # looks in a row in which nothing came
    cdef uint32_t looks_left_out     # since the last one
    cdef set waiting                 # consumers whose OK waits for an fsync
    cdef Release release
    cdef list callbacks              # (ticket, callable) likewise

    cdef int want_flush(self, Consumer consumer) except -1
    cdef int ask_turn(self) except -1
    cdef int begin_look(self) except -1
    cdef int settle(self) except -1
    cdef int refuse_waiting(self, str error) except -1
    cdef int wait_durable(self, Consumer consumer) except -1
