"""A read of a socket becomes Messages in one queue, or columns, and wakes as many tasks as there are messages for.

Each connection has a list of its unanswered messages, which owns nothing: a message without references removes itself.
That list is used for TOUCH, and for handing messages back at a graceful stop.
"""

cimport cython
from libc.string cimport memcpy

import re
from collections import deque

from nsqfast._ext.core.clock cimport monotonic_ns
from nsqfast._ext.core.limits cimport FORGOTTEN_MAX, MESSAGE_HEADER_SIZE, MESSAGE_ID_SIZE
from nsqfast._ext.core.message cimport get_be16, get_be64
from nsqfast.errors import ClosedError, OptionsError

cdef extern from "Python.h":
    Py_ssize_t PY_SSIZE_T_MAX

cdef enum:
    QUEUE_GAP_MAX = 1024
    REASON_SIZE_MAX = 256  # nsqfast-nsqd keeps no more

cdef bytes NEWLINE = b"\n"
NO_PLACE = "reject needs nsqfast-nsqd or dead_letter_topic"
# What nsqfast-nsqd does not count as a failure.
NOT_TRIED = "-"

# Errors that answer FIN, REQ, REJ or TOUCH and do not end the connection (spec nsqd-tcp §6).
cdef tuple LATE = ("E_FIN_FAILED", "E_REQ_FAILED", "E_REJ_FAILED", "E_TOUCH_FAILED")
# What ends the first line, and what may not be in it: it would end the command, or steer a terminal that shows it.
cdef object LINE_END = re.compile("[\n\r\v\f\x1c-\x1e\x85\u2028\u2029]")
cdef object CONTROL = re.compile("[\0-\x1f\x7f-\x9f]")
# A task that never waits, because there is always an item, lets the loop run after this long.
cdef int64_t TURN_NS = 5000000


cdef bytes parameter_of(str reason):
    """The first line of a reason with a space before it, as the last parameter of a command; empty without one."""
    cdef bytes line
    # No character has less than a byte, so the rest would be cut off below.
    reason = LINE_END.split(reason.lstrip()[:REASON_SIZE_MAX], 1)[0]
    line = CONTROL.sub(" ", reason).strip().encode("utf-8", "replace")
    if len(line) > REASON_SIZE_MAX:
        line = line[:REASON_SIZE_MAX].decode("utf-8", "ignore").encode()  # no half of a character
    return b" " + line if line else b""


@cython.final
@cython.freelist(256)
cdef class Next:
    """An awaitable for the next item, to be awaited once: at once if it is there, else when it comes."""

    def __await__(self):
        return self

    def __iter__(self):
        return self

    def __next__(self):
        cdef MessageQueue source = self.source
        if self.must_yield:
            self.must_yield = False
            source.loop_ran_ns = monotonic_ns()
            return None
        while True:
            if self.waited is not None:
                try:
                    return next(self.waited)
                except StopIteration:
                    self.waited = None
            if source.is_stopped:
                raise StopAsyncIteration
            item = source.pop()
            if item is not None:
                raise StopIteration(item)
            future = source.loop.create_future()
            source.waiters.append(future)
            self.waited = iter(future)

    def throw(self, kind, value=None, traceback=None):
        """The task was cancelled; another one gets the item that it was woken for."""
        self.source.wake()
        self.source.note_left()
        raise kind if value is None else value


