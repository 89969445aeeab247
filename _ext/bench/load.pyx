"""Runs without the GIL from start to end; a Python thread may read the totals meanwhile.

All workers of a run share the totals, so that consumers in several processes stop at a common count. A generator that
costs more per message than the broker would measure itself. So a connection does one recv and one send per turn, counts
OKs and finishes messages in place.
"""

from cpython.buffer cimport PyBUF_CONTIG, PyBuffer_Release, PyObject_GetBuffer
from libc.errno cimport EAGAIN, EINTR, errno
from libc.stdint cimport INT64_MAX, uint32_t, uint64_t
from libc.stdio cimport snprintf
from libc.stdlib cimport calloc, free, malloc, realloc
from libc.string cimport memcmp, memcpy, memmove, strerror
from posix.time cimport itimerspec
from posix.unistd cimport close, read

import os

from nsqfast._ext.core.clock cimport now_monotonic
from nsqfast._ext.core.limits cimport (
    FRAME_ERROR, FRAME_HEADER_SIZE, FRAME_MESSAGE, LOAD_DRAIN_NS, LOAD_FRAME_SIZE_MAX, MESSAGE_HEADER_SIZE,
    MESSAGE_ID_SIZE,
)
from nsqfast._ext.core.message cimport get_be32
from nsqfast._ext.core.sockets cimport (
    EPOLLIN, EPOLLOUT, EPOLL_CLOEXEC, EPOLL_CTL_ADD, EPOLL_CTL_MOD, MSG_NOSIGNAL, epoll_create1, epoll_ctl, epoll_event,
    epoll_wait, recv, send,
)
from nsqfast._ext.protocol.v2 cimport HEARTBEAT, HEARTBEAT_SIZE, OK_FRAME, OK_FRAME_SIZE

cdef extern from "<sys/timerfd.h>" nogil:
    int TFD_NONBLOCK, TFD_CLOEXEC, TFD_TIMER_ABSTIME
    int timerfd_create(int clock, int flags)
    int timerfd_settime(int fd, int flags, const itimerspec *wanted, itimerspec *before)

cdef extern from "<sys/prctl.h>" nogil:
    int PR_SET_TIMERSLACK
    int prctl(int option, ...)

cdef extern from "<time.h>" nogil:
    int CLOCK_MONOTONIC

cdef enum:
    INPUT_ROOM = 262144
    OUTPUT_ROOM = 65536
    # As much of a script as one send can take; longer ones only cost cache.
    SCRIPT_SIZE = 262144
    COMMAND_ROOM = 64     # FIN and REQ lines are shorter
    EVENT_MAX = 256
    # How soon an idle worker notices that the others have reached the target.
    TARGET_CHECK_MS = 5

cdef int64_t FOREVER = 0x7FFFFFFFFFFF


# Every function of a connection returns whether it is still open; `error` has the reason if not.

cdef LoadConnection *connection_new(ConnectionKind kind, int fd, Tally *tally) noexcept:
    """Return NULL without memory."""
    cdef LoadConnection *connection = <LoadConnection *> calloc(1, sizeof(LoadConnection))
    if connection is NULL:
        return NULL
    connection.kind = kind
    connection.fd = fd
    connection.tally = tally
    connection.requeue_ms = -1
    if not (widen(&connection.input, INPUT_ROOM) and widen(&connection.output, OUTPUT_ROOM)):
        connection_free(connection)
        return NULL
    return connection


