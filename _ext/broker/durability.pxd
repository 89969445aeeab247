"""Who waits for the disk."""

from libc.stdint cimport uint64_t

from nsqfast._ext.broker.consumer cimport Client
from nsqfast._ext.broker.deaths cimport Deaths
from nsqfast._ext.core.heap cimport Timers
from nsqfast._ext.core.settings cimport Settings
from nsqfast._ext.storage.engine cimport Store


cdef class Durability:
    cdef readonly Store store
    cdef Settings settings
    cdef Timers timers
    cdef readonly bint closing
    cdef set waiting                 # clients whose OK waits
    cdef list callbacks              # (ticket, callable) that wait, too
    cdef list unwritten_deaths       # Deaths of which something was added in this turn
    cdef public object on_deaths     # is called with a topic, and what is known of its dead letters (Deaths.take)
    cdef object news                 # deque of (ticket done, error or None, clients and callables not told yet)

    cdef int wait(self, Client client) except -1
    cdef int end_wait(self, Client client) except -1
    cdef int note_written(self) except -1
    cdef int end_batch(self) except -1
    cdef int want_deaths_written(self, Deaths deaths) except -1
    cdef int write_deaths(self) except -1
    cdef int add_news(self, uint64_t done, object error) except -1
