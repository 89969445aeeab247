"""Answers plain publishes over HTTP; one for all connections of a listener."""

from libc.stdint cimport int64_t

from nsqfast._ext.broker.registry cimport Registry
from nsqfast._ext.broker.topic cimport Topic
from nsqfast._ext.protocol.http_request cimport PlainRequest


cdef class Shortcut:
    cdef Registry registry
    cdef bint asks_host          # requests with another Host than an address or localhost are not answered here
    cdef object reply            # (exception or None, path) -> the bytes of an answer
    cdef bytes ok                # the answer to a success, with its Date
    cdef int64_t ok_second       # the second in which that was made

    cdef bint admits(self, PlainRequest *request) noexcept
    cdef Topic find_topic(self, PlainRequest *request)
    cdef bytes publish(self, Topic topic, PlainRequest *request)
    cdef bint put(self, Topic topic, PlainRequest *request) except -1
    cdef bytes answer_ok(self)


cdef bint is_named(Topic topic, PlainRequest *request) noexcept