@cython.final
@cython.no_gc
@cython.freelist(1024)
cdef class Message:
    """One delivery. It is answered once, by `finish`, `requeue` or `reject`; these do not wait, as nsqd sends no reply.

    They return whether the answer was sent: not if there was one before, nor if the connection broke, after which nsqd
    delivers the message again.
    """

    def __init__(self):
        raise TypeError("messages come from a Consumer")

    def __dealloc__(self):
        if self.connection is not None and not self.is_answered:
            unlink(self)
            self.connection.forget(self)

    @property
    def id(self):
        """16 hex digits."""
        return self.identity[:MESSAGE_ID_SIZE]

    @property
    def is_answerable(self):
        """Whether an answer would be sent now."""
        return not self.is_answered and self.connection.is_open

    @property
    def is_rejectable(self):
        """Whether `reject` has a place for it: its nsqd offers that, or its consumer has a dead_letter_topic."""
        return self.connection.has_place_for_rejected

    @property
    def nsqd(self):
        """The address of the nsqd that delivered it, as it was configured or found."""
        return self.connection.address

    def __repr__(self):
        identity = self.id.decode("ascii", "backslashreplace")
        return f"<Message {identity} attempts={self.attempts} body={len(self.body)} bytes>"

    cdef bint answer(self) except -1:
        """Mark it as answered; return whether the answer can still be sent."""
        if self.is_answered:
            return False
        self.is_answered = True
        unlink(self)
        if not self.connection.is_open:
            return False
        self.connection.leave_flight(1)
        return True

    def finish(self):
        """Send FIN: the message is done."""
        cdef ConsumeConnection connection = self.connection
        if self.is_answered:
            return False
        if connection.inbox.reports_success:
            connection.inbox.owner.on_success()
        return self.send_finish()

    def discard(self):
        """Send FIN, as neither success nor failure to the consumer's backoff."""
        if self.connection.inbox.reports_success and not self.is_answered:
            self.connection.inbox.owner.on_neutral()
        return self.send_finish()

    cdef bint send_finish(self) except -1:
        if not self.answer():
            return False
        self.connection.inbox.finished += 1
        self.connection.command(b"FIN ", 4, self.identity, NEWLINE)
        return True

    def requeue(self, delay_s=None, *, bint backoff=True, str reason not None=""):
        """Send REQ: nsqd delivers it again after so long; None = default_requeue_delay × attempts, at most
        max_requeue_delay.

        With `backoff` the consumer slows down, if it may. `reason`: why it failed, for nsqfast-nsqd, which keeps it.
        """
        cdef MessageQueue inbox = self.connection.inbox
        cdef int64_t delay_ms
        try:
            delay_ms = inbox.delay_ms(self.attempts) if delay_s is None else max(0, <int64_t> (delay_s * 1000))
        except TypeError:
            raise TypeError(f"delay_s is a number of seconds, not {delay_s!r:.80}") from None
        if self.is_answered:
            return False
        if backoff:
            inbox.owner.on_failure(1)  # before REQ, so that no more comes meanwhile
        elif inbox.reports_success:
            inbox.owner.on_neutral()
        if not self.answer():
            return False
        inbox.requeued += 1
        if reason and self.connection.may_reject:
            self.connection.command(b"REQ ", 4, self.identity, b" %d%s\n" % (delay_ms, parameter_of(reason)))
        else:
            self.connection.command(b"REQ ", 4, self.identity, b" %d\n" % delay_ms)
        return True

    def reject(self, str reason not None=""):
        """Send REJ: it is never delivered again, and nsqd puts it into the channel's dead-letter topic at once.

        An nsqd that does not offer that: the consumer publishes its body to `dead_letter_topic`, and finishes it then;
        OptionsError if it has none. To the consumer's backoff it is neither success nor failure.
        """
        cdef ConsumeConnection connection = self.connection
        cdef MessageQueue inbox = connection.inbox
        if not self.is_rejectable:
            raise OptionsError(NO_PLACE)
        if self.is_answered:
            return False
        if not connection.may_reject:
            return self.hand_over(reason)
        if inbox.reports_success:
            inbox.owner.on_neutral()
        if not self.answer():
            return False
        inbox.rejected += 1
        connection.command(b"REJ ", 4, self.identity, parameter_of(reason) + NEWLINE)
        return True

    cdef bint hand_over(self, str reason) except -1:
        """Have the consumer move it. A copy takes its place meanwhile, as the program can answer it no more."""
        if not self.connection.is_open:
            return self.answer()
        self.is_answered = True
        unlink(self)
        self.connection.inbox.owner.on_rejected(
            make_message(self.connection, self.timestamp_ns, self.attempts, self.since_ns, self.identity, self.body),
            reason)
        return True

    def touch(self):
        """Send TOUCH: its time in flight starts anew."""
        if self.is_answered or not self.connection.is_open:
            return False
        self.since_ns = monotonic_ns()
        self.connection.inbox.touched += 1
        self.connection.command(b"TOUCH ", 6, self.identity, NEWLINE)
        return True

    def keep(self):
        """Do not answer when the handler returns; the answer is given later."""
        self.is_kept = True


cdef int unlink(Message message) noexcept:
    if message.before is NULL:
        message.connection.first = message.after
    else:
        (<Message> message.before).after = message.after
    if message.after is NULL:
        message.connection.last = message.before
    else:
        (<Message> message.after).before = message.before
    message.before = message.after = NULL
    return 0


