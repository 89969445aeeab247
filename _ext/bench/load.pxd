"""A load: many connections on one thread, and the totals that all workers of a run share."""

from libc.stdint cimport int64_t


cdef enum ConnectionKind:
    CONNECTION_PUBLISHER    # the same command repeatedly, a window of them outstanding
    CONNECTION_PACED        # one command at each time of a schedule
    CONNECTION_CONSUMER


ctypedef struct Latencies:
    int64_t *values_ns   # NULL = none are recorded
    int64_t count_max
    int64_t count


ctypedef struct Tally:
    int64_t published    # messages whose OK has come
    int64_t received
    int64_t finished     # FINs written
    int64_t requeued     # REQs written
    int64_t bytes        # of bodies received
    int64_t last_ns      # when one of these last increased
    Latencies arrivals   # of messages, since they were due
    Latencies answers    # OKs of paced commands, since these were due


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
    int64_t first_ns              # when the first command is due
    int64_t next_ns
    int64_t interval_ns

    int64_t rdy                   # consumer
    int64_t requeue_ms            # -1 = FIN at once

    char error[256]               # why it ended; empty while it is open


cdef enum:
    # A cache line: published, received, finished, requeued, the caller's, bytes received, unused.
    TOTALS_PER_WORKER = 8


cdef class Load:
    cdef LoadConnection **connections
    cdef int connection_count
    cdef Tally tally
    cdef Py_buffer totals          # int64, TOTALS_PER_WORKER for each worker
    cdef Py_buffer arrivals        # int64, as the next
    cdef Py_buffer answers
    cdef int64_t *own              # this worker's row
    cdef int worker_count
    cdef int epoll_fd
    cdef int timer_fd
    cdef int paced_count
    cdef int64_t publish_target
    cdef int64_t finish_target
    cdef readonly int64_t started_ns
    cdef readonly object error

    cdef LoadConnection *add(self, ConnectionKind kind, int fd) except NULL
    cdef int set_script(self, LoadConnection *connection, bytes command, int64_t window) except -1
    cdef int begin(self) except -1
    cdef bint watch_socket(self, LoadConnection *connection, int operation) noexcept nogil
    cdef LoadConnection *serve_ready(self, int timeout_ms) noexcept nogil
    cdef LoadConnection *serve(self, LoadConnection *connection, unsigned int events) noexcept nogil
    cdef LoadConnection *tick(self) noexcept nogil
    cdef void note(self) noexcept nogil
    cdef bint is_reached(self) noexcept nogil
    cdef int64_t total(self, int column) noexcept nogil
    cdef LoadConnection *drive(self, int64_t deadline_ns) noexcept nogil
    cdef LoadConnection *drain(self, int64_t deadline_ns) noexcept nogil
