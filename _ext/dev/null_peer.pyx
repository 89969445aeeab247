"""The null limit: a peer that answers a load generator without reading its commands.

After the greeting, every `command_size` bytes of a publisher get one OK, and a consumer that said RDY gets message
frames as fast as it reads them. What a generator reaches here is the most that it can measure of any broker.
"""

from libc.errno cimport EAGAIN, EINTR, errno
from libc.stdint cimport int64_t, uint32_t
from libc.stdlib cimport calloc, free, malloc
from libc.string cimport memchr, memcmp, memcpy, memmove, memset
from posix.unistd cimport close

import os

from nsqfast._ext.core.clock cimport now_monotonic
from nsqfast._ext.core.limits cimport FRAME_HEADER_SIZE, FRAME_MESSAGE, MESSAGE_HEADER_SIZE
from nsqfast._ext.core.message cimport get_be32, put_be32
from nsqfast._ext.core.sockets cimport (
    EPOLL_CLOEXEC, EPOLL_CTL_ADD, EPOLL_CTL_MOD, EPOLLIN, EPOLLOUT, MSG_NOSIGNAL, SOCK_CLOEXEC, SOCK_NONBLOCK, accept4,
    epoll_create1, epoll_ctl, epoll_event, epoll_wait, recv, send,
)
from nsqfast._ext.protocol.v2 cimport OK_FRAME, OK_FRAME_SIZE

cdef enum:
    EVENT_MAX = 64
    INPUT_SIZE = 262144
    GREETING_MAX = 4096
    ANSWER_MAX = 4096        # OKs in one send
    FRAMES_SIZE = 262144
    POLL_SIZE_MAX = 2048
    POLL_NS = 30000

cdef const char *IDENTITY_FRAME = b"\x00\x00\x00\x06\x00\x00\x00\x00{}"


cdef enum Stage:
    STAGE_GREETING
    STAGE_SINK
    STAGE_CONSUMER


ctypedef struct Peer:
    int fd
    Stage stage
    size_t greeting_size
    char greeting[GREETING_MAX]
    int64_t taken            # bytes of commands
    int64_t answered
    size_t frames_at         # this peer's position in `frames`
    Peer *next


ctypedef struct Sink:
    int epoll_fd
    int listen_fd
    int64_t command_size
    char *input
    char *answers
    char *frames             # whole message frames
    size_t frames_size
    int64_t taken            # bytes of this turn
    int64_t poll_until_ns    # it does not sleep before
    Peer *peers


def serve(int listen_fd, int64_t command_size, int message_size, double seconds):
    """Answer everybody who connects to the (non-blocking) listener, for so long.

    One OK per `command_size` bytes; messages to consumers have bodies of `message_size`.
    """
    cdef Sink sink
    cdef int64_t deadline_ns = now_monotonic() + <int64_t> (seconds * 1e9)
    if command_size < 1 or message_size < 0:
        raise ValueError("a command has at least one byte")
    memset(&sink, 0, sizeof(sink))
    try:
        open_sink(&sink, listen_fd, command_size, <size_t> message_size)
        with nogil:
            while now_monotonic() < deadline_ns:
                serve_ready(&sink)
    finally:
        close_sink(&sink)


