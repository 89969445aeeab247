"""A connection of a load generator: it writes as fast as the window allows and reads frames, without any Python."""

from libc.stdint cimport int64_t, uint8_t


cdef enum ConnectionKind:
    CONNECTION_PUBLISHER    # the same command repeatedly, a window of them outstanding
    CONNECTION_PACED        # one command at each time of a schedule
    CONNECTION_CONSUMER


ctypedef struct Tally:
    int64_t published    # messages whose OK has come
    int64_t received
    int64_t finished     # FINs written
    int64_t requeued     # REQs written
    int64_t bytes        # of bodies received
    int64_t last_ns      # when one of these last increased
    int64_t *samples     # latencies; NULL = none are recorded
    int64_t sample_max
    int64_t sample_count


ctypedef struct Bytes:
    char *data
    size_t start         # of what is to be sent, or to be parsed
    size_t end
    size_t capacity


ctypedef struct LoadConnection:
    ConnectionKind kind
    int fd
    bint is_blocked               # the socket's buffer is full; wait until it is writable
    Tally *tally
    Bytes input
    Bytes output

    char *script                  # publisher: whole commands, one after the other
    size_t script_size
    size_t command_size
    int64_t messages              # in one command
    int64_t window
    int64_t quota                 # commands that may be sent in all
    int64_t sent_bytes
    int64_t answered              # commands

    size_t body_at                # paced: where the due time is written
    int64_t next_ns
    int64_t interval_ns

    int64_t rdy                   # consumer
    int64_t requeue_ms            # -1 = FIN at once

    char error[256]               # why it ended; empty while it is open


cdef LoadConnection *connection_new(ConnectionKind kind, int fd, Tally *tally) noexcept
cdef bint connection_set_script(LoadConnection *connection, const char *command, size_t size, int64_t window) noexcept
cdef void connection_free(LoadConnection *connection) noexcept
cdef bint connection_start(LoadConnection *connection) noexcept nogil
cdef bint connection_read(LoadConnection *connection) noexcept nogil
cdef bint connection_write(LoadConnection *connection) noexcept nogil
cdef bint connection_tick(LoadConnection *connection, int64_t now_ns) noexcept nogil
cdef int64_t connection_in_air(LoadConnection *connection) noexcept nogil
