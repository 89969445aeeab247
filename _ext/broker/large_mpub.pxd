"""A large MPUB of a topic with a commit log: all of it is there after a crash, or nothing."""

from libc.stdint cimport int64_t, uint64_t

from nsqfast._ext.broker.consumer cimport Client
from nsqfast._ext.core.guid cimport GuidFactory
from nsqfast._ext.core.heap cimport Timed, Timers
from nsqfast._ext.core.memory cimport Account, Memory
from nsqfast._ext.storage.engine cimport TopicStore

cdef enum:
    # A piece has so many messages and bytes at most, or one message.
    PIECE_COUNT_MAX = 1024
    PIECE_SIZE_MAX = 262144


cdef class LargeMpub(Timed):
    cdef Timers timers
    cdef TopicStore store
    cdef GuidFactory guid
    cdef Account *account
    cdef object put_piece        # called with this until it is over; puts the first of the pieces into the queues
    cdef uint64_t number         # in the log
    cdef readonly uint64_t count # of its messages
    cdef object pieces           # those not released: (number, published, first id, count, {size (4), body} of each)
    cdef uint64_t piece_count
    cdef int64_t size            # of the pieces
    cdef bint is_logged          # the last piece was added
    cdef bint is_releasing       # the log has all pieces, and the first one is in the queues
    cdef readonly bint is_over
    cdef readonly uint64_t ticket
    cdef readonly str error      # why it ended; None = all of it is in the queues
    # Whom to tell that it is over.
    cdef Client waiter
    cdef object on_over

    cdef int add(self, bytes bodies, uint64_t count, int64_t wall_ns) except -1
    cdef int drop_first(self, uint64_t ticket) except -1
    cdef int end(self, str error) except -1
    cdef int leave(self) except -1
