"""A TCP client's bytes and time limits: buffers, heartbeats, deadlines, answers that wait for the disk."""

from libc.stdint cimport int64_t

from nsqfast._ext.protocol.buffer cimport ReadBuffer
from nsqfast._ext.server.host cimport Host
from nsqfast._ext.server.pending cimport PendingAnswers
from nsqfast._ext.server.session cimport Session


cdef class Connection(Host):
    cdef readonly Session session             # None after the end
    cdef object adapter                       # packs and unpacks the stream (TLS, compression); None = it is plain
    cdef list upgrades  # adapters agreed on, added one by one when all earlier output was sent; or None
    cdef ReadBuffer packed                    # with an adapter: input that is not unpacked yet
    cdef int64_t handshake_deadline_ns
    cdef object pieces                        # iterator over what the adapter unpacks from a part of it
    cdef object transport
    cdef bint is_begun                        # a command is incomplete; tracked only if heartbeats are off
    cdef bint is_stopped                      # it has input to process, but does not read its answers
    cdef bint read_paused
    cdef int64_t unsent_size  # bytes in the transport's buffer when it asked us to pause; 0 = it does not
    cdef int64_t next_heartbeat_ns
    cdef int64_t write_paused_since_ns
    cdef int64_t grace_until_ns               # no time limit ends the connection before; 0 = no limit was reached yet

    cdef int count_unsent(self, int64_t size) except -1
    cdef int leave(self) except -1
    cdef int rearm(self) except -1
    cdef int parse(self) except -1
    cdef int watch_command(self) except -1
    cdef bint is_awaited(self) noexcept
    cdef int unpack(self) except -1
    cdef int upgrade(self) except -1
    cdef int start_handshake(self) except -1
    cdef int check_handshake(self) except -1
    cdef int fail_handshake(self, str reason) except -1
    cdef int end_stream(self) except -1
    cdef int forget(self) except -1
    cdef int shut(self) except -1
    cdef int end(self) except -1
    cdef int64_t deadline(self) noexcept
    cdef bint is_over(self, int64_t limit_ns, int64_t allowed_ns, int64_t now_ns) noexcept
    cdef int on_deadline(self, int64_t now_ns) except -1
    cdef int beat(self, int64_t now_ns) except -1
