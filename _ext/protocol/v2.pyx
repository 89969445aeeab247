"""Parsing works on offsets and can be resumed: whole, need more, or broken. It creates no Python objects."""

from libc.stdint cimport uint32_t
from libc.string cimport memchr, memcmp, memcpy

from nsqfast._ext.core.limits cimport FRAME_HEADER_SIZE, FRAME_MESSAGE, LINE_SIZE_MAX, MESSAGE_HEADER_SIZE
from nsqfast._ext.core.message cimport get_be32, message_put_header, put_be32

from nsqfast.errors import ProtocolError


cdef Parse parse_line(const char *data, Py_ssize_t size, Py_ssize_t scanned, Line *line) noexcept nogil:
    """Parse the line at the front of `data`; its first `scanned` bytes are known to contain no newline."""
    cdef const char *newline
    cdef Py_ssize_t searched = size if size < LINE_SIZE_MAX else <Py_ssize_t> LINE_SIZE_MAX
    newline = <const char *> memchr(data + scanned, c"\n", searched - scanned)
    if newline is NULL:
        return PARSE_BROKEN if size >= LINE_SIZE_MAX else PARSE_MORE
    line.size = newline - data + 1
    cdef Py_ssize_t text_size = newline - data
    if text_size and data[text_size - 1] == c"\r":
        text_size -= 1
    split(data, text_size, line)
    line.kind = command_kind(line.name, line.name_size)
    return PARSE_WHOLE


cdef void split(const char *text, Py_ssize_t size, Line *line) noexcept nogil:
    """Split at every single space, so two spaces make an empty parameter."""
    cdef const char *end = text + size
    cdef const char *space = <const char *> memchr(text, c" ", size)
    line.name = text
    line.name_size = (end if space is NULL else space) - text
    line.end, line.parameter_count = end, 0
    while space is not NULL:
        text = space + 1
        space = <const char *> memchr(text, c" ", end - text)
        if line.parameter_count < 3:
            line.parameter[line.parameter_count] = text
            line.parameter_size[line.parameter_count] = (end if space is NULL else space) - text
        line.parameter_count += 1


cdef CommandKind command_kind(const char *name, Py_ssize_t size) noexcept nogil:
    if size == 3:
        if memcmp(name, b"FIN", 3) == 0:
            return COMMAND_FIN
        if memcmp(name, b"PUB", 3) == 0:
            return COMMAND_PUB
        if memcmp(name, b"RDY", 3) == 0:
            return COMMAND_RDY
        if memcmp(name, b"REQ", 3) == 0:
            return COMMAND_REQ
        if memcmp(name, b"NOP", 3) == 0:
            return COMMAND_NOP
        if memcmp(name, b"SUB", 3) == 0:
            return COMMAND_SUB
        if memcmp(name, b"CLS", 3) == 0:
            return COMMAND_CLS
        if memcmp(name, b"REJ", 3) == 0:
            return COMMAND_REJ
    elif size == 4:
        if memcmp(name, b"MPUB", 4) == 0:
            return COMMAND_MPUB
        if memcmp(name, b"DPUB", 4) == 0:
            return COMMAND_DPUB
        if memcmp(name, b"AUTH", 4) == 0:
            return COMMAND_AUTH
    elif size == 5 and memcmp(name, b"TOUCH", 5) == 0:
        return COMMAND_TOUCH
    elif size == 6 and memcmp(name, b"DEATHS", 6) == 0:
        return COMMAND_DEATHS
    elif size == 8 and memcmp(name, b"IDENTIFY", 8) == 0:
        return COMMAND_IDENTIFY
    elif size == 12 and memcmp(name, b"RUN_DEFERRED", 12) == 0:
        return COMMAND_RUN_DEFERRED
    elif size == 15 and memcmp(name, b"CANCEL_DEFERRED", 15) == 0:
        return COMMAND_CANCEL_DEFERRED
    return COMMAND_UNKNOWN


cdef bint parse_decimal(const char *text, Py_ssize_t size, uint64_t *value) noexcept nogil:
    """Parse digits only; an empty text is 0, and 2**64 wraps silently (spec nsqd-tcp §3)."""
    cdef uint64_t parsed = 0
    cdef Py_ssize_t i
    for i in range(size):
        if text[i] < c"0" or text[i] > c"9":
            return False
        parsed = parsed * 10 + <uint64_t> (text[i] - c"0")
    value[0] = parsed
    return True


cdef int write_frame(WriteBuffer out, int frame_type, const char *data, Py_ssize_t size) except -1:
    cdef char *place = out.reserve(FRAME_HEADER_SIZE + size)
    put_be32(place, <uint32_t> (size + 4))
    put_be32(place + 4, <uint32_t> frame_type)
    memcpy(place + FRAME_HEADER_SIZE, data, size)
    return 0


cdef int write_message(WriteBuffer out, const Message *message, uint16_t attempts) except -1:
    cdef char *place = out.reserve(FRAME_HEADER_SIZE + MESSAGE_HEADER_SIZE + <Py_ssize_t> message.size)
    put_be32(place, 4 + MESSAGE_HEADER_SIZE + message.size)
    put_be32(place + 4, FRAME_MESSAGE)
    message_put_header(message, attempts, place + FRAME_HEADER_SIZE)
    memcpy(place + FRAME_HEADER_SIZE + MESSAGE_HEADER_SIZE, message.body, message.size)
    return 0


cdef int write_ok(WriteBuffer out) except -1:
    memcpy(out.reserve(OK_FRAME_SIZE), OK_FRAME, OK_FRAME_SIZE)
    return 0


def encode(int frame_type, bytes data):
    """Return the bytes of one frame."""
    cdef WriteBuffer out = WriteBuffer()
    write_frame(out, frame_type, data, len(data))
    return out.take()


cdef class FrameDecoder:
    """Accepts a stream in pieces of any size and returns whole frames.

    A frame that announces more than `frame_size_max` bytes, or fewer than its type needs, raises ProtocolError.
    """

    def __init__(self, Py_ssize_t frame_size_max=64 << 20):
        self.input = ReadBuffer(4096)
        self.frame_size_max = frame_size_max

    def feed(self, bytes data):
        """Return the frames that `data` completes, as (type, data)."""
        cdef list frames = []
        cdef Py_ssize_t size
        cdef const char *place
        self.input.append(data, len(data))
        while self.input.end - self.input.start >= 4:
            place = self.input.data + self.input.start
            size = get_be32(place)
            if size < 4 or size > self.frame_size_max:
                raise ProtocolError("E_BAD_FRAME", f"a frame of {size} bytes")
            if self.input.end - self.input.start < 4 + size:
                break
            frames.append((get_be32(place + 4), place[FRAME_HEADER_SIZE:4 + size]))
            self.input.consume(4 + size)
        return frames
