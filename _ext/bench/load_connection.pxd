"""One connection of a load generator: bytes out as fast as the window allows, frames in, no Python anywhere."""

from libc.stdint cimport int64_t, uint8_t


cdef enum LaneKind:
    LANE_PUBLISHER    # the same command again and again, so many in the air
    LANE_PACED        # one command at each moment of a timetable
    LANE_CONSUMER


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


ctypedef struct Lane:
    LaneKind kind
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


cdef Lane *lane_new(LaneKind kind, int fd, Tally *tally) noexcept
cdef bint lane_set_script(Lane *lane, const char *command, size_t size, int64_t window) noexcept
cdef void lane_free(Lane *lane) noexcept
cdef bint lane_start(Lane *lane) noexcept nogil
cdef bint lane_read(Lane *lane) noexcept nogil
cdef bint lane_write(Lane *lane) noexcept nogil
cdef bint lane_tick(Lane *lane, int64_t now_ns) noexcept nogil
cdef int64_t lane_in_air(Lane *lane) noexcept nogil
