"""Messages as columns, for numpy: one buffer per field instead of one object per message."""

from libc.stdint cimport int64_t, uint16_t

from nsqfast._ext.protocol.buffer cimport WriteBuffer


cdef class Columns:
    cdef readonly Py_ssize_t count
    cdef int64_t size               # of all bodies
    cdef WriteBuffer bodies
    cdef WriteBuffer offsets        # int64, the end of each body
    cdef WriteBuffer timestamps     # int64, ns
    cdef WriteBuffer attempts       # uint16
    cdef WriteBuffer identities     # 16 bytes
    cdef WriteBuffer sources        # uint16, index into `connections`
    cdef readonly list connections  # that these messages came over, each once
    cdef object last_connection
    cdef uint16_t source            # index of `last_connection`

    cdef int begin(self) except -1
    cdef int add(self, object connection, const char *identity, int64_t timestamp_ns, uint16_t attempts,
                 const char *body, Py_ssize_t size) except -1
