"""The front of one HTTP connection: a Shortcut answers plain publishes, and everything else is passed on."""

from nsqfast._ext.core.budget cimport Budget
from nsqfast._ext.protocol.buffer cimport ReadBuffer
from nsqfast._ext.protocol.http_request cimport Outcome, PlainRequest


# What Shortcut.publish returns when it owes the answer.
cdef bytes OWED


cdef class Shortcut:
    cdef bint admits(self, PlainRequest *request) noexcept
    cdef bytes publish(self, PlainRequest *request, HttpFront front)
    cdef bint must_wait(self) noexcept
    cdef int forget(self, HttpFront front) except -1


cdef class HttpFront:
    cdef public ReadBuffer room       # what is read comes there first, for all connections of a daemon
    cdef public bint at_rest          # nothing is partly received, waits, or ends: a request may be answered at once
    cdef public bint is_part_over     # the part is over, and the rest continues in a later turn
    cdef Budget budget
    cdef public object last_active    # when the last request was answered here, in the loop's time
    cdef readonly Py_ssize_t owed_count   # answers that the shortcut owes; all others wait for them
    cdef Shortcut shortcut
    cdef Shortcut debtor              # who owes them
    cdef object write                 # the transport's method
    cdef object time                  # the loop's method
    cdef bytes partial                # a plain head and as much of its body as came with it
    cdef Py_ssize_t partial_size_due  # the size of the whole request

    cdef bytes answer(self, bytes data)
    cdef Py_ssize_t publish_all(self, const char *data, Py_ssize_t size, PlainRequest *request,
                                Outcome *outcome) except -1
    cdef bint may_publish(self) noexcept
    cdef int send(self, list answers) except -1
    cdef int pay(self, bytes answers, Py_ssize_t count) except -1
    cdef bytes keep_partial(self, bytes rest, PlainRequest *request)
    cdef bytes resume(self, bytes data)
