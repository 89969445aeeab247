"""A generator that costs more per message than the broker would measure itself. So it does one recv and one send per
turn, counts OKs and finishes messages in place.

Every function returns whether the connection is still open; `error` has the reason if not.
"""

from libc.errno cimport EAGAIN, EINTR, errno
from libc.stdint cimport INT64_MAX, int64_t, uint64_t
from libc.stdio cimport snprintf
from libc.stdlib cimport calloc, free, malloc, realloc
from libc.string cimport memcmp, memcpy, memmove, strerror

from nsqfast._ext.core.clock cimport now_monotonic
from nsqfast._ext.core.limits cimport (
    FRAME_ERROR, FRAME_HEADER_SIZE, FRAME_MESSAGE, LOAD_FRAME_SIZE_MAX, MESSAGE_HEADER_SIZE, MESSAGE_ID_SIZE,
)
from nsqfast._ext.core.message cimport get_be32
from nsqfast._ext.core.sockets cimport MSG_NOSIGNAL, recv, send
from nsqfast._ext.protocol.v2 cimport HEARTBEAT, HEARTBEAT_SIZE, OK_FRAME, OK_FRAME_SIZE

cdef enum:
    INPUT_ROOM = 262144
    OUTPUT_ROOM = 65536
    # As much of a script as one send can take; longer ones only cost cache.
    SCRIPT_SIZE = 262144
    COMMAND_ROOM = 64     # FIN and REQ lines are shorter


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
    sample(connection.tally, data, size, now_ns)
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


cdef void sample(Tally *tally, const char *data, size_t size, int64_t now_ns) noexcept nogil:
    """Record the time since the moment in the body."""
    cdef uint64_t intended
    if tally.sample_count < tally.sample_max and size >= MESSAGE_HEADER_SIZE + 8:
        data += MESSAGE_HEADER_SIZE
        intended = <uint64_t> get_be32(data) << 32 | get_be32(data + 4)
        tally.samples[tally.sample_count] = now_ns - <int64_t> intended
        tally.sample_count += 1
