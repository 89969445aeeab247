"""Sizes, states, ceilings and deadlines: each has its one home here, with its reason.

What belongs here: the numbers of NSQ's protocols, and whatever a peer or an operator may run into, which is how large,
how many or how long something may be. What does not: a number that only tunes the algorithm beside it, such as units of
a budget, the size of a batch, a factor of growth; those of files, which stand in their room, disk; and options, which
are in `settings`. Python has the protocols' numbers in nsqfast/protocol.py; a test compares both. Relations between
limits are asserted in session.pyx.
"""

from libc.stdint cimport int64_t


cdef enum FrameType:
    FRAME_RESPONSE = 0
    FRAME_ERROR = 1
    FRAME_MESSAGE = 2


cdef enum State:
    # The numbers are part of /stats (spec nsqd-tcp §4); 1 and 2 are not used on the server's side.
    STATE_INIT = 0
    STATE_SUBSCRIBED = 3
    STATE_CLOSING = 4


# What the protocols say.
cdef enum:
    MAGIC_SIZE = 4
    # Of a body's length, of the count of an MPUB, and of the size before each of its bodies.
    LENGTH_SIZE = 4
    # 4 size, 4 type.
    FRAME_HEADER_SIZE = 8
    # 8 timestamp, 2 attempts, 16 id: in a message frame and in a stored record alike.
    MESSAGE_HEADER_SIZE = 26
    MESSAGE_ID_SIZE = 16
    # "FIN ", id, newline: half of all the commands there are.
    FIN_SIZE = 21
    # A line of this many bytes, its newline included, is still a command (spec nsqd-tcp §2).
    LINE_SIZE_MAX = 16384
    # Lengths have 31 bits: so many bytes of an MPUB follow its length ...
    MPUB_SIZE_MAX = 0x7fffffff
    # ... and one body in it has room for the count and its own size.
    BODY_SIZE_MAX = 0x7fffffff - 8


# Connections to the broker, and what it keeps of each.
cdef enum:
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
    # Groups of answers that wait for an fsync; a connection with more of them is closed.
    PENDING_OK_MAX = 1048576
    # The head of an HTTP request that is read in place. The full parser takes far longer ones.
    HTTP_HEAD_SIZE_MAX = 8192
    # HTTP answers gathered before they are written, and the transport may say that its peer does not read them.
    HTTP_ANSWERS_MAX = 512
    # Clients that say who they are, subscribe, and so on, in one turn; the others are blocked until the next one.
    COSTLY_COUNT_MAX = 8
    # Connections that are closed in one turn; the loop closes all their sockets in the next one, at 10 us each.
    END_COUNT_MAX = 32
    # Lines of the log that a peer may cause at once; then one each LOG_LINE_NS.
    LOG_LINES_AT_ONCE = 100


# Queues, and what the broker keeps for them.
cdef enum:
    # Messages of one publish that are taken as a whole or not at all. A larger one is put in slices.
    WHOLE_MAX = 10000
    # Bytes whose write is put off until the end of the turn.
    GATHER_SIZE = 1048576
    # Empty slabs (of 1 MiB) that a broker keeps for good.
    SLABS_KEPT_MIN = 32
    # What a queue may have open at a stop: two files, the draft of a third, and one that is on its way to the disk.
    QUEUE_DESCRIPTORS = 4
    # Queues that are closed together have descriptors at least for so many ...
    GROUP_COUNT_MIN = 16
    # ... and are not more where there are enough: half of the 65,530 mappings that Linux allows are for queues.
    GROUP_COUNT_MAX = 16384
    # Queues that are named at a stop which lost something of them: a line that can be read.
    LOST_SHOWN = 20


# One look at the messages that wait (/channel/peek).
cdef enum:
    # Messages in one answer.
    PEEK_COUNT_MAX = 100
    # Messages of that state before them.
    PEEK_OFFSET_MAX = 10000
    # Messages that are looked at: some milliseconds of the loop.
    PEEK_SCAN_MAX = 10000
    # Bytes of bodies that are searched.
    PEEK_SEARCH_SIZE_MAX = 67108864
    # What is searched for.
    PEEK_NEEDLE_SIZE_MAX = 1024
    # Of each body, in an answer.
    PEEK_PIECE_SIZE_MAX = 65536


# nsqfast.client and nsqfast-bench.
cdef enum:
    # What a client takes for a frame. More than any nsqd is set to, less than the text "HTTP" read as a size.
    CLIENT_FRAME_SIZE_MAX = 1073741824
    # Messages that a connection remembers as not answered by whoever let go of them.
    FORGOTTEN_MAX = 10000
    # Topics whose PUB line a producer keeps: a program that makes up topics does not fill the memory.
    TOPICS_KEPT_MAX = 10000
    # What the load generator takes for a frame: it sends none as large, and has a buffer for each connection.
    LOAD_FRAME_SIZE_MAX = 134217728


# An enum's numbers are ints in C, which hold two seconds.
cdef extern from *:
    """
    #define NSQ_SECOND_NS INT64_C(1000000000)
    #define NSQ_HEARTBEAT_DEFAULT_NS (30 * NSQ_SECOND_NS)
    #define NSQ_MAGIC_TIMEOUT_NS (10 * NSQ_SECOND_NS)
    #define NSQ_HANDSHAKE_TIMEOUT_NS (5 * NSQ_SECOND_NS)
    #define NSQ_DRAIN_NS NSQ_SECOND_NS
    #define NSQ_DISK_RETRY_NS NSQ_SECOND_NS
    #define NSQ_PEEK_READ_NS_MAX (2 * NSQ_SECOND_NS)
    #define NSQ_LOG_LINE_NS (NSQ_SECOND_NS / 10)
    #define NSQ_LOAD_DRAIN_NS (10 * NSQ_SECOND_NS)
    """
    # Until IDENTIFY says otherwise (spec nsqd-tcp §7).
    const int64_t HEARTBEAT_DEFAULT_NS "NSQ_HEARTBEAT_DEFAULT_NS"
    # A client that speaks V2 sends its four bytes at once.
    const int64_t MAGIC_TIMEOUT_NS "NSQ_MAGIC_TIMEOUT_NS"
    # Of TLS (spec nsqd-tcp §8).
    const int64_t HANDSHAKE_TIMEOUT_NS "NSQ_HANDSHAKE_TIMEOUT_NS"
    # For a peer to read its fatal error, while what it still sends is thrown away.
    const int64_t DRAIN_NS "NSQ_DRAIN_NS"
    # Until a disk that could not be read or written is asked again.
    const int64_t DISK_RETRY_NS "NSQ_DISK_RETRY_NS"
    # For how long one look may read a disk.
    const int64_t PEEK_READ_NS_MAX "NSQ_PEEK_READ_NS_MAX"
    # See LOG_LINES_AT_ONCE.
    const int64_t LOG_LINE_NS "NSQ_LOG_LINE_NS"
    # For the answers that are still awaited when the load generator's time is over.
    const int64_t LOAD_DRAIN_NS "NSQ_LOAD_DRAIN_NS"
