"""A publish costs two system calls and wakes no other thread.

The outcome of a failed publish depends on how much of it was written:

    what happens            | nothing was written   | something was written
    ------------------------|-----------------------|----------------------------------------------
    an error frame          | ConnectError          | PublishRefusedError: nsqd's text
    nsqd hangs up, an error | ConnectError          | OutcomeUnknownError
    of the system, time up, |                       |
    not an answer           |                       |
    a signal's handler      | its exception         | its exception
    raises                  |                       |

After each of them the connection is closed, because a late answer would be taken for the next one's. nsqd itself closes
it after every error with which it answers a publish (spec nsqd-tcp §6). An answer counts only once all of the publish
was written.
"""

cimport cython
from cpython.exc cimport PyErr_CheckSignals
from libc.errno cimport EAGAIN, EINTR, errno
from libc.stdint cimport INT64_MAX, int64_t
from posix.unistd cimport close

import os

from nsqfast._ext.core.clock cimport now_monotonic
from nsqfast._ext.core.limits cimport (
    CLIENT_FRAME_SIZE_MAX, FRAME_ERROR, FRAME_HEADER_SIZE, FRAME_RESPONSE, INPUT_SIZE,
)
from nsqfast._ext.core.message cimport get_be32
from nsqfast._ext.core.sockets cimport (
    IPPROTO_TCP, MSG_NOSIGNAL, POLLIN, POLLOUT, TCP_NODELAY, poll, pollfd, recv, send, setsockopt,
)
from nsqfast._ext.protocol.v2 cimport HEARTBEAT
from nsqfast._ext.protocol.publish_command cimport write_checked

from nsqfast.errors import ConnectError, OutcomeUnknownError, PublishRefusedError

cdef enum:
    # The longest single sleep; longer waits take several.
    SLEEP_MS_MAX = 3600000

cdef double SECOND_NS = 1e9
cdef double TIMEOUT_MAX_S = 1e9
cdef int64_t MILLISECOND_NS = 1000000


