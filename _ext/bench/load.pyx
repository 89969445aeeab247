"""Runs without the GIL from start to end; a Python thread may read the totals meanwhile.

All workers of a run share the totals, so that consumers in several processes stop at a common count.
"""

from cpython.buffer cimport PyBUF_CONTIG, PyBuffer_Release, PyObject_GetBuffer
from libc.errno cimport errno
from libc.stdint cimport INT64_MAX, int64_t, uint32_t
from libc.stdlib cimport free, realloc
from posix.time cimport itimerspec
from posix.unistd cimport close, read

import os

from nsqfast._ext.bench.load_connection cimport (
    CONNECTION_CONSUMER, CONNECTION_PACED, CONNECTION_PUBLISHER, connection_free, connection_in_air, connection_new,
    connection_read, connection_set_script, connection_start,
    connection_tick, connection_write,
)
from nsqfast._ext.core.clock cimport now_monotonic
from nsqfast._ext.core.limits cimport LOAD_DRAIN_NS
from nsqfast._ext.core.sockets cimport (
    EPOLL_CLOEXEC, EPOLL_CTL_ADD, EPOLL_CTL_MOD, EPOLLIN, EPOLLOUT, epoll_create1, epoll_ctl, epoll_event, epoll_wait,
)

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
    EVENT_MAX = 256
    # How soon an idle worker notices that the others have reached the target.
    TARGET_CHECK_MS = 5

cdef int64_t FOREVER = 0x7FFFFFFFFFFF


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
        PyBuffer_Release(&self.samples)

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
        PyBuffer_Release(&self.samples)
        PyObject_GetBuffer(samples, &self.samples, PyBUF_CONTIG)
        self.tally.samples = <int64_t *> self.samples.buf
        self.tally.sample_max = self.samples.len // <Py_ssize_t> sizeof(int64_t)
        self.tally.sample_count = 0

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
                connection.next_ns = self.started_ns + paced * connection.interval_ns // self.paced_count
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
        """The number of latencies recorded so far."""
        return self.tally.sample_count
