"""Columns of messages as text: one record a line."""

from libc.stdint cimport int64_t

from nsqfast._ext.protocol.buffer cimport WriteBuffer


cdef class Rows:
    """The bodies of one batch, to be read in order; they are checked once, by the constructor."""
    cdef readonly Py_ssize_t count
    cdef readonly Py_ssize_t next       # the first row that was not written yet
    cdef bytes bodies
    cdef bytes offsets                  # int64, the end of each body; one more than there are rows
    cdef const int64_t *offset

    cdef Py_ssize_t end_of(self, int64_t size_max) noexcept


cdef class Lines(Rows):
    pass


cdef class JsonLines(Rows):
    cdef bytes identities               # 16 bytes
    cdef bytes timestamps               # int64, ns
    cdef bytes attempts                 # uint16
    cdef bytes sources                  # uint16, index into `tails`
    cdef bytes head                     # of a record, up to the id
    cdef list tails                     # of a record, by source, between `attempts` and the body

    cdef int begin_record(self, WriteBuffer out, Py_ssize_t row, bytes tail) except -1
