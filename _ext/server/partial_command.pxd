"""What is known of the command at the front of the input while it is not whole."""

from libc.stdint cimport int64_t

from nsqfast._ext.protocol.command cimport Line
from nsqfast._ext.server.host cimport Host


cdef str text(const char *data, Py_ssize_t size)
cdef object invalid(str detail)


cdef enum:
    # What may last as long as a part by itself: the clock is looked at after each.
    COSTLY_UNITS = 64


cdef class PartialCommand:
    cdef Host host
    cdef Py_ssize_t scanned       # bytes at the front of the input known to hold no newline
    cdef Py_ssize_t need          # bytes without which another look is useless
    cdef Py_ssize_t more_units    # of the part that the command takes, beside those for its size

    cdef bint more(self, Py_ssize_t need, str code, str detail) except -1
    cdef Py_ssize_t sized(self, const char *data, Py_ssize_t size, Line *line, str command, str missing,
                          int64_t size_max) except -2
