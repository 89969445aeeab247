"""A TCP client's socket: bytes, layers, deadlines, an orderly end. What the bytes say is its session's."""

from libc.stdint cimport int64_t

from nsqfast._ext.broker.consumer cimport Client
from nsqfast._ext.broker.registry cimport Registry
from nsqfast._ext.protocol.buffer cimport ReadBuffer, WriteBuffer
from nsqfast._ext.server.session cimport Session


cdef enum Phase:
    # In this order; a connection may skip phases and never goes back, except from the handshake to PHASE_OPEN.
    PHASE_GREETING = 0      # waits for the protocol's magic
    PHASE_OPEN = 1
    PHASE_HANDSHAKE = 2     # of TLS
    PHASE_DRAINING = 3      # a fatal error was sent; further input is discarded
    PHASE_ENDING = 4        # will be closed in a later turn, because many are closed at once
    PHASE_CLOSED = 5        # the transport is closed or closing
    PHASE_LOST = 6          # the transport is gone, but others still refer to the connection


cdef class BrokerConnection(Client):
    cdef Registry registry
    cdef readonly Session session             # None after the end
    cdef Phase phase
    cdef object transport
    cdef readonly str remote_address
    cdef readonly str remote_host
    cdef readonly int64_t connect_ts          # Unix time, seconds
    # In.
    cdef ReadBuffer input                     # the session's
    cdef bint at_eof                          # the peer sends nothing more
    cdef bint read_paused
    cdef bint is_begun                        # a command is incomplete; tracked only if heartbeats are off
    cdef int64_t received_ns  # the last bytes of a command whose first ones keep a large buffer; 0 = there is none
    # Out.
    cdef WriteBuffer output                   # the session's
    cdef bint write_paused                    # the transport's buffer is full
    cdef int64_t write_paused_since_ns
    cdef int64_t unsent_size  # bytes in the transport's buffer when it asked us to pause; 0 = it does not
    cdef bint is_stopped                      # it has input to process, but does not read its answers
    # Layers.
    cdef object adapter                       # packs and unpacks the stream (TLS, compression); None = it is plain
    cdef list upgrades  # adapters agreed on, added one by one when all earlier output was sent; or None
    cdef ReadBuffer packed                    # with an adapter: input that is not unpacked yet
    cdef object pieces                        # iterator over what the adapter unpacks from a part of it
    cdef readonly object secure               # the TlsStream among them; None = no TLS
    cdef readonly bint tls                    # its handshake is done
    # Time.
    cdef int64_t handshake_deadline_ns
    cdef int64_t next_heartbeat_ns
    cdef int64_t grace_until_ns               # no time limit ends the connection before; 0 = no limit was reached yet

    cdef int unpack(self) except -1
    cdef int parse(self) except -1
    cdef int run_commands(self) except -1
    cdef bint read_magic(self) except -1
    cdef int share_turn(self, Py_ssize_t size) except -1
    cdef int watch_command(self) except -1
    cdef bint watch_buffer(self) noexcept
    cdef int choose_reading(self) except -1
    cdef int release(self) except -1
    cdef int count_unsent(self, int64_t size) except -1
    cdef int answer_now(self) except -1
    cdef int upgrade(self) except -1
    cdef int start_handshake(self) except -1
    cdef int check_handshake(self) except -1
    cdef int fail_handshake(self, str reason) except -1
    cdef int end_stream(self) except -1
    cdef int fail(self, object error) except -1
    cdef int drain(self) except -1
    cdef int shut(self) except -1
    cdef int end(self) except -1
    cdef bint may_end(self) noexcept
    cdef int forget(self) except -1
    cdef int keep_time(self) except -1
    cdef int64_t deadline(self) noexcept
    cdef bint is_awaited(self) noexcept
    cdef bint is_over(self, int64_t limit_ns, int64_t allowed_ns, int64_t now_ns) noexcept
    cdef int rearm(self) except -1
    cdef int beat(self, int64_t now_ns) except -1
    cdef bint must_give_memory(self, int64_t now_ns) except -1
