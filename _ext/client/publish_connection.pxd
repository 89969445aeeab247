"""Publishing: which publishes wait for an answer, on which connection, and what happens to them when that breaks."""

from libc.stdint cimport int64_t

from nsqfast._ext.client.connection cimport ClientConnection
from nsqfast._ext.core.busy_poll cimport BusyPoll


cdef class Pending:
    cdef object future
    cdef bytes head             # the command's line with its newline
    cdef object body            # bytes; for MPUB a list of them, or Encoded
    cdef Py_ssize_t size        # of all bodies
    cdef int64_t deadline_ns
    cdef int tries_left         # how often it may still be sent again although it may have arrived
    cdef bint is_asking         # the future's result is where it went, and the answer
    cdef bint is_piped          # nobody need check the future: flush reports failures


cdef class PublishConnection(ClientConnection):
    cdef Dispatcher dispatcher  # None before the connection is ready for publishing
    cdef Py_ssize_t unsent      # so many at the end of `waiting` were not handed to the transport yet
    cdef bint was_refused       # nsqd did not process what follows the refused command

    cdef public str address     # of the broker; '' = nobody set it
    cdef BusyPoll busy_poll     # for the answer that a single caller waits for
    cdef bint is_poll_scheduled  # `continue_poll` is in the loop's queue
    cdef object continue_poll_later  # bound once

    cdef int publish(self, Pending pending) except -1
    cdef int schedule_poll(self) except -1


cdef class Dispatcher:
    cdef object loop
    cdef object create_future
    cdef unsigned long thread_id    # of the loop
    cdef list connections             # open ones, in the order of preference
    cdef list retired           # open ones that get nothing more but still owe answers
    cdef Py_ssize_t next_index
    cdef bint is_sticky
    cdef object backlog         # deque of publishes that wait for a connection
    cdef readonly Py_ssize_t count
    cdef readonly Py_ssize_t size
    cdef Py_ssize_t count_max
    cdef Py_ssize_t size_max
    cdef Py_ssize_t wanted_size     # of the last publish that did not fit
    cdef int retries
    cdef int64_t timeout_ns
    cdef object timer           # at the earliest deadline, or at an earlier one
    cdef int64_t timer_ns
    cdef list drains            # futures
    cdef object failure         # the first failure of a piped publish since flush last reported one
    cdef dict lost              # topic -> messages of piped publishes that failed since then
    cdef list connection_waiters  # futures of those who wait for a connection
    cdef bint is_closed
    cdef str why_closed
    cdef dict heads             # topic -> head of PUB
    cdef readonly int64_t published
    cdef readonly int64_t failed
    cdef readonly int64_t resent
    cdef public object reason   # why there is no connection

    cdef Pending make_pending(self, bytes head, object body, Py_ssize_t size, bint is_piped)
    cdef object submit(self, Pending pending)
    cdef bytes head(self, object topic)
    cdef int set_timer(self, int64_t deadline_ns) except -1
    cdef int give(self, Pending pending) except -1
    cdef int release(self, Pending pending) except -1
    cdef int check_thread(self) except -1
    cdef int fail(self, Pending pending, object error) except -1
    cdef int fail_in_place(self, Pending pending, object error) except -1
    cdef int on_refused(self, Pending pending, str text) except -1
    cdef int on_ended(self, PublishConnection connection, list left) except -1
    cpdef bint has_room(self)