cdef bint connection_set_script(LoadConnection *connection, const char *command, size_t size, int64_t window) noexcept:
    """Set the command, repeated as often as one send can take."""
    cdef int64_t i, times = max(1, min(window, <int64_t> (SCRIPT_SIZE // size)))
    connection.script = <char *> malloc(size * <size_t> times)
    if connection.script is NULL:
        return False
    for i in range(times):
        memcpy(connection.script + <size_t> i * size, command, size)
    connection.script_size = size * <size_t> times
    connection.command_size = size
    connection.window = window
    return True


cdef void connection_free(LoadConnection *connection) noexcept:
    if connection is not NULL:
        free(connection.input.data)
        free(connection.output.data)
        free(connection.script)
        free(connection)


cdef bint widen(Bytes *bytes, size_t capacity) noexcept nogil:
    cdef char *data = <char *> realloc(bytes.data, capacity)
    if data is NULL:
        return False
    bytes.data = data
    bytes.capacity = capacity
    return True


cdef bint make_room(LoadConnection *connection, Bytes *bytes, size_t size) noexcept nogil:
    """Have `size` bytes free behind the end."""
    cdef size_t capacity = bytes.capacity
    if bytes.start:
        memmove(bytes.data, bytes.data + bytes.start, bytes.end - bytes.start)
        bytes.end -= bytes.start
        bytes.start = 0
    while capacity - bytes.end < size:
        capacity *= 2
    return capacity == bytes.capacity or widen(bytes, capacity) or fail(connection, b"out of memory", 13)


cdef bint fail(LoadConnection *connection, const char *text, size_t size) noexcept nogil:
    size = min(size, sizeof(connection.error) - 1)
    memcpy(connection.error, text, size)
    connection.error[size] = 0
    return False


cdef bint fail_errno(LoadConnection *connection, const char *what) noexcept nogil:
    snprintf(connection.error, sizeof(connection.error), b"%s: %s", what, strerror(errno))
    return False


# -- out ---------------------------------------------------------------------------------------------------------------

cdef bint connection_start(LoadConnection *connection) noexcept nogil:
    if connection.kind == CONNECTION_CONSUMER:
        connection.output.end = <size_t> snprintf(
            connection.output.data, COMMAND_ROOM, b"RDY %lld\n", <long long> connection.rdy)
    return connection_write(connection)


cdef bint connection_write(LoadConnection *connection) noexcept nogil:
    """Send what may be sent, until the socket's buffer is full."""
    connection.is_blocked = False
    if connection.kind == CONNECTION_PUBLISHER:
        return write_script(connection)
    return write_output(connection)


cdef ssize_t send_some(LoadConnection *connection, const char *data, size_t size) noexcept nogil:
    """Return the bytes sent; 0 = the socket's buffer is full; -1 = the connection has failed."""
    cdef ssize_t sent
    while True:
        sent = send(connection.fd, data, size, MSG_NOSIGNAL)
        if sent >= 0:
            return sent
        if errno == EAGAIN:
            connection.is_blocked = True
            return 0
        if errno != EINTR:
            fail_errno(connection, b"send")
            return -1


cdef bint write_script(LoadConnection *connection) noexcept nogil:
    cdef int64_t command_count = min(connection.quota, connection.answered + connection.window)
    cdef int64_t allowed = command_count * <int64_t> connection.command_size - connection.sent_bytes
    cdef size_t at
    cdef ssize_t sent
    while allowed > 0 and not connection.is_blocked:
        at = <size_t> connection.sent_bytes % connection.script_size
        sent = send_some(connection, connection.script + at, min(<size_t> allowed, connection.script_size - at))
        if sent < 0:
            return False
        connection.sent_bytes += sent
        allowed -= sent
    return True


cdef bint write_output(LoadConnection *connection) noexcept nogil:
    cdef Bytes *out = &connection.output
    cdef ssize_t sent
    while out.start < out.end and not connection.is_blocked:
        sent = send_some(connection, out.data + out.start, out.end - out.start)
        if sent < 0:
            return False
        out.start += <size_t> sent
    if out.start == out.end:
        out.start = out.end = 0
    return True


cdef bint connection_tick(LoadConnection *connection, int64_t now_ns) noexcept nogil:
    """Send what is due by now, each with the time when it was due; messages behind the last one are not due."""
    cdef uint64_t intended
    cdef char *place
    cdef int i
    while connection.next_ns <= now_ns and connection.sent_bytes < connection.quota * <int64_t> connection.command_size:
        if not make_room(connection, &connection.output, connection.command_size):
            return False
        place = connection.output.data + connection.output.end
        memcpy(place, connection.script, connection.command_size)
        intended = <uint64_t> connection.next_ns
        for i in range(8):
            place[connection.body_at + <size_t> i] = <char> (intended >> (56 - 8 * i) & 0xFF)
        connection.output.end += connection.command_size
        connection.sent_bytes += <int64_t> connection.command_size
        connection.next_ns += connection.interval_ns
    if connection.sent_bytes >= connection.quota * <int64_t> connection.command_size:
        connection.next_ns = INT64_MAX
    return connection_write(connection)


cdef int64_t connection_in_air(LoadConnection *connection) noexcept nogil:
    """Return the number of commands begun and not answered."""
    cdef int64_t size = <int64_t> connection.command_size
    if connection.kind == CONNECTION_CONSUMER:
        return 0
    return (connection.sent_bytes + size - 1) // size - connection.answered


# -- in ----------------------------------------------------------------------------------------------------------------

cdef bint connection_read(LoadConnection *connection) noexcept nogil:
    """Do one recv, and handle all whole frames of it."""
    cdef Bytes *bytes = &connection.input
    cdef ssize_t got
    if bytes.capacity - bytes.end < bytes.capacity // 4 and not make_room(connection, bytes, bytes.capacity // 4):
        return False
    got = recv(connection.fd, bytes.data + bytes.end, bytes.capacity - bytes.end, 0)
    if got < 0:
        return errno == EAGAIN or errno == EINTR or fail_errno(connection, b"recv")
    if got == 0:
        return fail(connection, b"connection closed by the broker", 31)
    bytes.end += <size_t> got
    if not take_frames(connection, now_monotonic()):
        return False
    if bytes.start == bytes.end:
        bytes.start = bytes.end = 0
    return connection.is_blocked or connection_write(connection)


cdef bint take_frames(LoadConnection *connection, int64_t now_ns) noexcept nogil:
    cdef Bytes *bytes = &connection.input
    cdef const char *place
    cdef size_t size
    cdef uint64_t frame_type
    while bytes.end - bytes.start >= FRAME_HEADER_SIZE:
        place = bytes.data + bytes.start
        if memcmp(place, OK_FRAME, FRAME_HEADER_SIZE) == 0 and bytes.end - bytes.start >= OK_FRAME_SIZE:
            bytes.start += OK_FRAME_SIZE
            take_ok(connection, now_ns)
            continue
        size = get_be32(place)
        frame_type = get_be32(place + 4)
        if size < 4 or size > LOAD_FRAME_SIZE_MAX:
            return fail(connection, b"not a frame of the protocol", 27)
        if bytes.end - bytes.start < 4 + size:
            return bytes.capacity - bytes.start >= 4 + size or make_room(connection, bytes, 4 + size)
        if frame_type == FRAME_MESSAGE:
            if not take_message(connection, place + FRAME_HEADER_SIZE, size - 4, now_ns):
                return False
        elif frame_type == FRAME_ERROR:
            return fail(connection, place + FRAME_HEADER_SIZE, size - 4)
        elif not take_response(connection, place + FRAME_HEADER_SIZE, size - 4):
            return False
        bytes.start += 4 + size
    return True


cdef void take_ok(LoadConnection *connection, int64_t now_ns) noexcept nogil:
    if connection.kind == CONNECTION_PACED:
        # OKs come in the order of their commands, whose schedule is regular.
        add_latency(
            &connection.tally.answers, now_ns - connection.first_ns - connection.answered * connection.interval_ns)
    connection.answered += 1
    connection.tally.published += connection.messages
    connection.tally.last_ns = now_ns


cdef bint take_response(LoadConnection *connection, const char *data, size_t size) noexcept nogil:
    """Answer a heartbeat, unless this is a publisher of scripts: its commands show that it is alive."""
    if size != HEARTBEAT_SIZE or memcmp(data, HEARTBEAT, HEARTBEAT_SIZE) != 0:
        return fail(connection, b"a response that nobody asked for", 32)
    if connection.kind == CONNECTION_PUBLISHER:
        return True
    if not make_room(connection, &connection.output, COMMAND_ROOM):
        return False
    memcpy(connection.output.data + connection.output.end, b"NOP\n", 4)
    connection.output.end += 4
    return True


cdef bint take_message(LoadConnection *connection, const char *data, size_t size, int64_t now_ns) noexcept nogil:
    """FIN it, or REQ it the first time."""
    cdef Bytes *out = &connection.output
    cdef char *place
    cdef bint is_first
    if size < MESSAGE_HEADER_SIZE:
        return fail(connection, b"a message frame without a message", 33)
    if out.capacity - out.end < COMMAND_ROOM and not make_room(connection, out, COMMAND_ROOM):
        return False
    take_arrival(&connection.tally.arrivals, data, size, now_ns)
    is_first = data[8] == 0 and data[9] == 1
    connection.tally.received += 1
    connection.tally.bytes += <int64_t> size - MESSAGE_HEADER_SIZE
    connection.tally.last_ns = now_ns
    place = out.data + out.end
    memcpy(place, b"FIN ", 4)
    memcpy(place + 4, data + 10, MESSAGE_ID_SIZE)
    if connection.requeue_ms < 0 or not is_first:
        place[4 + MESSAGE_ID_SIZE] = c"\n"
        out.end += 5 + MESSAGE_ID_SIZE
        connection.tally.finished += 1
        return True
    memcpy(place, b"REQ ", 4)
    out.end += 4 + MESSAGE_ID_SIZE
    out.end += <size_t> snprintf(out.data + out.end, 24, b" %lld\n", <long long> connection.requeue_ms)
    connection.tally.requeued += 1
    return True


cdef void take_arrival(Latencies *arrivals, const char *data, size_t size, int64_t now_ns) noexcept nogil:
    """Record the time since the moment in the body."""
    cdef uint64_t intended
    if size >= MESSAGE_HEADER_SIZE + 8:
        data += MESSAGE_HEADER_SIZE
        intended = <uint64_t> get_be32(data) << 32 | get_be32(data + 4)
        add_latency(arrivals, now_ns - <int64_t> intended)


cdef void add_latency(Latencies *latencies, int64_t latency_ns) noexcept nogil:
    if latencies.count < latencies.count_max:
        latencies.values_ns[latencies.count] = latency_ns
        latencies.count += 1


cdef int set_room(Latencies *latencies, Py_buffer *room, object samples) except -1:
    PyBuffer_Release(room)
    PyObject_GetBuffer(samples, room, PyBUF_CONTIG)
    latencies.values_ns = <int64_t *> room.buf
    latencies.count_max = room.len // <Py_ssize_t> sizeof(int64_t)
    latencies.count = 0
    return 0


cdef class Load:
    def __cinit__(self):
        self.epoll_fd = self.timer_fd = -1

    def __init__(self, totals not None, int index):
        PyObject_GetBuffer(totals, &self.totals, PyBUF_CONTIG)
        self.worker_count = <int> (self.totals.len // <Py_ssize_t> (TOTALS_PER_WORKER * sizeof(int64_t)))
        if not 0 <= index < self.worker_count:
            raise ValueError(f"worker {index} of {self.worker_count}")
        self.own = <int64_t *> self.totals.buf + index * TOTALS_PER_WORKER
        self.epoll_fd = epoll_create1(EPOLL_CLOEXEC)
        if self.epoll_fd < 0:
            raise OSError(errno, os.strerror(errno))

    def __dealloc__(self):
        cdef int i
        for i in range(self.connection_count):
            connection_free(self.connections[i])
        free(self.connections)
        if self.epoll_fd >= 0:
            close(self.epoll_fd)
        if self.timer_fd >= 0:
            close(self.timer_fd)
        PyBuffer_Release(&self.totals)
        PyBuffer_Release(&self.arrivals)
        PyBuffer_Release(&self.answers)

    # -- what is to be done --------------------------------------------------------------------------------------------

    def add_publisher(self, int fd, bytes command not None, int messages_per_command, int64_t window,
                      int64_t quota=-1):
        """Send the same command repeatedly, at most `window` without an answer, at most `quota` in all."""
        cdef LoadConnection *connection = self.add(CONNECTION_PUBLISHER, fd)
        self.set_script(connection, command, window)
        connection.messages = messages_per_command
        connection.quota = FOREVER // <int64_t> connection.command_size if quota < 0 else quota

    def add_paced(self, int fd, bytes command not None, Py_ssize_t body_at, int64_t interval_ns, int64_t quota=-1):
        """Send a command every `interval_ns`, at most `quota` in all; its body contains the time when it was due.

        That time (monotonic, ns) is at `body_at`, 8 bytes big-endian. The publishers of one load start one after the
        other, spread over the interval.
        """
        cdef LoadConnection *connection
        if not 0 <= body_at <= len(command) - 8 or interval_ns <= 0:
            raise ValueError("a paced command has room for 8 bytes and an interval")
        connection = self.add(CONNECTION_PACED, fd)
        self.set_script(connection, command, 1)
        connection.messages = 1
        connection.body_at = <size_t> body_at
        connection.interval_ns = interval_ns
        connection.quota = FOREVER // <int64_t> connection.command_size if quota < 0 else quota
        self.paced_count += 1

    def add_consumer(self, int fd, int64_t rdy, int64_t requeue_ms=-1):
        """FIN each message; with requeue_ms >= 0, REQ the first delivery of each with that delay."""
        cdef LoadConnection *connection = self.add(CONNECTION_CONSUMER, fd)
        connection.rdy = rdy
        connection.requeue_ms = requeue_ms

    def record(self, samples not None):
        """Record latencies in ns of the messages from here on, until the buffer is full."""
        set_room(&self.tally.arrivals, &self.arrivals, samples)

    def record_answers(self, samples not None):
        """Record how many ns after its time each paced command's OK comes, until the buffer is full."""
        set_room(&self.tally.answers, &self.answers, samples)

    cdef LoadConnection *add(self, ConnectionKind kind, int fd) except NULL:
        cdef size_t size = <size_t> (self.connection_count + 1) * sizeof(LoadConnection *)
        cdef LoadConnection **grown = <LoadConnection **> realloc(self.connections, size)
        cdef LoadConnection *connection
        if grown is NULL:
            raise MemoryError
        self.connections = grown
        connection = connection_new(kind, fd, &self.tally)
        if connection is NULL:
            raise MemoryError
        self.connections[self.connection_count] = connection
        self.connection_count += 1
        return connection

    cdef int set_script(self, LoadConnection *connection, bytes command, int64_t window) except -1:
        if not command or window < 1:
            raise ValueError("a command and a window of at least one")
        if not connection_set_script(connection, command, <size_t> len(command), window):
            raise MemoryError
        return 0

    # -- doing it ------------------------------------------------------------------------------------------------------

    def run(self, int64_t publish_target, int64_t finish_target, int64_t deadline_ns):
        """Run until the sums over all workers reach the targets (0: none) or the deadline; `error` says what failed."""
        cdef LoadConnection *failed
        self.publish_target = publish_target
        self.finish_target = finish_target
        self.begin()
        with nogil:
            failed = self.drive(deadline_ns)
            if failed is NULL:
                failed = self.drain(now_monotonic() + LOAD_DRAIN_NS)
        if failed is not NULL:
            self.error = failed.error.decode("utf-8", "replace")

    cdef int begin(self) except -1:
        cdef int i, paced = 0
        cdef epoll_event event
        cdef LoadConnection *connection
        self.started_ns = self.tally.last_ns = now_monotonic()
        for i in range(self.connection_count):
            connection = self.connections[i]
            if connection.kind == CONNECTION_PACED:
                connection.first_ns = self.started_ns + paced * connection.interval_ns // self.paced_count
                connection.next_ns = connection.first_ns
                paced += 1
            if not self.watch_socket(connection, EPOLL_CTL_ADD):
                raise OSError(errno, os.strerror(errno))
        if self.paced_count:
            # The kernel may otherwise delay a wake-up by 50 microseconds.
            prctl(PR_SET_TIMERSLACK, <unsigned long> 1, <unsigned long> 0, <unsigned long> 0, <unsigned long> 0)
            self.timer_fd = timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK | TFD_CLOEXEC)
            event.events = <uint32_t> EPOLLIN
            event.data.ptr = NULL
            if self.timer_fd < 0 or epoll_ctl(self.epoll_fd, EPOLL_CTL_ADD, self.timer_fd, &event):
                raise OSError(errno, os.strerror(errno))
        return 0

    cdef bint watch_socket(self, LoadConnection *connection, int operation) noexcept nogil:
        cdef epoll_event event
        event.events = <uint32_t> (EPOLLIN | EPOLLOUT if connection.is_blocked else EPOLLIN)
        event.data.ptr = connection
        return epoll_ctl(self.epoll_fd, operation, connection.fd, &event) == 0

    cdef LoadConnection *drive(self, int64_t deadline_ns) noexcept nogil:
        """Return the connection that failed, or NULL when a target or the deadline was reached."""
        cdef int i
        cdef LoadConnection *connection
        cdef LoadConnection *failed = NULL
        for i in range(self.connection_count):
            connection = self.connections[i]
            if (not connection_start(connection)
                    or (connection.is_blocked and not self.watch_socket(connection, EPOLL_CTL_MOD))):
                return connection
        if self.paced_count:
            failed = self.tick()
        while failed is NULL and not self.is_reached() and now_monotonic() < deadline_ns:
            failed = self.serve_ready(TARGET_CHECK_MS)
        return failed

    cdef LoadConnection *drain(self, int64_t deadline_ns) noexcept nogil:
        """Wait for outstanding answers without sending anything new."""
        cdef int i
        cdef int64_t in_air = 1, size
        cdef LoadConnection *connection
        cdef LoadConnection *failed = NULL
        for i in range(self.connection_count):
            connection = self.connections[i]
            connection.next_ns = INT64_MAX
            if connection.kind == CONNECTION_PUBLISHER:
                # A command that was begun has to be completed.
                size = <int64_t> connection.command_size
                connection.quota = (connection.sent_bytes + size - 1) // size
                if (not connection_write(connection)
                        or (connection.is_blocked and not self.watch_socket(connection, EPOLL_CTL_MOD))):
                    return connection
        while failed is NULL and in_air and now_monotonic() < deadline_ns:
            in_air = 0
            for i in range(self.connection_count):
                connection = self.connections[i]
                in_air += connection_in_air(connection) + (connection.output.end > connection.output.start)
            if in_air:
                failed = self.serve_ready(TARGET_CHECK_MS)
        return failed

    cdef LoadConnection *serve_ready(self, int timeout_ms) noexcept nogil:
        """Serve all ready connections; return the one that failed, or NULL."""
        cdef epoll_event[EVENT_MAX] events
        cdef int i, count = epoll_wait(self.epoll_fd, events, EVENT_MAX, timeout_ms)
        cdef LoadConnection *failed = NULL
        for i in range(count):
            if events[i].data.ptr is NULL:
                failed = self.tick()
            else:
                failed = self.serve(<LoadConnection *> events[i].data.ptr, events[i].events)
            if failed is not NULL:
                break
        self.note()
        return failed

    cdef LoadConnection *serve(self, LoadConnection *connection, unsigned int events) noexcept nogil:
        cdef bint was_blocked = connection.is_blocked
        if events & ~<unsigned int> EPOLLOUT and not connection_read(connection):
            return connection
        if events & <unsigned int> EPOLLOUT and not connection_write(connection):
            return connection
        if connection.is_blocked != was_blocked and not self.watch_socket(connection, EPOLL_CTL_MOD):
            return connection
        return NULL

    cdef LoadConnection *tick(self) noexcept nogil:
        """Send what is due, and set the timer to the next time."""
        cdef int i
        cdef int64_t rings, next_ns = INT64_MAX
        cdef bint was_blocked
        cdef itimerspec wanted
        cdef LoadConnection *connection
        if read(self.timer_fd, &rings, sizeof(rings)) < 0:
            pass  # the first call: the timer has not fired yet
        for i in range(self.connection_count):
            connection = self.connections[i]
            if connection.kind != CONNECTION_PACED:
                continue
            was_blocked = connection.is_blocked
            if not connection_tick(connection, now_monotonic()):
                return connection
            if connection.is_blocked != was_blocked and not self.watch_socket(connection, EPOLL_CTL_MOD):
                return connection
            next_ns = min(next_ns, connection.next_ns)
        wanted.it_interval.tv_sec = wanted.it_interval.tv_nsec = 0
        wanted.it_value.tv_sec = next_ns // 1000000000
        wanted.it_value.tv_nsec = next_ns % 1000000000
        timerfd_settime(self.timer_fd, TFD_TIMER_ABSTIME, &wanted, NULL)
        return NULL

    # -- the sums ------------------------------------------------------------------------------------------------------

    cdef void note(self) noexcept nogil:
        self.own[0] = self.tally.published
        self.own[1] = self.tally.received
        self.own[2] = self.tally.finished
        self.own[3] = self.tally.requeued
        # The fifth belongs to the caller: `run` does not touch it.
        self.own[5] = self.tally.bytes

    cdef int64_t total(self, int column) noexcept nogil:
        cdef int i
        cdef int64_t total = 0
        for i in range(self.worker_count):
            total += (<int64_t *> self.totals.buf)[i * TOTALS_PER_WORKER + column]
        return total

    cdef bint is_reached(self) noexcept nogil:
        if self.publish_target == 0 and self.finish_target == 0:
            return False
        return self.total(0) >= self.publish_target and self.total(2) >= self.finish_target

    @property
    def ended_ns(self):
        """When the last counted OK or message came."""
        return self.tally.last_ns

    @property
    def sampled(self):
        """The number of messages whose latencies are recorded so far."""
        return self.tally.arrivals.count

    @property
    def answers_sampled(self):
        """The number of OKs whose latencies are recorded so far."""
        return self.tally.answers.count
