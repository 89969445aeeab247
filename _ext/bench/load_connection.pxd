"""One connection of a load generator: bytes out as fast as the window allows, frames in, no Python anywhere."""

from libc.stdint cimport int64_t, uint8_t


cdef enum ConnectionKind:
    CONNECTION_PUBLISHER    # the same command again and again, so many in the air
    CONNECTION_PACED        # one command at each moment of a timetable
    CONNECTION_CONSUMER


ctypedef struct Tally:
    int64_t published    # messages whose OK has come
    int64_t received
    int64_t finished     # FIN was written
    int64_t requeued     # REQ was written
    int64_t bytes        # of bodies received
    int64_t last_ns      # when one of these last grew
    int64_t *samples     # latencies; NULL = none are taken
    int64_t sample_max
    int64_t sample_count


ctypedef struct Bytes:
    char *data
    size_t start         # of what is still to be sent, or to be parsed
    size_t end
    size_t capacity


ctypedef struct LoadConnection:
    ConnectionKind kind
    int fd
    bint is_blocked               # the socket takes no more; wait for it to be writable
    Tally *tally
    Bytes input
    Bytes output

    char *script                  # publisher: whole commands, one behind the other
    size_t script_size
    size_t command_size
    int64_t messages              # in one command
    int64_t window
    int64_t quota                 # commands that may be sent at all
    int64_t sent_bytes
    int64_t answered              # commands

    size_t body_at                # paced: where the intended time goes
    int64_t next_ns
    int64_t interval_ns

    int64_t rdy                   # consumer
    int64_t requeue_ms            # -1 = FIN at once

    char error[256]               # why it ended; empty while it lives


cdef LoadConnection *connection_new(ConnectionKind kind, int fd, Tally *tally) noexcept
cdef bint connection_set_script(LoadConnection *connection, const char *command, size_t size, int64_t window) noexcept
cdef void connection_free(LoadConnection *connection) noexcept
cdef bint connection_start(LoadConnection *connection) noexcept nogil
cdef bint connection_read(LoadConnection *connection) noexcept nogil
cdef bint connection_write(LoadConnection *connection) noexcept nogil
cdef bint connection_tick(LoadConnection *connection, int64_t now_ns) noexcept nogil
cdef int64_t connection_in_air(LoadConnection *connection) noexcept nogil
