"""A broker's short way for plain publishes over HTTP."""

from libc.stdint cimport int64_t

from nsqfast._ext.broker.registry cimport Registry
from nsqfast._ext.broker.topic cimport Topic
from nsqfast._ext.protocol.http_front cimport Shortcut
from nsqfast._ext.protocol.http_request cimport PlainRequest


cdef class PublishShortcut(Shortcut):
    cdef Registry registry
    cdef bint asks_host          # requests with another Host than an address or localhost are not answered here
    cdef object reply            # (exception or None, path) -> the bytes of an answer
    cdef bytes ok                # the answer to a success, with its Date
    cdef int64_t ok_second       # the second in which that was made

    cdef bint put(self, Topic topic, PlainRequest *request) except -1
    cdef bytes answer_ok(self)
