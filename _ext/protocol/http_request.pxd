"""HTTP publishes plain enough to be read without the full parser."""

from libc.stdint cimport int64_t


cdef enum Outcome:
    REQUEST_OTHER = -1    # for the full parser, whatever it is
    REQUEST_PART = 0      # the head is plain and whole, the body has not all come
    REQUEST_WHOLE = 1


ctypedef struct PlainRequest:
    bint is_many              # /mpub
    bint is_binary            # its messages have their sizes in front
    const char *topic
    Py_ssize_t topic_size
    int64_t defer_ms
    const char *body
    Py_ssize_t body_size
    Py_ssize_t size           # head and body
    bint has_host


cdef Outcome parse_request(const char *data, Py_ssize_t size, PlainRequest *request) noexcept nogil
