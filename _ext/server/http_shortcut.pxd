"""A broker's short way for plain publishes over HTTP."""

from libc.stdint cimport int64_t, uint64_t

from nsqfast._ext.broker.consumer cimport Client
from nsqfast._ext.broker.registry cimport Registry
from nsqfast._ext.broker.topic cimport Topic
from nsqfast._ext.protocol.http_front cimport HttpFront, Shortcut
from nsqfast._ext.protocol.http_request cimport PlainRequest


cdef class PublishShortcut(Shortcut):
    cdef Registry registry
    cdef bint asks_host          # requests with another Host than an address or localhost are not answered here
    cdef object reply            # (exception or None, path) -> the bytes of an answer
    cdef bytes ok                # the answer to a success, with its Date
    cdef int64_t ok_second       # the second in which that was made
    cdef uint64_t ticket         # that the last publish has to wait for; 0 = none
    cdef dict debts              # front -> Debt

    cdef bint put(self, Topic topic, PlainRequest *request) except -1
    cdef bytes answer_ok(self)
    cdef bytes answer_error(self, object error, bint is_many)
    cdef bytes owe(self, HttpFront front, uint64_t ticket, bint is_many, bytes answer)
    cdef int settle(self, Debt debt) except -1


cdef class Debt(Client):
    cdef PublishShortcut shortcut
    cdef HttpFront front
    # Successes of one path that wait for one ticket are one entry. The last entry stands in these fields, the earlier
    # ones in a deque of (ticket, is_many, count, answer); None = there never were any.
    cdef uint64_t ticket
    cdef bint is_many
    cdef Py_ssize_t count
    cdef bytes answer            # to one request, whatever becomes of the ticket; None = that follows from the ticket
    cdef object earlier

    cdef int add(self, uint64_t ticket, bint is_many, bytes answer) except -1
    cdef Py_ssize_t put_answers(self, list answers, bint is_many, Py_ssize_t count, bytes answer, str error) except -1