cdef inline Message make_message(ConsumeConnection connection, int64_t timestamp_ns, uint16_t attempts,
                                 int64_t since_ns, const char *identity, bytes body):
    """One more in the connection's list."""
    cdef Message message = Message.__new__(Message)
    message.timestamp_ns = timestamp_ns
    message.attempts = attempts
    message.since_ns = since_ns
    memcpy(message.identity, identity, MESSAGE_ID_SIZE)
    message.body = body
    message.connection = connection
    message.before = connection.last
    if connection.last is NULL:
        connection.first = <void *> message
    else:
        (<Message> connection.last).after = <void *> message
    connection.last = <void *> message
    return message


cdef class ConsumeConnection(ClientConnection):
    """A connection that is subscribed, or about to be."""

    def __init__(self, loop, on_closed, MessageQueue inbox not None):
        super().__init__(loop, on_closed)
        self.inbox = inbox
        self.address = ""
        self.room_at = -1
        self.attempts_max = inbox.attempts_max
        self.forgotten = set()

    @property
    def has_place_for_rejected(self):
        """Whether nsqd takes what is rejected, or the owner does."""
        return self.may_reject or self.inbox.moves_rejected

    cdef int on_message(self, const char *data, Py_ssize_t size) except -1:
        cdef MessageQueue inbox = self.inbox
        cdef Message message
        cdef int attempts = get_be16(data + 8)
        cdef bint is_hopeless = 0 < self.attempts_max < attempts
        if self.is_leaving:
            return self.command(b"REQ ", 4, data + 10, self.untried_tail())
        if self.forgotten:
            self.forgotten.discard(data[10:MESSAGE_HEADER_SIZE])  # delivered again
        self.received += 1
        self.in_flight += 1
        self.message_ns = self.read_ns
        inbox.received += 1
        if inbox.columns is not None and not is_hopeless:
            inbox.columns.add(self, data + 10, <int64_t> get_be64(data), attempts, data + MESSAGE_HEADER_SIZE,
                              size - MESSAGE_HEADER_SIZE)
            return inbox.set_block_aside()
        message = make_message(self, <int64_t> get_be64(data), attempts, self.read_ns, data + 10,
                               data[MESSAGE_HEADER_SIZE:size])
        if is_hopeless:
            inbox.owner.on_hopeless(message)
            return 0
        return inbox.push(message)

    cdef int on_error(self, str text) except -1:
        if text.startswith(LATE):
            # It is no answer then.
            self.inbox.finished -= text.startswith("E_FIN")
            self.inbox.requeued -= text.startswith("E_REQ")
            if text.startswith("E_REJ"):
                self.inbox.rejected -= 1
                self.requeue_refused(text)
            self.inbox.touched -= text.startswith("E_TOUCH")
            self.inbox.owner.on_late(self, text)
            return 0
        return ClientConnection.on_error(self, text)

    cdef int requeue_refused(self, str text) except -1:
        """Give back what nsqd had no place for, as it is in flight until then: a message of a dead-letter topic."""
        cdef bytes identity = text[len("E_REJ_FAILED REJ "):][:MESSAGE_ID_SIZE].encode("ascii", "replace")
        if len(identity) < MESSAGE_ID_SIZE or not identity.isalnum() or not text.endswith(" it is a dead letter"):
            return 0
        self.inbox.requeued += 1
        return self.command(b"REQ ", 4, identity, b" %d\n" % self.inbox.delay_ms(1))

    cdef int after_read(self) except -1:
        return self.inbox.wake()

    cdef int leave_flight(self, Py_ssize_t count) except -1:
        self.in_flight -= count
        if self.in_flight <= self.room_at:
            self.room_at = -1
            self.inbox.owner.on_room()
        return 0

    cdef int forget(self, Message message) except -1:
        """Remember it for a stop, which may hand it back; without a stop nsqd's timeout decides."""
        self.in_flight -= 1
        if self.is_open:
            self.inbox.forgotten += not self.is_leaving
            if len(self.forgotten) >= FORGOTTEN_MAX:
                self.forgotten.clear()
            self.forgotten.add(message.identity[:MESSAGE_ID_SIZE])
        return 0

    cdef int command(self, const char *name, Py_ssize_t size, const char *identity, bytes tail) except -1:
        cdef char *place = self.output.reserve(size + MESSAGE_ID_SIZE + len(tail))
        memcpy(place, name, size)
        memcpy(place + size, identity, MESSAGE_ID_SIZE)
        memcpy(place + size + MESSAGE_ID_SIZE, <const char *> tail, len(tail))
        # The last one in flight: nsqd sends nothing more until it is told.
        return self.write() if self.in_flight == 0 and not self.is_flushing else self.schedule_flush()

    def set_rdy(self, Py_ssize_t count):
        """Send RDY, unless it is unchanged."""
        if count != self.rdy and self.is_open and not self.is_leaving:
            self.rdy = count
            self.tell(b"RDY %d\n" % count)

    def report_room_at(self, Py_ssize_t in_flight):
        """Call the owner's `on_room` once as few as `in_flight` messages are in flight here."""
        self.room_at = in_flight

    def leave(self):
        """Send CLS; the future is done when nsqd sends nothing more. Further messages are handed back."""
        self.is_leaving = True
        self.rdy = 0
        return self.ask(b"CLS\n")

    def hand_back(self):
        """Requeue all unanswered messages at once; return how many there were."""
        cdef Py_ssize_t count = 0
        while self.first is not NULL:
            count += (<Message> self.first).requeue(0, backoff=False, reason=NOT_TRIED)
        for identity in self.forgotten:
            self.command(b"REQ ", 4, <bytes> identity, self.untried_tail())
        return count + len(self.forgotten)

    cdef bytes untried_tail(self):
        """Of a REQ of what nobody handled: no failure to nsqfast-nsqd."""
        return b" 0 -\n" if self.may_reject else b" 0\n"

    def touch_before(self, int64_t before_ns):
        """Touch messages received, or last touched, before that moment; return how many there were."""
        cdef void *place = self.first
        cdef Py_ssize_t count = 0
        while place is not NULL:
            if (<Message> place).since_ns < before_ns:
                count += (<Message> place).touch()
            place = (<Message> place).after
        return count

    def find_before(self, int64_t before_ns):
        """Return the first message that was received, or last touched, before that moment; None = there is none."""
        cdef void *place = self.first
        while place is not NULL:
            if (<Message> place).since_ns < before_ns:
                return <Message> place
            place = (<Message> place).after
        return None

    def requeue_delay_ms(self, int attempts):
        """Return default_requeue_delay × attempts, at most max_requeue_delay."""
        return self.inbox.delay_ms(attempts)

    cdef Py_ssize_t tell_run(self, bytes name, bytes identities, bytes chosen, Py_ssize_t first, Py_ssize_t last,
                             bytes tail, bint is_answer) except -1:
        """Write the command for each chosen row from `first` to before `last`; return for how many."""
        cdef const char *is_chosen = chosen
        cdef const char *identity = identities
        cdef Py_ssize_t name_size = len(name), tail_size = len(tail), row, count = 0
        cdef char *place
        if not self.is_open:
            return 0
        for row in range(first, last):
            count += is_chosen[row] != 0
        if count == 0:
            return 0
        place = self.output.reserve(count * (name_size + MESSAGE_ID_SIZE + tail_size))
        for row in range(first, last):
            if is_chosen[row]:
                memcpy(place, <const char *> name, name_size)
                memcpy(place + name_size, identity + row * MESSAGE_ID_SIZE, MESSAGE_ID_SIZE)
                memcpy(place + name_size + MESSAGE_ID_SIZE, <const char *> tail, tail_size)
                place += name_size + MESSAGE_ID_SIZE + tail_size
        if is_answer:
            self.leave_flight(count)
        if self.in_flight == 0 and not self.is_flushing:
            self.write()
        else:
            self.schedule_flush()
        return count


