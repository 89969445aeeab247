"""A connection over which a thread publishes and waits for each answer, without an event loop."""

from libc.stdint cimport int64_t

from nsqfast._ext.core.busy_poll cimport BusyPoll
from nsqfast._ext.protocol.buffer cimport ReadBuffer, WriteBuffer


cdef enum Event:
    EVENT_WAIT        # nothing more can be done now
    EVENT_FRAME       # a frame is at the front of the input: complete, or of an impossible size
    EVENT_FULL        # the input buffer is full
    EVENT_EOF         # nsqd closed the connection
    EVENT_BROKEN      # `broken_errno` says why


cdef class Direct:
    #   output.data          command_start        command_end        output.size
    #    | NOPs left over     | the publish        | NOPs             |
    # `sent` bytes from the front were handed to the kernel; between two calls the buffer is usually empty.
    cdef int fd
    cdef bint has_fd                 # and nobody else has it
    cdef ReadBuffer input
    cdef WriteBuffer output
    cdef Py_ssize_t sent
    cdef Py_ssize_t command_start
    cdef Py_ssize_t command_end
    cdef BusyPoll busy_poll
    cdef int broken_errno
    cdef readonly bint is_open
    cdef readonly bint is_busy       # a call waits for its answer
    cdef readonly object error       # why it ended; None while it is open

    cdef bytes exchange(self, bytes head, object body, int64_t deadline_ns)
    cdef bytes await_answer(self, int64_t deadline_ns)
    cdef int check(self, int64_t deadline_ns) except -1
    cdef Event transfer(self) noexcept nogil
    cdef Event receive(self) noexcept nogil
    cdef Event write(self) noexcept nogil
    cdef void sleep(self, int64_t deadline_ns) noexcept nogil
    cdef bytes take_frame(self)
    cdef bytes take_response(self, bytes data)
    cdef object break_off(self, str reason)
    cdef object refuse(self, str text)
    cdef int end(self, str reason) except -1
    cdef int clean_up(self) except -1
