"""Consuming: Message, the queue that all connections of a consumer fill, and the connection that fills it."""

from libc.stdint cimport int64_t, uint16_t

from nsqfast._ext.client.columns cimport Columns
from nsqfast._ext.client.connection cimport ClientConnection
from nsqfast._ext.client.message_iterator cimport MessageIterator


cdef class Message:
    cdef ConsumeConnection connection            # where it came from, and must be answered
    cdef void *before           # neighbours in the connection's list of what is unanswered; borrowed
    cdef void *after
    cdef readonly bytes body
    cdef readonly int64_t timestamp_ns
    cdef readonly uint16_t attempts
    cdef readonly bint is_answered
    cdef readonly bint is_kept
    cdef int64_t since_ns       # received or last touched, monotonic
    cdef char identity[16]

    cdef bint answer(self) except -1
    cdef bint send_finish(self) except -1


cdef class ConsumeConnection(ClientConnection):
    cdef MessageQueue inbox
    cdef void *first            # unanswered messages, oldest first; borrowed, a Message takes itself out
    cdef void *last
    cdef readonly Py_ssize_t in_flight
    cdef set forgotten          # ids of what nobody holds and nobody answered; for nsqd it is in flight
    cdef Py_ssize_t room_at     # tell the owner when so few are in flight; -1 = do not
    cdef public Py_ssize_t rdy  # as nsqd knows it
    cdef public str address     # of the nsqd, as it was dialled
    cdef readonly int64_t received
    cdef readonly int64_t message_ns   # of the last message, monotonic; 0 = none came
    cdef readonly bint is_leaving      # what still comes is handed back

    cdef int command(self, const char *name, Py_ssize_t size, const char *identity, bytes tail) except -1
    cdef Py_ssize_t tell_run(self, bytes name, bytes identities, bytes chosen, Py_ssize_t first, Py_ssize_t last,
                             bytes tail, bint is_answer) except -1
    cdef int leave_flight(self, Py_ssize_t count) except -1
    cdef int forget(self, Message message) except -1


cdef class MessageQueue(MessageIterator):
    cdef object owner           # hears of give-ups, failures, successes in backoff, room, refused answers
    cdef list queue             # Messages; None where one was taken
    cdef Py_ssize_t start
    cdef int attempts_max       # 0 = no limit
    cdef int64_t requeue_delay_ms
    cdef int64_t requeue_delay_ms_max
    cdef public bint reports_success   # while in backoff
    cdef Columns columns        # arrays are wanted instead of messages
    cdef Py_ssize_t columns_count_max
    cdef list blocks            # full Columns
    cdef readonly int64_t received
    cdef readonly int64_t finished
    cdef readonly int64_t requeued
    cdef readonly int64_t touched
    cdef readonly int64_t dropped      # their connection broke before anybody took them

    cdef int push(self, Message message) except -1
    cdef int turn_block(self) except -1
    cdef int64_t delay_ms(self, int attempts) noexcept
