"""Sizes, states, ceilings and deadlines: each is defined once, here, with its reason.

What belongs here: the numbers of NSQ's protocols, and every limit that a peer or an operator may run into: how large,
how many, how long. What does not: numbers that only tune the algorithm beside them, such as units of a budget, the size
of a batch or a growth factor; those of files, which are in the package `disk`; and options, which are in `settings`.
Python has the protocols' numbers in nsqfast/wire/protocol.py; a test compares the two. session.pyx asserts relations
between limits.
"""

from libc.stdint cimport int64_t


cdef enum FrameType:
    FRAME_RESPONSE = 0
    FRAME_ERROR = 1
    FRAME_MESSAGE = 2


cdef enum State:
    # The numbers appear in /stats (spec nsqd-tcp §4); the server's side does not use 1 and 2.
    STATE_INIT = 0
    STATE_SUBSCRIBED = 3
    STATE_CLOSING = 4


# Fixed by the protocols.
cdef enum:
    MAGIC_SIZE = 4
    # The length of a body, the count of an MPUB, and the size before each of its bodies.
    LENGTH_SIZE = 4
    # 4 size, 4 type.
    FRAME_HEADER_SIZE = 8
    # 8 timestamp, 2 attempts, 16 id: the same in a message frame and in a stored record.
    MESSAGE_HEADER_SIZE = 26
    MESSAGE_ID_SIZE = 16
    # "FIN ", id, newline: half of all commands are FINs.
    FIN_SIZE = 21
    # A line of this many bytes, its newline included, is still valid (spec nsqd-tcp §2).
    LINE_SIZE_MAX = 16384
    # Lengths have 31 bits, so an MPUB has at most this many bytes behind its length ...
    MPUB_SIZE_MAX = 0x7fffffff
    # ... and a body in it this many, as the count and its own size need room.
    BODY_SIZE_MAX = 0x7fffffff - 8


# Connections to the broker, and what it keeps for each.
cdef enum:
    # The body of an IDENTIFY or AUTH: many times what any client sends.
    IDENTITY_SIZE_MAX = 65536
    # The same for an IDENTIFY when memory is used up: clients that drain a queue can still identify themselves.
    IDENTITY_SIZE_FULL = 4096
    IDENTITY_SHOWN_MAX = 256   # in the log
    # The initial size of an input buffer, and its size between commands; it doubles only when full of received bytes.
    INPUT_SIZE = 65536
    # A consumer with more than this in its output buffer gets no messages until the buffer was written.
    OUTPUT_SIZE_MAX = 1048576
    # The same for compressed output: packing this much takes about a part of a turn.
    PACKED_SIZE_MAX = 65536
    # The transport asks us to pause writing above this many unsent bytes.
    TRANSPORT_HIGH_WATER = 1048576
    # Groups of answers that wait for an fsync; a connection with more is closed.
    PENDING_OK_MAX = 1048576
    # The head of an HTTP request that is parsed in place. The full parser takes far longer ones.
    HTTP_HEAD_SIZE_MAX = 8192
    # HTTP answers gathered before a write, which lets the transport report a peer that does not read them.
    HTTP_ANSWERS_MAX = 512
    # HTTP answers that one connection may be owed: for its publishes that a disk does not have yet.
    HTTP_OWED_MAX = 64
    # Clients that may IDENTIFY, SUB and so on in one turn; the others are blocked until the next one.
    COSTLY_COUNT_MAX = 8
    # Bytes of what a consumer says of a message that failed; the rest is left out.
    ERROR_SIZE_MAX = 256
    # Dead letters that a client asks of at once; a connection has one such question.
    DEATHS_COUNT_MAX = 500
    # Bytes of large commands that count for one of these: new memory is slow, 1 GB a second.
    COSTLY_SIZE = 65536
    # What one read of a connection may bring, and what it may when the turn has had enough of large commands.
    READ_SIZE_MAX = 524288
    READ_SIZE_MIN = 8192
    # Messages that come back and go to disk, each with a write of its own; beyond it they likewise wait.
    STORED_COUNT_MAX = 256
    # Connections closed in one turn; the loop closes all their sockets in the next turn, at 10 us each.
    END_COUNT_MAX = 32
    # Log lines that a peer may cause at once; after that, one per LOG_LINE_NS.
    LOG_LINES_AT_ONCE = 100
    # All connections of an address together; then one per LOG_ADDRESS_LINE_NS. So many addresses are remembered.
    LOG_ADDRESS_LINES_AT_ONCE = 2000
    LOG_ADDRESSES_MAX = 4096


# Queues, and what the broker keeps for them.
cdef enum:
    # The largest number of messages in one publish that is taken as a whole or not at all. A larger one is put in
    # slices.
    WHOLE_MAX = 10000
    # Empty slabs (of 1 MiB) that a broker never gives back.
    SLABS_KEPT_MIN = 32
    # Descriptors that a queue may need during a stop: two files, the draft of a third, and one that is being synced.
    QUEUE_DESCRIPTORS = 4
    # Queues that are closed together: at least this many, for which there must be descriptors ...
    GROUP_COUNT_MIN = 16
    # ... and at most this many: queues get half of the 65,530 mappings that Linux allows.
    GROUP_COUNT_MAX = 16384
    # Queues named in the log line of a stop that lost messages, so that the line stays readable.
    LOST_SHOWN = 20


