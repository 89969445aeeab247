"""A connection as its session sees it: its buffers, its lifecycle, and ways to answer."""

from libc.stdint cimport int64_t, uint64_t

from nsqfast._ext.broker.consumer cimport Client
from nsqfast._ext.broker.registry cimport Registry
from nsqfast._ext.core.log_quota cimport LogQuota
from nsqfast._ext.protocol.buffer cimport ReadBuffer, WriteBuffer
from nsqfast._ext.server.pending cimport PendingAnswers


cdef enum Phase:
    # In this order; a connection may skip phases and never goes back, except from the handshake to PHASE_OPEN.
    PHASE_GREETING = 0      # waits for the protocol's magic
    PHASE_OPEN = 1
    PHASE_HANDSHAKE = 2     # of TLS
    PHASE_DRAINING = 3      # a fatal error was sent; further input is discarded
    PHASE_ENDING = 4        # will be closed in a later turn, because many are closed at once
    PHASE_CLOSED = 5        # the transport is closed or closing
    PHASE_LOST = 6          # the transport is gone, but others still refer to the connection


cdef class Host(Client):
    cdef Registry registry
    cdef ReadBuffer input
    cdef WriteBuffer output
    cdef Py_ssize_t output_size_max           # with more output than this the client gets no messages
    cdef Phase phase
    cdef bint at_eof                          # the peer sends nothing more
    cdef bint command_blocked                 # the command at the front of the input waits; so do all behind it
    cdef bint is_written                      # is in the registry's list for this turn
    cdef bint write_paused                    # the transport's buffer is full
    cdef readonly object secure               # the TlsStream that packs and unpacks; None = no TLS
    cdef readonly bint tls                    # its handshake is done
    cdef readonly str remote_address
    cdef readonly str remote_host
    cdef readonly int64_t connect_ts          # Unix time, seconds
    cdef int64_t heartbeat_ns                 # 0 = off; then the client may be silent between commands
    cdef int64_t command_since_ns             # when we began to wait for the next command
    cdef int64_t charged_size                 # bytes counted by charge_bytes
    cdef int64_t received_ns  # the last bytes of a command whose first ones keep a large buffer; 0 = there is none
    cdef PendingAnswers pending
    cdef LogQuota lines                       # of the log; None = the peer has caused no line yet

    cdef int mark_written(self) except -1
    cdef int charge_bytes(self, int64_t size) except -1
    cdef int greet(self) except -1
    cdef int keep_time(self, int64_t heartbeat_ns) except -1
    cdef int upgrade_to(self, list upgrades) except -1
    cdef int send(self, bytes frame) except -1
    cdef int answer_ok(self, uint64_t ticket, str command) except -1
    cdef int answer_id(self, uint64_t ticket, str command, uint64_t id) except -1
    cdef int await_ticket(self, uint64_t ticket, str command) except -1
    cdef int refuse_oks(self, uint64_t count, str error) except -1
    cdef int say(self, int level, str line, bint is_last=*) except -1
    cdef ReadBuffer expose_input(self)
    cdef int share_turn(self, Py_ssize_t size) except -1
    cdef bint may_end(self) noexcept
    cdef bint watch_buffer(self) noexcept
    cdef bint is_refused_memory(self, int64_t now_ns) except -1
    cdef int fail(self, object error) except -1
    cdef int drain(self) except -1
    cdef int close(self) except -1
    cdef int block_for_turn(self) except -1
    cdef int choose_reading(self) except -1
    cdef int unblock(self) except -1
    cdef int release(self) except -1
