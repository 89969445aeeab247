"""What is too much for one turn goes into the log piece by piece, and into the queues only when the log has all of it.

    add ─► pieces, in no queue ─► the log has them all: release ─► a piece after the other into the queues ─► is_over
            │
            └─ refused, or the publisher leaves: a start drops what the log has of it

From the first piece in the queues on nothing stops it: what a disk refuses is tried again, a clean stop writes the
rest, and a start gives it to the topic.
"""

from collections import deque

from nsqfast._ext.core.budget cimport Budget, begin_part, is_spent
from nsqfast._ext.core.clock cimport monotonic_ns
from nsqfast._ext.core.limits cimport DISK_RETRY_NS
from nsqfast._ext.core.memory cimport account_of, charge, leave_account

from nsqfast.wire.refusals import NotTakenError

# The second piece comes in a later turn than the first one.
cdef int64_t LATER_NS = 1000000


cdef class LargeMpub(Timed):
    def __cinit__(self, Timers timers, TopicStore store, GuidFactory guid, Memory memory, put_piece, uint64_t count):
        self.account = account_of(memory)
        self.timers, self.store, self.guid, self.put_piece, self.count = timers, store, guid, put_piece, count
        self.number = store.begin_pieces()
        self.pieces = deque()

    def __dealloc__(self):
        leave_account(self.account, self.size)

    cdef int add(self, bytes bodies, uint64_t count, int64_t wall_ns) except -1:
        """OSError: the log does not take it."""
        cdef uint64_t first_id = self.guid.next_many(wall_ns, count)
        self.store.note_piece(self.number, self.piece_count, wall_ns, first_id, bodies, len(bodies))
        self.pieces.append((self.piece_count, wall_ns, first_id, count, bodies))
        self.piece_count += 1
        self.ticket = self.store.ticket()
        self.size += len(bodies)
        charge(self.account, len(bodies))
        return 0

    def release(self, str error):
        """The log has all pieces, unless there is an error."""
        if self.is_over:
            return
        if error is None:
            try:
                self.put_piece(self)
                self.is_releasing = True
            except (OSError, NotTakenError) as failure:
                error = getattr(failure, "strerror", None) or str(failure)
        if error is not None:
            self.end(error)
        elif not self.is_over:
            self.timers.arm(self, monotonic_ns() + LATER_NS)

    cdef int on_deadline(self, int64_t now_ns) except -1:
        cdef Budget budget = begin_part()
        cdef int64_t units
        while not self.is_over:
            units = self.pieces[0][3]
            try:
                self.put_piece(self)
            except OSError:     # the broker's health reports it
                return self.timers.arm(self, now_ns + DISK_RETRY_NS)
            if is_spent(&budget, units) and not self.is_over:
                return self.timers.arm(self, now_ns + 1)
        return 0

    cdef int drop_first(self, uint64_t ticket) except -1:
        """The first piece is in the queues; an OK has to wait for the ticket."""
        cdef int64_t size = len(self.pieces.popleft()[4])
        self.ticket = ticket
        self.size -= size
        charge(self.account, -size)
        return 0 if self.pieces else self.end(None)

    cdef int end(self, str error) except -1:
        cdef Client waiter = self.waiter
        if self.is_over:
            return 0
        self.is_over, self.error = True, error
        self.timers.disarm(self)
        self.store.end_pieces(self.number)
        charge(self.account, -self.size)
        self.size = 0
        self.pieces.clear()
        on_over, self.on_over, self.waiter, self.put_piece = self.on_over, None, None, None
        if on_over is not None:
            on_over()
        return 0 if waiter is None else waiter.go_on()

    cdef int leave(self) except -1:
        """Its publisher is gone."""
        self.waiter = self.on_over = None
        return 0 if self.is_releasing else self.end("its publisher left")
