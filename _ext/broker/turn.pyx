"""What a turn's input leads to is done once at its end, however many clients and commands there were.

Python code runs per topic, per client and per turn, never per message.
"""

from libc.stdint cimport uint32_t

from collections import deque

from nsqfast._ext.core.budget cimport begin_part, count_overspent, is_spent
from nsqfast._ext.core.clock cimport monotonic_ns
from nsqfast._ext.core.limits cimport COSTLY_COUNT_MAX, END_COUNT_MAX, SLABS_KEPT_MIN, STORED_COUNT_MAX
from nsqfast._ext.core.memory cimport SLAB_SIZE, Account
from nsqfast._ext.core.message cimport release_slabs, slabs_kept

cdef enum:
    # After a larger write the turn did work that is worth a wake-up; clients then need the processor themselves.
    BUSY_POLL_SIZE_MAX = 2048
    # Units that a blocked client and a taking consumer count for: the clock is read after each.
    BLOCKED_UNITS = 64
    # Units of a client's write, and of telling it a result: the clock is read after every fourth, and every eighth.
    WRITE_UNITS = 16
    TELL_UNITS = 8
    # Each step gives back one in so many of the empty slabs beyond SLABS_KEPT_MIN: half of them in 11 s.
    RELEASE_SHARE = 64
    # At once; each takes some 30 us.
    RELEASE_MAX = 64

cdef int64_t RELEASE_STEP_NS = 250000000