cdef int open_sink(Sink *sink, int listen_fd, int64_t command_size, size_t message_size) except -1:
    cdef size_t frame_size = FRAME_HEADER_SIZE + MESSAGE_HEADER_SIZE + message_size, i
    cdef size_t count = max(<size_t> 1, <size_t> FRAMES_SIZE // frame_size)
    cdef epoll_event event
    sink.listen_fd = listen_fd
    sink.command_size = command_size
    sink.frames_size = count * frame_size
    sink.input = <char *> malloc(INPUT_SIZE)
    sink.answers = <char *> malloc(OK_FRAME_SIZE * ANSWER_MAX)
    sink.frames = <char *> calloc(count, frame_size)
    sink.epoll_fd = epoll_create1(EPOLL_CLOEXEC)
    if sink.input is NULL or sink.answers is NULL or sink.frames is NULL:
        raise MemoryError
    for i in range(<size_t> ANSWER_MAX):
        memcpy(sink.answers + i * OK_FRAME_SIZE, OK_FRAME, OK_FRAME_SIZE)
    for i in range(count):
        put_message_frame(sink.frames + i * frame_size, frame_size)
    event.events = <uint32_t> EPOLLIN
    event.data.ptr = NULL
    if sink.epoll_fd < 0 or epoll_ctl(sink.epoll_fd, EPOLL_CTL_ADD, listen_fd, &event):
        raise OSError(errno, os.strerror(errno))
    return 0


cdef void put_message_frame(char *place, size_t frame_size) noexcept:
    """First attempt, id 0 in hex digits."""
    put_be32(place, <uint32_t> (frame_size - 4))
    put_be32(place + 4, FRAME_MESSAGE)
    place[FRAME_HEADER_SIZE + 9] = 1
    memset(place + FRAME_HEADER_SIZE + 10, c"0", 16)


cdef void close_sink(Sink *sink) noexcept:
    cdef Peer *peer = sink.peers
    cdef Peer *next
    while peer is not NULL:
        next = peer.next
        if peer.fd >= 0:
            close(peer.fd)
        free(peer)
        peer = next
    free(sink.input)
    free(sink.answers)
    free(sink.frames)
    if sink.epoll_fd > 0:
        close(sink.epoll_fd)


cdef void serve_ready(Sink *sink) noexcept nogil:
    """Like the broker it polls again before it sleeps, if short commands wait for their answers."""
    cdef epoll_event[EVENT_MAX] events
    cdef int i, timeout_ms = 0 if now_monotonic() < sink.poll_until_ns else 20
    cdef int count = epoll_wait(sink.epoll_fd, events, EVENT_MAX, timeout_ms)
    cdef Peer *peer
    sink.taken = 0
    for i in range(count):
        peer = <Peer *> events[i].data.ptr
        if peer is NULL:
            welcome(sink)
        elif not ((not events[i].events & ~<uint32_t> EPOLLOUT or read_commands(sink, peer)) and send_owed(sink, peer)):
            close(peer.fd)
            peer.fd = -1
    if 0 < sink.taken < POLL_SIZE_MAX:
        sink.poll_until_ns = now_monotonic() + POLL_NS


cdef void welcome(Sink *sink) noexcept nogil:
    cdef epoll_event event
    cdef Peer *peer
    cdef int fd = accept4(sink.listen_fd, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC)
    if fd < 0:
        return
    peer = <Peer *> calloc(1, sizeof(Peer))
    event.events = <uint32_t> EPOLLIN
    event.data.ptr = peer
    if peer is NULL or epoll_ctl(sink.epoll_fd, EPOLL_CTL_ADD, fd, &event):
        free(peer)
        close(fd)
        return
    peer.fd = fd
    peer.next = sink.peers
    sink.peers = peer


cdef bint read_commands(Sink *sink, Peer *peer) noexcept nogil:
    """Read what has come; False = the peer is gone."""
    cdef ssize_t got
    if peer.stage == STAGE_GREETING:
        return greet(sink, peer)
    got = recv(peer.fd, sink.input, INPUT_SIZE, 0)
    if got <= 0:
        return got < 0 and (errno == EAGAIN or errno == EINTR)
    peer.taken += got
    sink.taken += got
    return True


cdef bint send_owed(Sink *sink, Peer *peer) noexcept nogil:
    """Send what is owed."""
    cdef int64_t owed
    if peer.stage == STAGE_CONSUMER:
        return send_messages(sink, peer)
    owed = peer.taken // sink.command_size - peer.answered
    while owed > 0:
        # Ten bytes each: a generator that waits for them has room for them.
        if send(peer.fd, sink.answers, <size_t> min(owed, ANSWER_MAX) * OK_FRAME_SIZE, MSG_NOSIGNAL) < 0:
            return False
        peer.answered += min(owed, ANSWER_MAX)
        owed -= ANSWER_MAX
    return True


cdef bint send_messages(Sink *sink, Peer *peer) noexcept nogil:
    cdef ssize_t sent = send(peer.fd, sink.frames + peer.frames_at, sink.frames_size - peer.frames_at, MSG_NOSIGNAL)
    if sent < 0:
        return errno == EAGAIN or errno == EINTR
    peer.frames_at = (peer.frames_at + <size_t> sent) % sink.frames_size
    return True


# -- the greeting ------------------------------------------------------------------------------------------------------

cdef bint greet(Sink *sink, Peer *peer) noexcept nogil:
    """Answer magic, IDENTIFY, SUB and RDY; the first other command makes a publisher of the peer."""
    cdef ssize_t got = recv(peer.fd, peer.greeting + peer.greeting_size, GREETING_MAX - peer.greeting_size, 0)
    cdef size_t used
    if got <= 0:
        return got < 0 and (errno == EAGAIN or errno == EINTR)
    peer.greeting_size += <size_t> got
    while peer.stage == STAGE_GREETING and peer.greeting_size:
        used = greet_one(sink, peer)
        if used == 0:
            break
        peer.greeting_size -= used
        memmove(peer.greeting, peer.greeting + used, peer.greeting_size)
    if peer.stage == STAGE_SINK:
        peer.taken = <int64_t> peer.greeting_size
    return peer.stage != STAGE_GREETING or peer.greeting_size < GREETING_MAX


cdef size_t greet_one(Sink *sink, Peer *peer) noexcept nogil:
    """Return the bytes of the first command; 0 = it is not whole yet, or was no part of the greeting."""
    cdef const char *text = peer.greeting
    cdef const char *newline = <const char *> memchr(text, c"\n", peer.greeting_size)
    cdef size_t size
    if peer.greeting_size < 4:
        return 0
    if memcmp(text, b"  V2", 4) == 0:
        return 4
    if newline is NULL:
        return 0
    size = <size_t> (newline - text) + 1
    if memcmp(text, b"IDEN", 4) == 0:
        if peer.greeting_size < size + 4 or peer.greeting_size < size + 4 + get_be32(text + size):
            return 0
        send(peer.fd, IDENTITY_FRAME, OK_FRAME_SIZE, MSG_NOSIGNAL)
        return size + 4 + get_be32(text + size)
    if memcmp(text, b"SUB ", 4) == 0:
        send(peer.fd, OK_FRAME, OK_FRAME_SIZE, MSG_NOSIGNAL)
        return size
    if memcmp(text, b"RDY ", 4) != 0:
        peer.stage = STAGE_SINK
        return 0
    peer.stage = STAGE_CONSUMER
    start_pouring(sink, peer)
    return size


cdef void start_pouring(Sink *sink, Peer *peer) noexcept nogil:
    cdef epoll_event event
    event.events = <uint32_t> (EPOLLIN | EPOLLOUT)
    event.data.ptr = peer
    epoll_ctl(sink.epoll_fd, EPOLL_CTL_MOD, peer.fd, &event)
