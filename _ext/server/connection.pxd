"""One TCP client's bytes and clocks: buffers, heartbeats, deadlines, answers that wait for the disk."""

from libc.stdint cimport int64_t, uint64_t

from nsqfast._ext.broker.consumer cimport Consumer
from nsqfast._ext.broker.registry cimport Registry
from nsqfast._ext.core.log_quota cimport LogQuota
from nsqfast._ext.protocol.buffer cimport ReadBuffer, WriteBuffer


cdef class Connection(Consumer):
    cdef Registry registry
    cdef ReadBuffer input
    cdef WriteBuffer output
    cdef Py_ssize_t output_size_max           # with more in it the client gets no messages
    cdef object adapter                       # what packs and unpacks the stream; None = it is plain
    cdef list upgrades                        # adapters agreed on, put on one by one when all before has left; or None
    cdef ReadBuffer packed                    # with an adapter: what came and is not unpacked yet
    cdef readonly object secure               # the TlsStream among the adapters; None = no TLS
    cdef readonly bint tls                    # and its handshake is done
    cdef bint is_shaking                      # or is under way
    cdef int64_t handshake_deadline_ns
    cdef object pieces                        # and what the adapter is making of a part of it
    cdef object transport
    cdef readonly str remote_address
    cdef readonly str remote_host
    cdef readonly int64_t connect_ts          # Unix time, seconds
    cdef bint has_magic
    cdef bint is_closed                       # the transport is closed or closing
    cdef bint is_ending                       # and it is not yet: many are at once
    cdef bint is_lost                         # the transport is gone, and others still know of it
    cdef bint is_draining                     # a fatal error was sent; what still comes is thrown away
    cdef bint at_eof                          # the peer sends nothing more
    cdef bint command_blocked                 # the command at the front of the input waits; so do all behind it
    cdef bint is_begun                        # a command is not whole; known only where heartbeats are off
    cdef bint is_stopped                      # its turn had come, but it does not read its answers
    cdef bint is_written                      # stands in the registry's list for this turn
    cdef bint write_paused                    # the transport holds more than it likes to
    cdef bint read_paused
    cdef int64_t unsent_size                  # bytes the transport held when it asked us to pause; 0 = it does not
    cdef int64_t heartbeat_ns                 # 0 = off, and then a client may be silent between commands
    cdef int64_t next_heartbeat_ns
    cdef int64_t command_since_ns             # since when a next command is awaited
    cdef int64_t write_paused_since_ns
    cdef int64_t grace_until_ns               # no limit ends the connection before; 0 = none has come yet
    cdef LogQuota lines                       # of the log; None = the peer has caused none yet
    cdef object pending                       # deque of [ticket, number of OKs, command, other bytes or error text]

    cdef int feed(self) except -1
    cdef int count_unsent(self, int64_t size) except -1
    cdef int leave(self) except -1
    cdef int mark_written(self) except -1
    cdef int respond(self, bytes data) except -1
    cdef int answer_ok(self, uint64_t ticket, str command) except -1
    cdef str admit_line(self)
    cdef int fail(self, object error) except -1
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
    cdef int choose_reading(self) except -1
    cdef int forget(self) except -1
    cdef int block_for_turn(self) except -1
    cdef int go_on(self) except -1
    cdef int release(self) except -1
    cdef int flush(self) except -1
    cdef int send(self, bytes frame) except -1
    cdef int on_durable(self, uint64_t done_ticket, str error) except -1
    cdef int shut(self) except -1
    cdef int close(self) except -1
    cdef int end(self) except -1
    cdef int cut(self) except -1
    cdef int64_t deadline(self) noexcept
    cdef bint is_over(self, int64_t limit_ns, int64_t allowed_ns, int64_t now_ns) noexcept
    cdef int on_deadline(self, int64_t now_ns) except -1
    cdef int beat(self, int64_t now_ns) except -1
