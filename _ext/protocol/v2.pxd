"""Protocol V2: commands to the broker, a line split at single spaces, and frames from it (spec nsqd-tcp §2)."""

from libc.stdint cimport uint16_t, uint64_t

from nsqfast._ext.core.message cimport Message
from nsqfast._ext.protocol.buffer cimport ReadBuffer, WriteBuffer


cdef enum CommandKind:
    COMMAND_UNKNOWN
    COMMAND_IDENTIFY
    COMMAND_AUTH
    COMMAND_SUB
    COMMAND_PUB
    COMMAND_MPUB
    COMMAND_DPUB
    COMMAND_RDY
    COMMAND_FIN
    COMMAND_REQ
    COMMAND_TOUCH
    COMMAND_CLS
    COMMAND_NOP
    # From here on only for clients that negotiated `reject`, ...
    COMMAND_REJ
    COMMAND_DEATHS
    # ... and `nsqfast_deferred_ids`.
    COMMAND_CANCEL_DEFERRED
    COMMAND_RUN_DEFERRED


cdef enum Parse:
    PARSE_MORE = 0     # not whole yet; nothing was consumed
    PARSE_WHOLE = 1
    PARSE_BROKEN = -1  # can no longer become a command


ctypedef struct Line:
    CommandKind kind
    Py_ssize_t size            # of the line, its newline included
    const char *name
    Py_ssize_t name_size
    const char *end            # of its text
    int parameter_count        # all of them; only the first three are kept, as no command reads more
    const char *parameter[3]
    Py_ssize_t parameter_size[3]


ctypedef struct MpubScan:
    Py_ssize_t offset          # of the next size field, from the line's first byte
    uint64_t count             # messages announced; 0 = the count was not read yet
    uint64_t index             # messages whose bodies are complete


cdef Parse parse_line(const char *data, Py_ssize_t size, Py_ssize_t scanned, Line *line) noexcept nogil
cdef bint parse_decimal(const char *text, Py_ssize_t size, uint64_t *value) noexcept nogil


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
