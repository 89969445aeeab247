"""Sizes, states and ceilings, each with its reason. Relations between them are asserted in session.pyx."""


cdef enum FrameType:
    FRAME_RESPONSE = 0
    FRAME_ERROR = 1
    FRAME_MESSAGE = 2


cdef enum State:
    # The numbers are part of /stats (spec nsqd-tcp §4); 1 and 2 are not used on the server's side.
    STATE_INIT = 0
    STATE_SUBSCRIBED = 3
    STATE_CLOSING = 4


cdef enum Limit:
    MAGIC_SIZE = 4
    # A line of this many bytes, its newline included, is still a command (spec nsqd-tcp §2).
    LINE_SIZE_MAX = 16384
    # The body of an IDENTIFY or an AUTH: many times what any client says of itself.
    IDENTITY_SIZE_MAX = 65536
    # The same of an IDENTIFY where memory is used up: whoever drains a queue can still say who it is.
    IDENTITY_SIZE_FULL = 4096
    # An input buffer starts here and is kept at this size between commands; it doubles only for bytes that did arrive.
    INPUT_SIZE = 65536
    # A consumer with more than this waiting in its output buffer gets nothing until the buffer was written.
    OUTPUT_SIZE_MAX = 1048576
    # Likewise where the output is compressed: so much takes about a part of a turn.
    PACKED_SIZE_MAX = 65536
    # The transport asks us to pause above this many unsent bytes.
    TRANSPORT_HIGH_WATER = 1048576
    # 8 timestamp, 2 attempts, 16 id: in a message frame and in a stored record alike.
    MESSAGE_HEADER_SIZE = 26
    MESSAGE_ID_SIZE = 16
    # 4 size, 4 type.
    FRAME_HEADER_SIZE = 8
    # Groups of answers that wait for an fsync; a connection with more of them is closed.
    PENDING_OK_MAX = 1048576
    # What a client takes for a frame. More than any nsqd is set to, less than the text "HTTP" read as a size.
    CLIENT_FRAME_SIZE_MAX = 1073741824
