"""The n-th answer of a connection belongs to its n-th command: a deque per connection is enough.

When a connection breaks, its unanswered publishes are sent again on another one, in order: always if nsqd certainly did
not take them, else as often as `retries` allows, because then they may arrive twice.
"""

from asyncio import InvalidStateError, _get_running_loop
from collections import deque

cimport cython
from cpython.pythread cimport PyThread_get_thread_ident
from libc.stdint cimport INT64_MAX, int64_t

from nsqfast._ext.client.connection cimport ClientConnection
from nsqfast._ext.core.clock cimport monotonic_ns
from nsqfast._ext.core.limits cimport TOPICS_KEPT_MAX
from nsqfast._ext.protocol.publish_command cimport Encoded, as_bodies, as_body, message_count, write_publish

from nsqfast.errors import (
    BufferFullError, ClosedError, NotConnectedError, OutcomeUnknownError, PublishRefusedError,
)
from nsqfast.wire.names import check_name

cdef double TICK_S_MIN = 0.01
cdef double SECOND_NS = 1e9


@cython.final
@cython.freelist(1024)
cdef class Pending:
    """A PUB, MPUB or DPUB without an answer."""


cdef class PublishConnection(ClientConnection):
    """A connection that publishes once it has joined a Dispatcher."""

    def __init__(self, loop, on_closed):
        super().__init__(loop, on_closed)
        self.busy_poll = BusyPoll()
        self.address = ""

    def connection_made(self, transport):
        super().connection_made(transport)
        self.continue_poll_later = self.continue_poll

    cdef int publish(self, Pending pending) except -1:
        write_publish(self.output, pending.head, pending.body, pending.size)
        self.waiting.append(pending)
        self.unsent += 1
        if len(self.waiting) > 1:
            return self.schedule_flush()
        # A caller who waits for each answer should not have to wait for the end of the turn, too.
        self.write()
        self.busy_poll.begin(monotonic_ns())
        return self.schedule_poll()

    cdef int schedule_poll(self) except -1:
        if self.busy_poll.is_on and not self.is_poll_scheduled:
            self.is_poll_scheduled = True
            self.call_soon(self.continue_poll_later)
        return 0

    def continue_poll(self):
        """Called once per turn of the loop during a busy poll; its only purpose is to keep the loop from sleeping."""
        self.is_poll_scheduled = False
        self.busy_poll.check(monotonic_ns())
        if self.is_open:
            self.schedule_poll()

    cdef int write(self) except -1:
        if self.is_open and not self.write_paused:
            self.unsent = 0
        return ClientConnection.write(self)

    cdef int on_response(self, const char *data, Py_ssize_t size) except -1:
        cdef Pending pending
        if self.dispatcher is None or not self.waiting:
            return ClientConnection.on_response(self, data, size)
        pending = self.waiting.popleft()
        self.dispatcher.published += 1
        self.dispatcher.release(pending)
        if not self.waiting:
            self.busy_poll.find()
        try:
            pending.future.set_result((self.address, data[:size]) if pending.is_asking else None)
        except InvalidStateError:
            pass  # its caller gave up, or its time was up
        return 0

    cdef int on_error(self, str text) except -1:
        if self.dispatcher is not None and self.waiting:
            self.was_refused = True
            self.dispatcher.on_refused(self.waiting.popleft(), text)
        return ClientConnection.on_error(self, text)

    cdef int end(self) except -1:
        if self.dispatcher is not None:
            left = list(self.waiting)
            self.waiting.clear()
            self.dispatcher.on_ended(self, left)
            self.dispatcher = None
        self.continue_poll_later = None  # refers back to this object
        return ClientConnection.end(self)

    def unanswered(self):
        """How many publishes wait for this connection's answer."""
        return len(self.waiting)

    def futures(self):
        """The futures of all unanswered publishes, in order."""
        cdef Pending pending
        return [pending.future for pending in self.waiting if not pending.future.done()]


