"""HTTP publishes that are plain enough to be parsed without the full parser."""

from libc.stdint cimport int64_t


cdef enum Outcome:
    REQUEST_OTHER = -1    # left to the full parser, whatever it is
    REQUEST_PART = 0      # the head is plain and whole, but part of the body is missing
    REQUEST_WHOLE = 1


ctypedef struct PlainRequest:
    bint is_many              # /mpub
    bint is_binary            # each message has its size before it
    const char *topic
    Py_ssize_t topic_size
    int64_t defer_ms
    const char *body
    Py_ssize_t body_size
    Py_ssize_t size           # of head and body
    bint has_host
    bint is_local_host        # it is an address or localhost, which no page of another site has


cdef Outcome parse_request(const char *data, Py_ssize_t size, PlainRequest *request) noexcept nogil