@cython.final
cdef class Direct:
    """Takes over a connected socket, TCP or Unix and without TLS or compression, on which IDENTIFY and AUTH are done.

    Heartbeats are not answered between two calls: IDENTIFY turns them off, or calls come often enough.
    """

    def __cinit__(self, int fd):
        cdef int yes = 1
        os.set_blocking(fd, False)
        # The end of a large publish must not wait for acknowledgements. A Unix socket has no such option.
        setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof(yes))
        self.input = ReadBuffer(INPUT_SIZE)
        self.output = WriteBuffer()
        self.busy_poll = BusyPoll()
        self.fd = fd
        self.has_fd = self.is_open = True

    def __dealloc__(self):
        if self.has_fd:
            close(self.fd)

    def ask(self, bytes head not None, body not None, double timeout_s):
        """Publish and return the data of nsqd's answer. `head` is the command's line with its newline, `body` the bytes
        of a PUB or DPUB, or the list of an MPUB's bodies.

        ConnectError: nsqd certainly did not take it. OutcomeUnknownError: it may have. PublishRefusedError: it refused,
        or would refuse (an empty body). RuntimeError: another call waits for its answer (see `is_busy`), nothing was
        done.
        """
        if not timeout_s > 0:
            raise ValueError(f"timeout_s is {timeout_s}: an answer takes time")
        if self.is_busy:
            raise RuntimeError("this connection is busy: another call waits for its answer")
        if not self.is_open:
            raise ConnectError(f"the connection has ended: {self.error}")
        try:
            self.is_busy = True
            return self.exchange(head, body, deadline_after(timeout_s))
        finally:
            self.is_busy = False
            self.clean_up()

    def close(self):
        """Close the connection; a call that waits for its answer gets that first."""
        if self.is_open:
            self.end("closed")
        if not self.is_busy:
            self.clean_up()

    cdef bytes exchange(self, bytes head, object body, int64_t deadline_ns):
        write_checked(self.output, head, body)
        self.command_end = self.output.size
        try:
            return self.await_answer(deadline_ns)
        except BaseException as error:
            # An unexpected exception, such as Ctrl-C, leaves an answer behind that may still come.
            self.end(f"interrupted by {type(error).__name__}")
            raise

    cdef bytes await_answer(self, int64_t deadline_ns):
        """The only place that releases the interpreter's lock; what needs the lock is rare, and done between two
        rounds."""
        cdef Event event = EVENT_FULL
        cdef bytes answer
        while True:
            with nogil:
                if event == EVENT_WAIT:
                    self.sleep(deadline_ns)
                event = self.transfer()
            if event == EVENT_FRAME:
                answer = self.take_frame()
                if answer is not None:
                    return answer
            elif event == EVENT_FULL:
                self.input.make_room()
            elif event == EVENT_EOF:
                raise self.break_off("nsqd closed the connection")
            elif event == EVENT_BROKEN:
                raise self.break_off(f"the connection broke: {os.strerror(self.broken_errno)}")
            self.check(deadline_ns)

    cdef int check(self, int64_t deadline_ns) except -1:
        """Run before each sleep, so that a signal that has just come is not slept over."""
        PyErr_CheckSignals()
        if now_monotonic() >= deadline_ns:
            raise self.break_off("no answer in time")
        return 0

    # -- without the interpreter's lock --------------------------------------------------------------------------------

    cdef Event transfer(self) noexcept nogil:
        """Read first: if nsqd has closed the connection, nothing must be written."""
        cdef Event event = self.receive()
        if event == EVENT_WAIT and self.sent < self.output.size:
            event = self.write()
        while event == EVENT_WAIT and self.busy_poll.is_on:
            event = self.receive()
            if event == EVENT_WAIT:
                self.busy_poll.check(now_monotonic())
        return event

    cdef Event receive(self) noexcept nogil:
        cdef ssize_t got
        while not has_frame(self.input.data + self.input.start, self.input.end - self.input.start):
            if self.input.end == self.input.capacity:
                return EVENT_FULL
            got = recv(self.fd, self.input.data + self.input.end, self.input.capacity - self.input.end, 0)
            if got > 0:
                self.input.end += got
            elif got == 0:
                return EVENT_EOF
            elif errno == EAGAIN:
                return EVENT_WAIT
            elif errno != EINTR:
                self.broken_errno = errno
                return EVENT_BROKEN
        return EVENT_FRAME

    cdef Event write(self) noexcept nogil:
        """Write all that the kernel takes. Once the publish was written, look for the answer."""
        cdef bint had_left = self.sent >= self.command_end
        cdef ssize_t taken
        cdef Event event
        while self.sent < self.output.size:
            taken = send(self.fd, self.output.data + self.sent, self.output.size - self.sent, MSG_NOSIGNAL)
            if taken >= 0:
                self.sent += taken
            elif errno == EAGAIN:
                break
            elif errno != EINTR:
                self.broken_errno = errno
                event = self.receive()  # nsqd may have sent the reason
                return EVENT_BROKEN if event == EVENT_WAIT else event
        if self.sent >= self.command_end and not had_left:
            self.busy_poll.begin(now_monotonic())
        return EVENT_WAIT

    cdef void sleep(self, int64_t deadline_ns) noexcept nogil:
        """Sleep until the socket is ready, the time is up, or a signal comes."""
        cdef int64_t left_ms = (deadline_ns - now_monotonic()) // MILLISECOND_NS + 1
        cdef pollfd waited
        waited.fd = self.fd
        waited.events = POLLIN | POLLOUT if self.sent < self.output.size else POLLIN
        poll(&waited, 1, <int> min(max(left_ms, <int64_t> 0), <int64_t> SLEEP_MS_MAX))

    # -- what came -----------------------------------------------------------------------------------------------------

    cdef bytes take_frame(self):
        """Return the answer; None for a heartbeat, which is answered behind the publish."""
        cdef const char *place = self.input.data + self.input.start
        cdef Py_ssize_t size = get_be32(place)
        cdef int frame_type
        cdef bytes data
        if not is_frame_size(size):
            raise self.break_off(f"a frame of {size} bytes: is this the TCP port of an nsqd?")
        frame_type = <int> get_be32(place + 4)
        data = place[FRAME_HEADER_SIZE:4 + size]
        self.input.consume(4 + size)
        if frame_type == FRAME_RESPONSE:
            return self.take_response(data)
        if frame_type == FRAME_ERROR:
            raise self.refuse(data.decode("utf-8", "replace"))
        raise self.break_off(f"a frame of type {frame_type} with {size - 4} bytes")

    cdef bytes take_response(self, bytes data):
        if data == HEARTBEAT:
            self.output.append(b"NOP\n", 4)
            return None
        if self.sent < self.command_end:
            raise self.break_off(f"an answer without a question: {data[:100]!r}")
        self.busy_poll.find()
        return data

    # -- the end -------------------------------------------------------------------------------------------------------

    cdef object break_off(self, str reason):
        """End the connection; return the exception to raise."""
        self.end(reason)
        return OutcomeUnknownError(reason) if self.sent > self.command_start else ConnectError(reason)

    cdef object refuse(self, str text):
        """End the connection after an error frame; return the exception to raise."""
        self.end(text)
        return PublishRefusedError(text) if self.sent > self.command_start else ConnectError(text)

    cdef int end(self, str reason) except -1:
        """Never raise `error` itself: its traceback would keep references to whatever refers to this connection."""
        if self.is_open:
            self.is_open = False
            self.error = ConnectError(reason)
        return 0

    cdef int clean_up(self) except -1:
        """Prepare for the next call, or close."""
        if self.sent == self.output.size or not self.is_open:
            self.output.clear()
            self.sent = 0
        self.command_start = self.output.size
        self.input.make_room()
        if not self.is_open and self.has_fd:
            self.has_fd = False
            close(self.fd)
        return 0


cdef bint has_frame(const char *data, Py_ssize_t size) noexcept nogil:
    """Whether a frame is complete, or has an impossible size, which the caller then reports."""
    return size >= 4 and (not is_frame_size(get_be32(data)) or size - 4 >= get_be32(data))


cdef bint is_frame_size(Py_ssize_t size) noexcept nogil:
    return 4 <= size <= CLIENT_FRAME_SIZE_MAX


cdef int64_t deadline_after(double timeout_s) noexcept:
    if timeout_s > TIMEOUT_MAX_S:
        return INT64_MAX
    return now_monotonic() + <int64_t> (timeout_s * SECOND_NS)