@cython.final
cdef class Dispatcher:
    """All connections of a producer, and all its unanswered publishes: `count` of them, of `size` bytes."""

    def __init__(self, loop, Py_ssize_t count_max, Py_ssize_t size_max, int retries, double timeout_s, bint is_sticky):
        self.loop = loop
        self.create_future = loop.create_future
        self.thread_id = PyThread_get_thread_ident()
        self.connections = []
        self.retired = []
        self.is_sticky = is_sticky
        self.backlog = deque()
        self.count_max = count_max
        self.size_max = size_max
        self.retries = retries
        self.timeout_ns = <int64_t> (timeout_s * SECOND_NS)
        self.timer = self.failure = None
        self.timer_ns = INT64_MAX
        self.drains = []
        self.connection_waiters = []
        self.lost = {}
        self.heads = {}
        self.reason = "not connected yet"

    def join(self, PublishConnection connection not None, Py_ssize_t place):
        """Add a connection that is ready; `place` is its rank among the open ones of a sticky producer."""
        if not connection.is_open:
            return
        connection.dispatcher = self
        self.connections.insert(min(place, len(self.connections)), connection)
        while self.backlog and self.connections:
            self.give(self.backlog.popleft())
        resolve(self.connection_waiters)

    def retire(self, PublishConnection connection not None):
        """Give it nothing more; return the futures of its unanswered publishes."""
        if connection not in self.connections:
            return []
        self.connections.remove(connection)
        self.retired.append(connection)
        return connection.futures()

    def ping(self):
        """Write a NOP to every connection; return whether there is one."""
        for connection in self.connections:
            (<PublishConnection> connection).tell(b"NOP\n")
        return len(self.connections) > 0

    def wait_connection(self):
        """Return a future that is done when there is a new connection."""
        return add_waiter(self.connection_waiters, self.create_future())

    # -- in ------------------------------------------------------------------------------------------------------------

    def send(self, topic, body, bint is_piped):
        """Send a PUB; the future is done when nsqd has taken it."""
        body = as_body(body)
        return self.submit(self.make_pending(self.head(topic), body, len(<bytes> body), is_piped))

    def send_many(self, topic, list bodies not None, bint is_piped):
        """Send an MPUB: nsqd takes all of the bodies or none."""
        cdef list kept = []
        cdef Py_ssize_t size = as_bodies(bodies, kept)
        return self.submit(self.make_pending(b"M" + self.head(topic), kept, size, is_piped))

    def send_encoded(self, topic, Encoded bodies not None, bint is_piped):
        """Send an MPUB with bodies that were encoded before."""
        return self.submit(self.make_pending(b"M" + self.head(topic), bodies, len(bodies.data) - 4, is_piped))

    def send_later(self, topic, body, int64_t delay_ms, bint is_piped):
        """Send a DPUB."""
        body = as_body(body)
        line = b"D" + self.head(topic).rstrip() + b" %d\n" % delay_ms
        return self.submit(self.make_pending(line, body, len(<bytes> body), is_piped))

    def send_delayed(self, topic, body, int64_t delay_ms):
        """Send a DPUB that asks for the message's id; the result is the address of the nsqd, and its answer."""
        cdef Pending pending
        body = as_body(body)
        line = b"D" + self.head(topic).rstrip() + b" %d id\n" % delay_ms
        pending = self.make_pending(line, body, len(<bytes> body), False)
        pending.is_asking = True
        return self.submit(pending)

    def send_again(self, topic, body, double timeout_s, bint may_be_there):
        """Send a PUB that failed on a connection which is not one of these."""
        cdef Pending pending
        body = as_body(body)
        pending = self.make_pending(self.head(topic), body, len(<bytes> body), False)
        pending.tries_left = max(0, self.retries - 1)
        pending.deadline_ns = monotonic_ns() + <int64_t> (timeout_s * SECOND_NS)
        self.resent += may_be_there
        return self.submit(pending)

    cdef Pending make_pending(self, bytes head, object body, Py_ssize_t size, bint is_piped):
        """Count a publish without sending it yet."""
        cdef Pending pending
        if self.is_closed:
            raise ClosedError(self.why_closed)
        if PyThread_get_thread_ident() != self.thread_id:
            self.check_thread()
        if self.count >= self.count_max or (self.size + size > self.size_max and self.count):
            self.wanted_size = size
            raise BufferFullError(f"{self.count} publishes of {self.size} bytes wait for an answer ({self.reason})"
                                  if not self.connections else f"{self.count} publishes of {self.size} bytes wait")
        pending = Pending.__new__(Pending)
        pending.future = self.create_future()
        pending.head = head
        pending.body = body
        pending.size = size
        pending.is_piped = is_piped
        pending.tries_left = self.retries
        pending.deadline_ns = monotonic_ns() + self.timeout_ns if self.timeout_ns else INT64_MAX
        self.count += 1
        self.size += size
        self.wanted_size = 0
        return pending

    cdef object submit(self, Pending pending):
        self.give(pending)
        if pending.deadline_ns < self.timer_ns:
            self.set_timer(pending.deadline_ns)
        return pending.future

    cdef int set_timer(self, int64_t deadline_ns) except -1:
        """Have `tick` called then, or slightly later, so that deadlines close together share a call."""
        cdef double delay_s = (deadline_ns - monotonic_ns()) / SECOND_NS
        if self.timer is not None:
            self.timer.cancel()
        self.timer_ns = deadline_ns
        self.timer = self.loop.call_later(max(delay_s, TICK_S_MIN), self.tick)
        return 0

    cdef int check_thread(self) except -1:
        """Raise outside the running loop, which a call would corrupt without a trace. A loop may change threads."""
        if _get_running_loop() is not self.loop:
            raise ClosedError("the producer was started in another event loop; make one in each event loop")
        self.thread_id = PyThread_get_thread_ident()
        return 0

    cdef bytes head(self, object topic):
        """Return the line of a PUB; refuse a name that nsqd would refuse by closing the connection."""
        cdef object found = self.heads.get(topic)
        if found is None:
            check_name("topic", topic)
            if len(self.heads) >= TOPICS_KEPT_MAX:
                self.heads.clear()
            found = b"PUB %s\n" % topic.encode("ascii")
            self.heads[topic] = found
        return <bytes> found

    cdef int give(self, Pending pending) except -1:
        cdef Py_ssize_t open_count = len(self.connections)
        if open_count == 0:
            self.backlog.append(pending)
            return 0
        if self.is_sticky or open_count == 1:
            return (<PublishConnection> self.connections[0]).publish(pending)
        self.next_index = (self.next_index + 1) % open_count
        return (<PublishConnection> self.connections[self.next_index]).publish(pending)

    # -- out -----------------------------------------------------------------------------------------------------------

    cdef int release(self, Pending pending) except -1:
        self.count -= 1
        self.size -= pending.size
        if self.drains and self.has_room():
            resolve(self.drains)
        return 0

    cdef int fail(self, Pending pending, object error) except -1:
        self.release(pending)
        if pending.future.done():
            return 0
        self.failed += 1
        pending.future.set_exception(error)
        if pending.is_piped:
            pending.future.exception()  # marks it as retrieved: flush and close raise it
            self.note_lost(pending.head.split()[1].decode("ascii"), message_count(pending.body), error)
        return 0

    def note_lost(self, topic, Py_ssize_t count, error not None):
        """Count messages that nobody waits for as not published."""
        if self.failure is None:
            self.failure = error
        self.lost[topic] = self.lost.get(topic, 0) + count

    cdef int on_refused(self, Pending pending, str text) except -1:
        error = PublishRefusedError(text)
        if error.is_passing and pending.tries_left > 0 and not pending.future.done():
            pending.tries_left -= 1
            self.backlog.appendleft(pending)
            return 0
        return self.fail(pending, error)

    cdef int on_ended(self, PublishConnection connection, list left) except -1:
        """Send the connection's unanswered publishes over another one, let them wait, or fail them."""
        cdef Pending pending
        cdef Py_ssize_t certain_from = 0 if connection.was_refused else len(left) - connection.unsent
        cdef list again = []
        for connections in (self.connections, self.retired):
            if connection in connections:
                connections.remove(connection)
        for i in range(len(left)):
            pending = left[i]
            if pending.future.done():
                self.release(pending)
            elif i >= certain_from and not self.is_closed:
                again.append(pending)
            elif pending.tries_left > 0 and not self.is_closed:
                pending.tries_left -= 1
                self.resent += 1
                again.append(pending)
            else:
                self.fail(pending, OutcomeUnknownError(f"no answer: {connection.error}"))
        self.backlog.extend(again)
        self.reason = str(connection.error)
        for _ in range(len(self.backlog) if self.connections else 0):
            self.give(self.backlog.popleft())
        return 0

    # -- waiting -------------------------------------------------------------------------------------------------------

    def unanswered(self):
        """The futures of all unanswered publishes, roughly in order."""
        cdef list found = []
        cdef Pending pending
        for connection in (*self.connections, *self.retired):
            found += (<PublishConnection> connection).futures()
        for pending in self.backlog:
            if not pending.future.done():
                found.append(pending.future)
        return found

    cpdef bint has_room(self):
        """Whether at most half of the limit waits, and the publish that was refused last fits now."""
        return self.count == 0 or (self.count * 2 <= self.count_max and self.size * 2 <= self.size_max
                                   and self.size + self.wanted_size <= self.size_max)

    def wait_room(self):
        """Return a future that is done when there is room."""
        return add_waiter(self.drains, self.create_future())

    def take_failure(self):
        """Return the first failure of a piped publish since the last call, or None."""
        failure, self.failure = self.failure, None
        return failure

    def take_lost(self):
        """Return how many messages of piped publishes failed since the last call, by topic."""
        lost, self.lost = self.lost, {}
        return lost

    def tick(self):
        """Called when the first deadline has come."""
        cdef int64_t next_ns = self.expire(monotonic_ns())
        self.timer = None
        self.timer_ns = INT64_MAX
        if next_ns < INT64_MAX and not self.is_closed:
            self.set_timer(next_ns)

    def expire(self, int64_t now_ns):
        """Fail publishes that have waited too long. A sent one keeps its place, because its answer may still come.

        Return the next deadline. Nearly all are in order; the others are noticed a little late.
        """
        cdef Pending pending
        cdef int64_t next_ns = INT64_MAX
        while self.backlog and (<Pending> self.backlog[0]).deadline_ns <= now_ns:
            self.fail(self.backlog.popleft(), NotConnectedError(f"no connection in time: {self.reason}"))
        if self.backlog:
            next_ns = (<Pending> self.backlog[0]).deadline_ns
        for connection in (*self.connections, *self.retired):
            for pending in (<PublishConnection> connection).waiting:
                if pending.deadline_ns > now_ns:
                    next_ns = min(next_ns, pending.deadline_ns)
                    break
                self.fail_in_place(pending, OutcomeUnknownError("no answer in time"))
        return next_ns

    cdef int fail_in_place(self, Pending pending, object error) except -1:
        """Fail a sent publish; its place is freed by the answer, or with the connection."""
        if not pending.future.done():
            self.count += 1
            self.size += pending.size
            self.fail(pending, error)
        return 0

    def fail_waiting(self, str why not None):
        """Fail all that wait for a connection; none of them was sent."""
        while self.backlog:
            self.fail(self.backlog.popleft(), NotConnectedError(why))

    def close(self, str why not None):
        """Take nothing more; fail what waits for a connection, and the rest when its connection ends."""
        self.is_closed = True
        self.why_closed = why
        if self.timer is not None:
            self.timer.cancel()
            self.timer = None
        self.fail_waiting(f"the producer was closed: {self.reason}")

    def forbid(self, str why not None):
        """Take nothing more, without touching the loop or a connection: they belong to another process."""
        self.is_closed = True
        self.why_closed = why

    def abandon(self, str why not None):
        """Take nothing more and fail everything now, because the loop ends."""
        cdef Pending pending
        self.close(why)
        for connection in (*self.connections, *self.retired):
            for pending in (<PublishConnection> connection).waiting:
                self.fail_in_place(pending, OutcomeUnknownError(f"no answer: {why}"))


cdef object add_waiter(list futures, object future):
    """Add a future after removing those of callers who gave up; usually these are the oldest."""
    while futures and futures[0].done():
        futures.pop(0)
    futures.append(future)
    return future


cdef int resolve(list futures) except -1:
    """Wake all who wait for one of these futures."""
    waiting = futures[:]
    futures.clear()
    for future in waiting:
        if not future.done():
            future.set_result(None)
    return 0