@cython.final
cdef class MessageQueue:
    """The messages that were received and not taken yet: an asynchronous iterator that callbacks fill and any number of
    tasks read. It makes `async for` cheap: one small object that has the message, or waits on a future of the loop.
    """

    def __init__(self, loop, owner, int attempts_max, int64_t requeue_delay_ms, int64_t requeue_delay_ms_max):
        self.loop = loop
        self.thresholds = []
        self.waiters = deque()
        self.loop_ran_ns = monotonic_ns()
        self.owner = owner
        self.attempts_max = attempts_max
        self.requeue_delay_ms = requeue_delay_ms
        self.requeue_delay_ms_max = requeue_delay_ms_max
        self.queue = []
        self.blocks = []

    cdef int64_t delay_ms(self, int attempts) noexcept:
        return min(self.requeue_delay_ms * attempts, self.requeue_delay_ms_max)

    cdef Py_ssize_t waiting(self) noexcept:
        cdef Py_ssize_t count = len(self.queue) - self.start
        if self.columns is not None:
            count += self.columns.count + self.columns_count_max * len(self.blocks)
        return count

    cdef int push(self, Message message) except -1:
        self.queue.append(message)
        return 0

    cdef object pop(self):
        """Return the next one whose connection is still open, or None."""
        cdef Message message
        while self.start < len(self.queue):
            message = <Message> self.queue[self.start]
            self.queue[self.start] = None
            self.start += 1
            if self.start == len(self.queue):
                self.queue.clear()
                self.start = 0
            elif self.start >= QUEUE_GAP_MAX and self.start * 2 > len(self.queue):
                del self.queue[:self.start]
                self.start = 0
            if message.connection.is_open and not message.is_answered:
                return message
            self.dropped += 1
        return None

    def __len__(self):
        return self.waiting()

    cdef int wake(self) except -1:
        cdef Py_ssize_t count = self.waiting()
        self.loop_ran_ns = monotonic_ns()
        if self.thresholds:
            for threshold in list(self.thresholds):
                if count >= threshold[0] or self.is_stopped:
                    self.thresholds.remove(threshold)
                    if not threshold[1].done():
                        threshold[1].set_result(None)
        if self.is_stopped:
            count = len(self.waiters)
        while count > 0 and self.waiters:
            future = self.waiters.popleft()
            if not future.done():
                future.set_result(None)
                count -= 1
        return 0

    cdef int note_left(self) except -1:
        """Count a waiter that gave up. Once half of them may have, remove those that did."""
        self.left_count += 1
        if self.left_count * 2 > len(self.waiters):
            self.waiters = deque([future for future in self.waiters if not future.done()])
            self.left_count = 0
        return 0

    def __aiter__(self):
        return self

    def __anext__(self):
        if self.columns is not None:
            raise ClosedError("this consumer gives arrays by now")
        cdef Next awaited = Next.__new__(Next)
        awaited.source = self
        awaited.must_yield = monotonic_ns() - self.loop_ran_ns > TURN_NS
        return awaited

    def wait_for(self, Py_ssize_t count):
        """Return a future that is done when so many items are here, or no more will come."""
        future = self.loop.create_future()
        if self.is_stopped or self.waiting() >= count:
            future.set_result(None)
        else:
            self.thresholds = [entry for entry in self.thresholds if not entry[1].done()]
            self.thresholds.append([count, future])
        return future

    def end(self):
        """Give out nothing more. It touches nothing else, so a signal handler or another thread may call it, and have
        `stop` called on the loop."""
        self.is_stopped = True

    def stop(self):
        """Tell all who wait for a message that there will be none."""
        self.is_stopped = True
        self.wake()

    def wait_stopped(self):
        """Return a future that is done at the stop."""
        return self.wait_for(PY_SSIZE_T_MAX)

    def take(self, Py_ssize_t count_max):
        """Return up to so many messages, without waiting."""
        cdef list found = []
        cdef Message message
        while len(found) < count_max:
            message = self.pop()
            if message is None:
                break
            found.append(message)
        return found

    def gather_columns(self, Py_ssize_t count_max):
        """From here on gather messages as columns of up to `count_max` rows, including those that wait."""
        cdef Message message
        self.columns_count_max = count_max
        if self.columns is not None:
            return
        self.columns = Columns()
        for message in self.take(len(self.queue)):
            self.columns.add(message.connection, message.identity, message.timestamp_ns, message.attempts, message.body,
                             len(message.body))
            # The row is answered instead.
            message.is_answered = True
            unlink(message)
            self.set_block_aside()

    cdef int set_block_aside(self) except -1:
        """Put a full block aside."""
        if self.columns.count >= self.columns_count_max:
            self.blocks.append(self.columns)
            self.columns = Columns()
        return 0

    def take_columns(self):
        """Return the oldest block, or None: nothing is there, or nothing is gathered as columns."""
        if self.blocks:
            return (<Columns> self.blocks.pop(0)).take()
        return self.columns.take() if self.columns is not None and self.columns.count else None


