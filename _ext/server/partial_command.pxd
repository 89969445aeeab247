"""What is known about an incomplete command at the front of the input."""

from libc.stdint cimport int64_t

from nsqfast._ext.protocol.command cimport Line
from nsqfast._ext.server.host cimport Host


cdef str text(const char *data, Py_ssize_t size)
cdef object invalid(str detail)


cdef enum:
    # Units of what may take as long as a part by itself: the clock is read after each.
    COSTLY_UNITS = 64


cdef class PartialCommand:
    cdef Host host
    cdef Py_ssize_t scanned       # bytes at the front of the input known to contain no newline
    cdef Py_ssize_t need          # bytes needed before parsing again makes sense
    cdef Py_ssize_t more_units    # units that the command takes besides those for its size

    cdef bint more(self, Py_ssize_t need, str code, str detail) except -1
    cdef Py_ssize_t sized(self, const char *data, Py_ssize_t size, Line *line, str command, str missing,
                          int64_t size_max) except -2