cdef class MemoryRelease(Timed):
    """Gives back, little by little, the memory that drained queues left behind."""

    def __init__(self, Timers timers, Memory memory not None):
        self.timers, self.memory = timers, memory

    cdef int check(self) except -1:
        cdef Account *account = self.memory.account
        if account.spare and account.used + account.spare > account.full:
            release_slabs(account, <uint32_t> ((account.used + account.spare - account.full) // SLAB_SIZE + 1))
        if slabs_kept(account) > SLABS_KEPT_MIN and not self.is_armed:
            self.timers.arm(self, monotonic_ns() + RELEASE_STEP_NS)
        return 0

    cdef int on_deadline(self, int64_t now_ns) except -1:
        cdef uint32_t kept = slabs_kept(self.memory.account)
        if kept > SLABS_KEPT_MIN:
            release_slabs(self.memory.account,
                          min(RELEASE_MAX, (kept - SLABS_KEPT_MIN + RELEASE_SHARE - 1) // RELEASE_SHARE))
        return self.check()


cdef class Turn:
    """One for all clients of a broker. Each kind of work has a part of the turn; what is left of it comes first in the
    next one."""

    def __init__(self, Durability durability not None):
        self.durability = durability
        durability.store.on_pending = self.schedule
        self.connected = set()
        self.blocked = deque()
        self.written, self.takers = [], []
        self.later = TakeLater(durability.timers)
        self.memory_release = MemoryRelease(durability.timers, durability.store.broker_memory)
        self.busy_poll = BusyPoll()
        self.overspent_count = count_overspent()

    # -- clients -------------------------------------------------------------------------------------------------------

    def add_client(self, Client client):
        self.connected.add(client)

    def remove_client(self, Client client):
        self.connected.discard(client)
        self.durability.end_wait(client)

    def clients(self):
        """All clients that are connected over TCP."""
        return list(self.connected)

    def client_count(self):
        return len(self.connected)

    cdef int break_off(self, Client client, object error) except -1:
        """End a client whose output hit a bug of ours, and go on serving all others."""
        self.fault_count += 1
        self.durability.end_wait(client)
        return client.disconnect(f"internal error: {error!r}")

    # -- what clients ask for during the turn --------------------------------------------------------------------------

    cpdef int schedule(self) except -1:
        """Let the turn have an end."""
        if not self.is_scheduled and self.schedule_end is not None:
            self.is_scheduled = True
            self.schedule_end()
        return 0

    cdef int want_output(self, Client client) except -1:
        """Let it write at the end of this turn."""
        self.written.append(client)
        return self.schedule()

    cdef int want_turn(self, Client client) except -1:
        """Let it continue in a later turn, behind those that asked before."""
        self.blocked.append(client)
        return self.schedule()

    cdef int want_messages(self, Consumer consumer) except -1:
        """Let a consumer take more whose output was sent. One call may serve all consumers of its channel, so all calls
        of a turn share a part; those that it has no time for come first in the next turn."""
        if not self.is_taking_spent:
            consumer.take_more()
            self.is_taking_spent = self.is_writing and is_spent(&self.taking_part, BLOCKED_UNITS)
        elif not consumer.is_taking:
            consumer.is_taking = True
            self.takers.append(consumer)
        return 0

    cdef int want_messages_later(self, Consumer consumer) except -1:
        """Let it take more after a short delay."""
        return self.later.add(consumer)

    cdef bint may_be_costly(self) noexcept:
        """Whether one more command that takes a tenth of a millisecond may run in this turn, whoever sends it. If not,
        the client is blocked; blocked clients have a part of their own."""
        if self.is_running_blocked or self.schedule_end is None:
            return True
        self.costly_count += 1
        return self.costly_count <= COSTLY_COUNT_MAX

    cdef bint may_store(self) noexcept:
        """The same for a message that comes back and may have to go to disk."""
        return (self.is_running_blocked or self.schedule_end is None
                or self.durability.store.stored_count < STORED_COUNT_MAX)

    cdef bint may_end(self) noexcept:
        """Whether one more connection may be closed in this turn; if not, it waits among the blocked ones."""
        if self.schedule_end is None:
            return True
        self.end_count += 1
        return self.end_count <= END_COUNT_MAX

    # -- its end -------------------------------------------------------------------------------------------------------

    def end(self):
        """All that happens at a turn's end, in this order; what it has no time for is left to the next one."""
        cdef bint has_written, is_syncing
        self.run_blocked()
        if self.durability.store.write_log():
            self.durability.note_written()
        if self.durability.unwritten_deaths:
            self.durability.write_deaths()
        self.tell_news()
        self.serve_takers()
        self.is_scheduled = False
        has_written = self.write_output()
        is_syncing = self.durability.store.start_batch()
        self.memory_release.check()
        self.look_before_sleep(has_written, is_syncing)

    def on_synced(self):
        """A batch is written, or fsyncs are done: tell all whose messages are now on disk."""
        self.durability.end_batch()
        self.tell_news()

    cdef int run_blocked(self) except -1:
        """Let blocked clients continue, all of them for one part: the loop polls its sockets between two calls.

        A turn that took much too long skips this; the next one does not.
        """
        cdef Budget budget
        cdef Client client
        cdef int64_t overspent_count
        self.costly_count = self.end_count = self.durability.store.stored_count = 0
        if not self.blocked:
            return 0
        overspent_count, self.overspent_count = self.overspent_count, count_overspent()
        self.is_late = self.overspent_count > overspent_count and not self.is_late
        if self.is_late:
            return 0
        self.is_running_blocked = True
        budget = begin_part()
        for _ in range(len(self.blocked)):
            client = self.blocked.popleft()
            try:
                client.go_on()
            except Exception as error:
                self.break_off(client, error)
            if is_spent(&budget, BLOCKED_UNITS) or self.end_count >= END_COUNT_MAX:
                break
        self.is_running_blocked = False
        return 0

    cdef int tell_news(self) except -1:
        """Tell the results of fsyncs for a part; all are told of one before any hears of a later one."""
        cdef Budget budget
        cdef object news = self.durability.news
        if not news:
            return 0
        budget = begin_part()
        while news:
            done, error, clients, callbacks = news[0]
            while clients or callbacks:
                if clients:
                    self.tell(clients.pop(), done, error)
                else:
                    callbacks.popleft()(error)
                if is_spent(&budget, TELL_UNITS) and not self.durability.closing:
                    return self.schedule()
            news.popleft()
        return 0

    cdef int tell(self, Client client, uint64_t done, object error) except -1:
        if client in self.durability.waiting:
            try:
                client.on_durable(done, error)
            except Exception as fault:
                self.break_off(client, fault)
        return 0

    cdef int serve_takers(self) except -1:
        """Let those take more that the last turn had no time for. The part that begins here lasts to the end of
        write_output()."""
        cdef Consumer consumer
        cdef list takers = self.takers
        self.is_writing = True
        self.taking_part = begin_part()
        if takers:
            self.takers = []
        for consumer in takers:
            consumer.is_taking = False
            try:
                self.want_messages(consumer)
            except Exception as error:
                self.break_off(consumer.client, error)
        return 0

    cdef int write_output(self) except -1:
        """One write per client, while the part lasts; the next turn begins with the others. Return whether there was
        any output."""
        cdef list written = self.written
        cdef Budget budget
        cdef Client client
        cdef Py_ssize_t count = 0
        if written:
            self.written = []
            self.written_size = 0
            budget = begin_part()
        for client in written:
            count += 1
            try:
                client.flush()
            except Exception as error:
                self.break_off(client, error)
            if is_spent(&budget, WRITE_UNITS):
                break
        if count < len(written):
            self.written = written[count:] + self.written
        self.is_writing = self.is_taking_spent = False
        return count > 0

    cdef int look_before_sleep(self, bint has_written, bint is_syncing) except -1:
        """Ask for one more turn if work is left, or if peers will answer before the loop has gone to sleep."""
        if is_syncing or (has_written and self.written_size > BUSY_POLL_SIZE_MAX):
            self.busy_poll.stop()
        elif has_written:
            self.busy_poll.begin(monotonic_ns())
        else:
            self.busy_poll.check(monotonic_ns())
        if self.busy_poll.is_on or self.blocked or self.durability.news or self.written or self.takers:
            self.schedule()
        return 0