# -- answers to rows of arrays, each on the connection that its message came from --------------------------------------
#
# `sources` are uint16, the index of each row's connection in `connections`; `identities` are 16 bytes each; a row
# counts if its byte in `chosen` is not 0. The connections are those of one consumer.

cdef Py_ssize_t tell_rows(list connections, bytes identities, bytes sources, bytes chosen, bytes name, bytes tail,
                          bytes parameter, bint is_answer) except -1:
    """Send each row's command to its own connection; return how many were sent. One pass: rows of a connection are
    adjacent. `parameter` stands behind the others where nsqd takes a reason."""
    cdef bytes with_reason = tail + parameter + NEWLINE, without = tail + NEWLINE
    cdef const uint16_t *source = <const uint16_t *> <const char *> sources
    cdef ConsumeConnection connection
    cdef Py_ssize_t count = len(chosen), first = 0, last, told = 0
    if len(sources) != 2 * count or len(identities) != MESSAGE_ID_SIZE * count:
        raise ValueError("one source, one id and one choice for each row")
    while first < count:
        if source[first] >= len(connections):
            raise IndexError(f"no connection {source[first]}")
        last = first + 1
        while last < count and source[last] == source[first]:
            last += 1
        connection = <ConsumeConnection?> connections[source[first]]
        told += connection.tell_run(name, identities, chosen, first, last,
                                    with_reason if connection.may_reject else without, is_answer)
        first = last
    return told


