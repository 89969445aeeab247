"""All topics of a broker, by name."""

from libc.stdint cimport uint64_t

from nsqfast._ext.broker.dead_letters cimport REASON_COUNT
from nsqfast._ext.broker.durability cimport Durability
from nsqfast._ext.broker.topic cimport Topic


cdef class Topics:
    cdef public object on_change     # ("topic+", "topic-", "channel+" or "channel-", topic, channel or None)
    cdef Durability durability
    cdef dict by_name                # name -> Topic
    cdef Topic recent                # what find_ascii() found last, unless it was deleted
    cdef list names                  # of the topics, sorted
    cdef uint64_t dead_counts[REASON_COUNT]  # messages that died, by Reason
    cdef dict deleting               # name -> Topic whose channels are still being deleted

    cdef Topic find_ascii(self, const char *name, Py_ssize_t size)
    cdef Topic make(self, str name)
