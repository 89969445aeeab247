"""A load: many connections on one thread, and the totals that all workers of a run share."""

from libc.stdint cimport int64_t

from nsqfast._ext.bench.load_connection cimport LoadConnection, ConnectionKind, Tally


cdef enum:
    # A cache line: published, received, finished, requeued, the caller's, bytes received, unused.
    TOTALS_PER_WORKER = 8


cdef class Load:
    cdef LoadConnection **connections
    cdef int connection_count
    cdef Tally tally
    cdef Py_buffer totals          # int64, TOTALS_PER_WORKER for each worker
    cdef Py_buffer samples
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