# The commit log.
cdef enum:
    # Bytes of a quarter of its ring, and of the largest batch. A smaller one would be full all the time ...
    RING_QUARTER_SIZE_MIN = 16384
    # ... and more takes longer to read at a start than a start should take.
    RING_QUARTER_SIZE_MAX = 1073741824


# Limits of one peek at the waiting messages (/channel/peek).
cdef enum:
    # Messages in one answer.
    PEEK_COUNT_MAX = 100
    # Messages of that state that are skipped before them.
    PEEK_OFFSET_MAX = 10000
    # Steps of a calendar of what is deferred: hours of 90 days.
    CALENDAR_STEPS_MAX = 2160
    # Messages examined: some milliseconds of the loop.
    PEEK_SCAN_MAX = 10000
    # Bytes of bodies searched.
    PEEK_SEARCH_SIZE_MAX = 67108864
    # Bytes of the search text.
    PEEK_NEEDLE_SIZE_MAX = 1024
    # Texts and fields that one search may ask for.
    SEARCH_TERMS_MAX = 8
    # Bytes of a body that is read as JSON, which takes 1 to 5 ms.
    SEARCH_JSON_SIZE_MAX = 1048576
    # Objects and arrays within each other.
    SEARCH_DEPTH_MAX = 128
    # Bytes of each body in an answer.
    PEEK_PIECE_SIZE_MAX = 65536


# nsqfast.client and nsqfast-bench.
cdef enum:
    # The largest frame a client accepts. More than any nsqd is set to, less than the text "HTTP" read as a size.
    CLIENT_FRAME_SIZE_MAX = 1073741824
    # Unanswered messages whose handlers let go of them, per connection.
    FORGOTTEN_MAX = 10000
    # Topics whose PUB line a producer keeps, so that a program that makes up topics does not fill the memory.
    TOPICS_KEPT_MAX = 10000
    # The largest frame the load generator accepts: it sends none as large, and has a buffer per connection.
    LOAD_FRAME_SIZE_MAX = 134217728


# An enum's numbers are C ints, which in nanoseconds hold only two seconds.
cdef extern from *:
    """
    #define NSQ_SECOND_NS INT64_C(1000000000)
    #define NSQ_HEARTBEAT_DEFAULT_NS (30 * NSQ_SECOND_NS)
    #define NSQ_MAGIC_TIMEOUT_NS (10 * NSQ_SECOND_NS)
    #define NSQ_HANDSHAKE_TIMEOUT_NS (5 * NSQ_SECOND_NS)
    #define NSQ_DRAIN_NS NSQ_SECOND_NS
    #define NSQ_DISK_RETRY_NS NSQ_SECOND_NS
    #define NSQ_PEEK_READ_NS_MAX (2 * NSQ_SECOND_NS)
    #define NSQ_STALLED_NS (10 * NSQ_SECOND_NS)
    #define NSQ_LOG_LINE_NS (NSQ_SECOND_NS / 10)
    #define NSQ_LOG_ADDRESS_LINE_NS (NSQ_SECOND_NS / 100)
    #define NSQ_LOAD_DRAIN_NS (10 * NSQ_SECOND_NS)
    """
    # The default until an IDENTIFY changes it (spec nsqd-tcp §7).
    const int64_t HEARTBEAT_DEFAULT_NS "NSQ_HEARTBEAT_DEFAULT_NS"
    # A V2 client sends its four bytes at once.
    const int64_t MAGIC_TIMEOUT_NS "NSQ_MAGIC_TIMEOUT_NS"
    # For the TLS handshake (spec nsqd-tcp §8).
    const int64_t HANDSHAKE_TIMEOUT_NS "NSQ_HANDSHAKE_TIMEOUT_NS"
    # Time for a peer to read its fatal error, while whatever it still sends is discarded.
    const int64_t DRAIN_NS "NSQ_DRAIN_NS"
    # Time before a disk is tried again after a failed read or write.
    const int64_t DISK_RETRY_NS "NSQ_DISK_RETRY_NS"
    # How long one peek may read a disk.
    const int64_t PEEK_READ_NS_MAX "NSQ_PEEK_READ_NS_MAX"
    # Under memory pressure: how long a command that has a large buffer may get no bytes.
    const int64_t STALLED_NS "NSQ_STALLED_NS"
    # See LOG_LINES_AT_ONCE.
    const int64_t LOG_LINE_NS "NSQ_LOG_LINE_NS"
    const int64_t LOG_ADDRESS_LINE_NS "NSQ_LOG_ADDRESS_LINE_NS"
    # How long the load generator waits for outstanding answers when its time is over.
    const int64_t LOAD_DRAIN_NS "NSQ_LOAD_DRAIN_NS"
