"""A generator that costs more per message than the broker measures itself, hence: one recv and one send per turn, OKs
counted and messages finished in place.

Every function says whether the lane still lives; `error` has the reason where it does not.
"""

from libc.errno cimport EAGAIN, EINTR, errno
from libc.stdint cimport INT64_MAX, int64_t, uint64_t
from libc.stdio cimport snprintf
from libc.stdlib cimport calloc, free, malloc, realloc
from libc.string cimport memcmp, memcpy, memmove, strerror

from nsqfast._ext.core.clock cimport now_monotonic
from nsqfast._ext.core.limits cimport (
    FRAME_ERROR, FRAME_HEADER_SIZE, FRAME_MESSAGE, MESSAGE_HEADER_SIZE, MESSAGE_ID_SIZE,
)
from nsqfast._ext.core.message cimport get_be32
from nsqfast._ext.core.sockets cimport MSG_NOSIGNAL, recv, send

cdef enum:
    INPUT_ROOM = 262144
    OUTPUT_ROOM = 65536
    # As much of a script as one send can carry; longer ones only cost cache.
    SCRIPT_SIZE = 262144
    COMMAND_ROOM = 64     # FIN and REQ lines are shorter
    FRAME_MAX = 134217728
    OK_FRAME_SIZE = 10

cdef const char *OK_FRAME = b"\x00\x00\x00\x06\x00\x00\x00\x00OK"


cdef Lane *lane_new(LaneKind kind, int fd, Tally *tally) noexcept:
    """NULL without memory."""
    cdef Lane *lane = <Lane *> calloc(1, sizeof(Lane))
    if lane is NULL:
        return NULL
    lane.kind = kind
    lane.fd = fd
    lane.tally = tally
    lane.requeue_ms = -1
    if not (widen(&lane.input, INPUT_ROOM) and widen(&lane.output, OUTPUT_ROOM)):
        lane_free(lane)
        return NULL
    return lane


