"""Consuming: Message, the queue that all connections of a consumer fill, and the connection that fills it."""

from libc.stdint cimport int64_t, uint16_t

from nsqfast._ext.client.columns cimport Columns
from nsqfast._ext.client.connection cimport ClientConnection


cdef class Next:
    cdef MessageQueue source
    cdef object waited          # iterator of a future, or None
    cdef bint must_yield


cdef class Message:
    cdef ConsumeConnection connection            # where it came from; answers go there
    cdef void *before           # neighbours in the connection's list of unanswered messages; borrowed
    cdef void *after
    cdef readonly bytes body
    cdef readonly int64_t timestamp_ns
    cdef readonly uint16_t attempts
    cdef readonly bint is_answered
    cdef readonly bint is_kept
    cdef int64_t since_ns       # when it was received or last touched, monotonic
    cdef char identity[16]

    cdef bint answer(self) except -1
    cdef bint send_finish(self) except -1
    cdef bint hand_over(self, str reason) except -1


cdef class ConsumeConnection(ClientConnection):
    cdef MessageQueue inbox
    cdef void *first            # the list of unanswered messages, oldest first; borrowed, a Message removes itself
    cdef void *last
    cdef readonly Py_ssize_t in_flight
    cdef set forgotten          # ids of unanswered messages that were freed; nsqd has them in flight
    cdef Py_ssize_t room_at     # tell the owner when so few are in flight; -1 = do not
    cdef public Py_ssize_t rdy  # as nsqd knows it
    cdef public str address     # of the nsqd, as it was dialled
    cdef public bint may_reject # it takes REJ, and reasons behind REQ
    cdef public int attempts_max       # 0 = no limit here
    cdef readonly int64_t received
    cdef readonly int64_t message_ns   # when the last message came, monotonic; 0 = none came
    cdef readonly bint is_leaving      # further messages are handed back

    cdef int command(self, const char *name, Py_ssize_t size, const char *identity, bytes tail) except -1
    cdef Py_ssize_t tell_run(self, bytes name, bytes identities, bytes chosen, Py_ssize_t first, Py_ssize_t last,
                             bytes tail, bint is_answer) except -1
    cdef int requeue_refused(self, str text) except -1
    cdef bytes untried_tail(self)
    cdef int leave_flight(self, Py_ssize_t count) except -1
    cdef int forget(self, Message message) except -1


cdef class MessageQueue:
    cdef object loop
    cdef object waiters         # deque of futures of those who wait for a message
    cdef Py_ssize_t left_count  # how many of them may be abandoned, at most, since the last clean-up
    cdef list thresholds        # of [count, future] of those who wait for so many
    cdef readonly bint is_stopped
    cdef int64_t loop_ran_ns    # when the loop last ran, as far as we know
    cdef object owner           # is told of give-ups, failures, successes in backoff, room, refused answers
    cdef list queue             # Messages; None where one was taken
    cdef Py_ssize_t start
    cdef int attempts_max       # 0 = no limit; each connection may have its own
    cdef int64_t requeue_delay_ms
    cdef int64_t requeue_delay_ms_max
    cdef public bint reports_success   # while in backoff
    cdef public bint moves_rejected    # the owner has a place for what is rejected, where nsqd offers none
    cdef Columns columns        # for arrays instead of messages
    cdef Py_ssize_t columns_count_max
    cdef list blocks            # full Columns
    cdef readonly int64_t received
    cdef readonly int64_t finished
    cdef readonly int64_t requeued
    cdef readonly int64_t rejected
    cdef readonly int64_t touched
    cdef readonly int64_t forgotten    # messages that the program freed without an answer
    cdef readonly int64_t dropped      # messages whose connection broke before they were taken

    cdef object pop(self)
    cdef Py_ssize_t waiting(self) noexcept
    cdef int wake(self) except -1
    cdef int note_left(self) except -1
    cdef int push(self, Message message) except -1
    cdef int set_block_aside(self) except -1
    cdef int64_t delay_ms(self, int attempts) noexcept


cdef Py_ssize_t tell_rows(list connections, bytes identities, bytes sources, bytes chosen, bytes name, bytes tail,
                          bytes parameter, bint is_answer) except -1
