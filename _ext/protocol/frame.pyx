"""Encodes frames for the broker and decodes them for clients."""

from libc.stdint cimport uint32_t
from libc.string cimport memcpy

from nsqfast._ext.core.limits cimport FRAME_HEADER_SIZE, FRAME_MESSAGE, MESSAGE_HEADER_SIZE
from nsqfast._ext.core.message cimport get_be32, message_put_header, put_be32

from nsqfast.errors import ProtocolError


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
