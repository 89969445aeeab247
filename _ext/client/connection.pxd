"""A client's connection to an nsqd: it reads frames and writes commands, which are gathered for one write per turn."""

from libc.stdint cimport int64_t

from nsqfast._ext.protocol.buffer cimport ReadBuffer, WriteBuffer


cdef class ClientConnection:
    cdef ReadBuffer input
    cdef ReadBuffer packed            # with a layer: input that is not unpacked yet
    cdef WriteBuffer output
    cdef readonly object layer        # TLS, snappy, deflate (nsqfast.streams); None = plain
    cdef object transport
    cdef object loop
    cdef object call_soon             # the loop's method
    cdef object flush_later           # bound once
    cdef object on_closed             # called once, with this connection
    cdef object waiting               # deque of requests without an answer, in the order of the commands
    cdef readonly object error        # why it ended, or is about to
    cdef readonly bint is_open
    cdef bint is_flushing             # flush is in the loop's queue
    cdef bint write_paused
    cdef bint blocks_after_next       # input behind the next answer is not processed: it may be packed
    cdef bint frames_blocked
    cdef readonly int64_t read_ns     # of the last read, monotonic
    cdef double read_timeout_s
    cdef double write_timeout_s
    cdef object read_timer
    cdef object write_timer
    cdef Py_ssize_t unsent_size       # when the write timer was set

    cdef int parse(self) except -1
    cdef int frame(self, int frame_type, const char *data, Py_ssize_t size) except -1
    cdef int unpack(self, object layer, bytes data) except -1
    cdef int schedule_flush(self) except -1
    cdef int write(self) except -1
    cdef int on_response(self, const char *data, Py_ssize_t size) except -1
    cdef int on_error(self, str text) except -1
    cdef int on_message(self, const char *data, Py_ssize_t size) except -1
    cdef int after_read(self) except -1
    cdef int end(self) except -1
