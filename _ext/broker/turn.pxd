"""One turn of the event loop: what its clients may do in it, and what is done at its end."""

from libc.stdint cimport int64_t, uint64_t

from nsqfast._ext.broker.consumer cimport Client, Consumer, TakeLater
from nsqfast._ext.broker.durability cimport Durability
from nsqfast._ext.core.budget cimport Budget
from nsqfast._ext.core.busy_poll cimport BusyPoll
from nsqfast._ext.core.heap cimport Timed, Timers
from nsqfast._ext.core.memory cimport Memory


cdef class MemoryRelease(Timed):
    cdef Timers timers
    cdef Memory memory

    cdef int check(self) except -1
    cdef int on_deadline(self, int64_t now_ns) except -1


cdef class Turn:
    cdef public object schedule_end  # asks the loop to call end() when it has read from all sockets
    cdef readonly uint64_t fault_count    # clients that were dropped for a bug of ours
    cdef Durability durability
    cdef set connected               # clients
    cdef object blocked              # deque of clients whose part ended before all of their input was processed
    cdef list written                # those with output from this turn
    cdef list takers                 # consumers that are handed messages in the next turn
    cdef TakeLater later
    cdef MemoryRelease memory_release
    cdef BusyPoll busy_poll
    cdef bint is_scheduled           # the end of this turn
    cdef int64_t overspent_count     # when blocked clients last continued
    cdef bint is_late                # they did not in the last turn
    cdef bint is_running_blocked
    cdef bint is_writing             # consumers are handed messages in a common part
    cdef Budget taking_part
    cdef bint is_taking_spent        # that part
    cdef Py_ssize_t costly_count     # of commands that take long, in this turn
    cdef Py_ssize_t end_count        # of connections closed in this turn
    cdef Py_ssize_t written_size     # bytes written in this turn

    cdef int want_output(self, Client client) except -1
    cdef int want_turn(self, Client client) except -1
    cdef int want_messages(self, Consumer consumer) except -1
    cdef int want_messages_later(self, Consumer consumer) except -1
    cdef bint may_be_costly(self) noexcept
    cdef bint may_store(self) noexcept
    cdef bint may_end(self) noexcept
    cpdef int schedule(self) except -1
    cdef int run_blocked(self) except -1
    cdef int tell_news(self) except -1
    cdef int tell(self, Client client, uint64_t done, object error) except -1
    cdef int serve_takers(self) except -1
    cdef int write_output(self) except -1
    cdef int look_before_sleep(self, bint has_written, bint is_syncing) except -1
    cdef int break_off(self, Client client, object error) except -1
