"""Broker to client: size, type, data (spec nsqd-tcp §2)."""

from libc.stdint cimport uint16_t

from nsqfast._ext.core.message cimport Message
from nsqfast._ext.protocol.buffer cimport ReadBuffer, WriteBuffer


cdef extern from *:
    """
    #define NSQ_OK_FRAME "\\0\\0\\0\\006" "\\0\\0\\0\\0" "OK"
    #define NSQ_HEARTBEAT "_heartbeat_"
    """
    const char *OK_FRAME "NSQ_OK_FRAME"
    # The data of a response frame that answers nothing.
    const char *HEARTBEAT "NSQ_HEARTBEAT"


cdef enum:
    OK_FRAME_SIZE = 10
    HEARTBEAT_SIZE = 11


cdef int write_frame(WriteBuffer out, int frame_type, const char *data, Py_ssize_t size) except -1
cdef int write_message(WriteBuffer out, const Message *message, uint16_t attempts) except -1
cdef int write_ok(WriteBuffer out) except -1


cdef class FrameDecoder:
    cdef ReadBuffer input
    cdef Py_ssize_t frame_size_max