def finish_rows(list connections not None, bytes identities not None, bytes sources not None, bytes chosen not None):
    """Send FIN for the chosen rows; return how many were sent. In backoff they are one success."""
    cdef MessageQueue inbox
    cdef Py_ssize_t told
    if not connections:
        return 0
    inbox = (<ConsumeConnection?> connections[0]).inbox
    if inbox.reports_success and b"\1" in chosen:
        inbox.owner.on_success()
    told = tell_rows(connections, identities, sources, chosen, b"FIN ", b"", b"", True)
    inbox.finished += told
    return told


def requeue_rows(list connections not None, bytes identities not None, bytes sources not None, bytes chosen not None,
                 int64_t delay_ms, bint backoff=False, str reason not None=""):
    """The same with REQ; with `backoff` each is a failure. `reason`: why, for those nsqd that keep it."""
    cdef MessageQueue inbox
    cdef Py_ssize_t told
    if not connections:
        return 0
    inbox = (<ConsumeConnection?> connections[0]).inbox
    if b"\1" in chosen:
        if backoff:
            inbox.owner.on_failure(len(chosen) - chosen.count(b"\0"))  # before REQ, so that no more comes meanwhile
        elif inbox.reports_success:
            inbox.owner.on_neutral()
    told = tell_rows(connections, identities, sources, chosen, b"REQ ", b" %d" % delay_ms, parameter_of(reason), True)
    inbox.requeued += told
    return told


def reject_rows(list connections not None, bytes identities not None, bytes sources not None, bytes chosen not None,
                str reason not None):
    """The same with REJ, which all of their nsqd have to offer. In backoff they are neither success nor failure."""
    cdef MessageQueue inbox
    cdef Py_ssize_t told
    if b"\1" not in chosen:
        return 0
    inbox = (<ConsumeConnection?> connections[0]).inbox
    if inbox.reports_success:
        inbox.owner.on_neutral()
    told = tell_rows(connections, identities, sources, chosen, b"REJ ", b"", parameter_of(reason), True)
    inbox.rejected += told
    return told


def move_rows(taken not None, bytes chosen not None, str reason not None):
    """Have the consumer move the chosen rows, each as a Message, as their nsqd do not offer REJ; return how many."""
    cdef bytes sources = taken.sources, offsets = taken.offsets, timestamps = taken.timestamps
    cdef bytes attempts = taken.attempts, identities = taken.identities, bodies = taken.bodies
    cdef const uint16_t *source = <const uint16_t *> <const char *> sources
    cdef const int64_t *offset = <const int64_t *> <const char *> offsets
    cdef const char *identity = identities
    cdef ConsumeConnection connection
    cdef Py_ssize_t row, told = 0
    for row in range(len(chosen)):
        if not chosen[row]:
            continue
        connection = <ConsumeConnection?> taken.connections[source[row]]
        if connection.is_open:
            told += 1
            connection.inbox.owner.on_rejected(
                make_message(connection, (<const int64_t *> <const char *> timestamps)[row],
                             (<const uint16_t *> <const char *> attempts)[row], connection.read_ns,
                             identity + row * MESSAGE_ID_SIZE, bodies[offset[row]:offset[row + 1]]),
                reason)
    return told


def touch_rows(list connections not None, bytes identities not None, bytes sources not None, bytes chosen not None):
    """The same with TOUCH."""
    cdef Py_ssize_t told = tell_rows(connections, identities, sources, chosen, b"TOUCH ", b"", b"", False)
    if told:
        (<ConsumeConnection> connections[0]).inbox.touched += told
    return told