cdef bint lane_set_script(Lane *lane, const char *command, size_t size, int64_t window) noexcept:
    """The command, repeated as often as a send can use."""
    cdef int64_t i, times = max(1, min(window, <int64_t> (SCRIPT_SIZE // size)))
    lane.script = <char *> malloc(size * <size_t> times)
    if lane.script is NULL:
        return False
    for i in range(times):
        memcpy(lane.script + <size_t> i * size, command, size)
    lane.script_size = size * <size_t> times
    lane.command_size = size
    lane.window = window
    return True


cdef void lane_free(Lane *lane) noexcept:
    if lane is not NULL:
        free(lane.input.data)
        free(lane.output.data)
        free(lane.script)
        free(lane)


cdef bint widen(Bytes *bytes, size_t capacity) noexcept nogil:
    cdef char *data = <char *> realloc(bytes.data, capacity)
    if data is NULL:
        return False
    bytes.data = data
    bytes.capacity = capacity
    return True


cdef bint make_room(Lane *lane, Bytes *bytes, size_t size) noexcept nogil:
    """Have `size` bytes free behind the end."""
    cdef size_t capacity = bytes.capacity
    if bytes.start:
        memmove(bytes.data, bytes.data + bytes.start, bytes.end - bytes.start)
        bytes.end -= bytes.start
        bytes.start = 0
    while capacity - bytes.end < size:
        capacity *= 2
    return capacity == bytes.capacity or widen(bytes, capacity) or fail(lane, b"out of memory", 13)


cdef bint fail(Lane *lane, const char *text, size_t size) noexcept nogil:
    size = min(size, sizeof(lane.error) - 1)
    memcpy(lane.error, text, size)
    lane.error[size] = 0
    return False


cdef bint fail_errno(Lane *lane, const char *what) noexcept nogil:
    snprintf(lane.error, sizeof(lane.error), b"%s: %s", what, strerror(errno))
    return False


# -- out ---------------------------------------------------------------------------------------------------------------

cdef bint lane_start(Lane *lane) noexcept nogil:
    if lane.kind == LANE_CONSUMER:
        lane.output.end = <size_t> snprintf(lane.output.data, COMMAND_ROOM, b"RDY %lld\n", <long long> lane.rdy)
    return lane_write(lane)


cdef bint lane_write(Lane *lane) noexcept nogil:
    """Send what may be sent, until the socket is full."""
    lane.is_blocked = False
    if lane.kind == LANE_PUBLISHER:
        return write_script(lane)
    return write_output(lane)


cdef ssize_t send_some(Lane *lane, const char *data, size_t size) noexcept nogil:
    """Bytes sent; 0 = blocked; -1 = the lane has failed."""
    cdef ssize_t sent
    while True:
        sent = send(lane.fd, data, size, MSG_NOSIGNAL)
        if sent >= 0:
            return sent
        if errno == EAGAIN:
            lane.is_blocked = True
            return 0
        if errno != EINTR:
            fail_errno(lane, b"send")
            return -1


cdef bint write_script(Lane *lane) noexcept nogil:
    cdef int64_t allowed = min(lane.quota, lane.answered + lane.window) * <int64_t> lane.command_size - lane.sent_bytes
    cdef size_t at
    cdef ssize_t sent
    while allowed > 0 and not lane.is_blocked:
        at = <size_t> lane.sent_bytes % lane.script_size
        sent = send_some(lane, lane.script + at, min(<size_t> allowed, lane.script_size - at))
        if sent < 0:
            return False
        lane.sent_bytes += sent
        allowed -= sent
    return True


cdef bint write_output(Lane *lane) noexcept nogil:
    cdef Bytes *out = &lane.output
    cdef ssize_t sent
    while out.start < out.end and not lane.is_blocked:
        sent = send_some(lane, out.data + out.start, out.end - out.start)
        if sent < 0:
            return False
        out.start += <size_t> sent
    if out.start == out.end:
        out.start = out.end = 0
    return True


cdef bint lane_tick(Lane *lane, int64_t now_ns) noexcept nogil:
    """Send what is due by now, each stamped with the moment it was meant for; behind the last one nothing is due."""
    cdef uint64_t intended
    cdef char *place
    cdef int i
    while lane.next_ns <= now_ns and lane.sent_bytes < lane.quota * <int64_t> lane.command_size:
        if not make_room(lane, &lane.output, lane.command_size):
            return False
        place = lane.output.data + lane.output.end
        memcpy(place, lane.script, lane.command_size)
        intended = <uint64_t> lane.next_ns
        for i in range(8):
            place[lane.body_at + <size_t> i] = <char> (intended >> (56 - 8 * i) & 0xFF)
        lane.output.end += lane.command_size
        lane.sent_bytes += <int64_t> lane.command_size
        lane.next_ns += lane.interval_ns
    if lane.sent_bytes >= lane.quota * <int64_t> lane.command_size:
        lane.next_ns = INT64_MAX
    return lane_write(lane)


cdef int64_t lane_in_air(Lane *lane) noexcept nogil:
    """Commands that were begun and not answered."""
    if lane.kind == LANE_CONSUMER:
        return 0
    return (lane.sent_bytes + <int64_t> lane.command_size - 1) // <int64_t> lane.command_size - lane.answered


# -- in ----------------------------------------------------------------------------------------------------------------

cdef bint lane_read(Lane *lane) noexcept nogil:
    """One recv, all whole frames of it, and what follows from them."""
    cdef Bytes *bytes = &lane.input
    cdef ssize_t got
    if bytes.capacity - bytes.end < bytes.capacity // 4 and not make_room(lane, bytes, bytes.capacity // 4):
        return False
    got = recv(lane.fd, bytes.data + bytes.end, bytes.capacity - bytes.end, 0)
    if got < 0:
        return errno == EAGAIN or errno == EINTR or fail_errno(lane, b"recv")
    if got == 0:
        return fail(lane, b"connection closed by the broker", 31)
    bytes.end += <size_t> got
    if not take_frames(lane, now_monotonic()):
        return False
    if bytes.start == bytes.end:
        bytes.start = bytes.end = 0
    return lane.is_blocked or lane_write(lane)


cdef bint take_frames(Lane *lane, int64_t now_ns) noexcept nogil:
    cdef Bytes *bytes = &lane.input
    cdef const char *place
    cdef size_t size
    cdef uint64_t frame_type
    while bytes.end - bytes.start >= FRAME_HEADER_SIZE:
        place = bytes.data + bytes.start
        if memcmp(place, OK_FRAME, FRAME_HEADER_SIZE) == 0 and bytes.end - bytes.start >= OK_FRAME_SIZE:
            bytes.start += OK_FRAME_SIZE
            take_ok(lane, now_ns)
            continue
        size = get_be32(place)
        frame_type = get_be32(place + 4)
        if size < 4 or size > FRAME_MAX:
            return fail(lane, b"not a frame of the protocol", 27)
        if bytes.end - bytes.start < 4 + size:
            return bytes.capacity - bytes.start >= 4 + size or make_room(lane, bytes, 4 + size)
        if frame_type == FRAME_MESSAGE:
            if not take_message(lane, place + FRAME_HEADER_SIZE, size - 4, now_ns):
                return False
        elif frame_type == FRAME_ERROR:
            return fail(lane, place + FRAME_HEADER_SIZE, size - 4)
        elif not take_response(lane, place + FRAME_HEADER_SIZE, size - 4):
            return False
        bytes.start += 4 + size
    return True


cdef void take_ok(Lane *lane, int64_t now_ns) noexcept nogil:
    lane.answered += 1
    lane.tally.published += lane.messages
    lane.tally.last_ns = now_ns


cdef bint take_response(Lane *lane, const char *data, size_t size) noexcept nogil:
    """A heartbeat is answered, but by a publisher of scripts: its commands are signs of life enough."""
    if size != 11 or memcmp(data, b"_heartbeat_", 11) != 0:
        return fail(lane, b"a response that nobody asked for", 32)
    if lane.kind == LANE_PUBLISHER:
        return True
    if not make_room(lane, &lane.output, COMMAND_ROOM):
        return False
    memcpy(lane.output.data + lane.output.end, b"NOP\n", 4)
    lane.output.end += 4
    return True


cdef bint take_message(Lane *lane, const char *data, size_t size, int64_t now_ns) noexcept nogil:
    """FIN it, or REQ it the first time."""
    cdef Bytes *out = &lane.output
    cdef char *place
    cdef bint is_first
    if size < MESSAGE_HEADER_SIZE:
        return fail(lane, b"a message frame without a message", 33)
    if out.capacity - out.end < COMMAND_ROOM and not make_room(lane, out, COMMAND_ROOM):
        return False
    sample(lane.tally, data, size, now_ns)
    is_first = data[8] == 0 and data[9] == 1
    lane.tally.received += 1
    lane.tally.bytes += <int64_t> size - MESSAGE_HEADER_SIZE
    lane.tally.last_ns = now_ns
    place = out.data + out.end
    memcpy(place, b"FIN ", 4)
    memcpy(place + 4, data + 10, MESSAGE_ID_SIZE)
    if lane.requeue_ms < 0 or not is_first:
        place[4 + MESSAGE_ID_SIZE] = c"\n"
        out.end += 5 + MESSAGE_ID_SIZE
        lane.tally.finished += 1
        return True
    memcpy(place, b"REQ ", 4)
    out.end += 4 + MESSAGE_ID_SIZE
    out.end += <size_t> snprintf(out.data + out.end, 24, b" %lld\n", <long long> lane.requeue_ms)
    lane.tally.requeued += 1
    return True


cdef void sample(Tally *tally, const char *data, size_t size, int64_t now_ns) noexcept nogil:
    """From the moment that the body names until now."""
    cdef uint64_t intended
    if tally.sample_count < tally.sample_max and size >= MESSAGE_HEADER_SIZE + 8:
        data += MESSAGE_HEADER_SIZE
        intended = <uint64_t> get_be32(data) << 32 | get_be32(data + 4)
        tally.samples[tally.sample_count] = now_ns - <int64_t> intended
        tally.sample_count += 1
