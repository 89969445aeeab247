"""The asyncio seam (a BufferedProtocol), and everything about a client that is not a command.

After a fatal error the connection ends in order: gathered output is sent, our side is shut down, and for a moment input
is read and discarded, because closing with unread input would turn the error frame into a reset.

While a session is blocked, input is kept up to a limit, and output is sent as usual; go_on() runs the command that had
to wait, and those behind it. A client that sent more than fits into a part of a turn is blocked until its next turn.
"""

import logging

from libc.stdint cimport INT64_MAX, uint64_t
from libc.string cimport memcmp

from nsqfast._ext.core.budget cimport Budget, begin_part, is_spent
from nsqfast._ext.core.clock cimport monotonic_ns, wall_ns
from nsqfast._ext.core.limits cimport (
    COSTLY_COUNT_MAX, COSTLY_SIZE, DRAIN_NS, FRAME_ERROR, FRAME_RESPONSE, HANDSHAKE_TIMEOUT_NS, HEARTBEAT_DEFAULT_NS,
    INPUT_SIZE, MAGIC_SIZE, MAGIC_TIMEOUT_NS, OUTPUT_SIZE_MAX, PACKED_SIZE_MAX, PENDING_OK_MAX, READ_SIZE_MAX,
    READ_SIZE_MIN, STALLED_NS, TRANSPORT_HIGH_WATER,
)
from nsqfast._ext.core.memory cimport MEMORY_SPILL, charge
from nsqfast._ext.protocol.v2 cimport HEARTBEAT, HEARTBEAT_SIZE, write_frame, write_ok

from nsqfast.errors import ProtocolError
from nsqfast.streams.adapter import Stacked, StreamError
from nsqfast.wire.gotext import format_address, format_peer_host
from nsqfast.wire.refusals import REFUSED

cdef int64_t SECOND_NS = 1000000000
cdef int64_t TURN_NS = 1000000   # enough for the loop to read once more

cdef enum:
    # Units that an unpacked piece counts for: the clock is read after each.
    PIECE_UNITS = 64


cdef class BrokerConnection(Client):
    """Created for each accepted socket; `registry` outlives it."""

    def __init__(self, Registry registry not None):
        self.registry = registry
        self.session = Session(registry, self)
        self.input, self.output = self.session.input, self.session.output
        self.phase = PHASE_GREETING
        self.remote_address = self.remote_host = ""
        self.adapter = self.upgrades = self.secure = self.pieces = None

    # -- the asyncio seam ----------------------------------------------------------------------------------------------

    def connection_made(self, transport):
        self.transport = transport
        transport.set_write_buffer_limits(TRANSPORT_HIGH_WATER)
        peername = transport.get_extra_info("peername")
        self.remote_address, self.remote_host = format_address(peername), format_peer_host(peername)
        self.connect_ts = wall_ns() // SECOND_NS
        self.session.begin(self.remote_address, self.remote_host)
        self.registry.turn.add_client(self)
        self.session.say(logging.INFO, f"TCP: new client({self.remote_address})")
        self.keep_time()

    def get_buffer(self, sizehint):
        """New memory is slow: once a turn has had enough of it, it is filled little by little."""
        if self.adapter is not None:
            return self.packed
        self.input.read_max = READ_SIZE_MAX if self.registry.turn.costly_count <= COSTLY_COUNT_MAX else READ_SIZE_MIN
        return self.input

    def buffer_updated(self, nbytes):
        if self.adapter is None:
            self.input.end += <Py_ssize_t> nbytes
            self.parse()
            self.share_turn(<Py_ssize_t> nbytes)
        else:
            self.packed.end += <Py_ssize_t> nbytes
            self.unpack()

    def eof_received(self):
        self.at_eof = True
        if self.phase == PHASE_HANDSHAKE:
            self.fail_handshake("unexpected EOF")
        elif self.phase < PHASE_DRAINING:
            self.share_turn(self.input.capacity)    # of half a command, which is freed
            self.parse()
        if self.session.answers.waiting_count or self.session.is_blocked:
            return True  # an answer still waits; on_durable or go_on ends the connection
        if not (self.phase >= PHASE_DRAINING or self.write_paused or self.registry.turn.may_be_costly()):
            self.session.block_for_turn()   # many leave at once
            return True
        self.close()
        return self.phase == PHASE_ENDING

    def connection_lost(self, exc):
        self.phase = PHASE_LOST
        self.session.auth.cancel()
        if self.session.death_lookup is not None:
            self.session.death_lookup.cancel()
        self.session.charge_bytes(-self.session.charged_size)
        self.count_unsent(0)
        self.registry.timers.disarm(self)
        if self.registry.turn.may_be_costly():
            self.forget()
        else:
            self.registry.turn.want_turn(self)

    def pause_writing(self):
        self.write_paused = True
        self.session.is_writable = False
        self.write_paused_since_ns = monotonic_ns()
        self.count_unsent(self.transport.get_write_buffer_size())
        self.rearm()

    def resume_writing(self):
        self.write_paused = False
        self.session.is_writable = True
        self.count_unsent(0)
        self.flush()
        self.choose_reading()
        if self.is_stopped:
            self.is_stopped = False
            self.registry.turn.want_turn(self)

    # -- in ------------------------------------------------------------------------------------------------------------

    cdef int unpack(self) except -1:
        """Unpack piece by piece: however much a few bytes expand to, no more is kept than a command may have, and when
        the part is over the rest stays packed until the next turn.
        """
        cdef Budget budget = begin_part()
        try:
            while not self.session.is_blocked:
                if self.phase >= PHASE_DRAINING:
                    self.packed.consume(self.packed.end - self.packed.start)
                    return 0
                if self.pieces is None:
                    data = self.packed.waiting()
                    if not data:
                        return 0
                    self.packed.consume(len(data))
                    self.pieces = self.adapter.unpack(data)
                piece = next(self.pieces, None)
                self.check_handshake()
                if piece is not None:
                    self.input.append(piece, len(<bytes> piece))
                    self.parse()
                    if is_spent(&budget, PIECE_UNITS) and not self.session.is_blocked:
                        self.session.block_for_turn()
                    continue
                self.pieces = None
                if self.adapter.at_end and not self.at_eof:
                    self.eof_received()
        except StreamError as error:
            if self.phase == PHASE_HANDSHAKE:
                return self.fail_handshake(str(error))
            return self.disconnect(str(error))
        return self.choose_reading()

    cdef int parse(self) except -1:
        # Input before the peer knows our answer to IDENTIFY is discarded, too; keeping it would have no limit.
        if self.phase >= PHASE_DRAINING or self.upgrades is not None:
            self.input.consume(self.input.end - self.input.start)
            return 0
        try:
            if not self.session.is_blocked:
                self.run_commands()
        except ProtocolError as error:
            self.fail(error)
        except OSError as error:
            # A queue could not be opened: too many files, a broken disk.
            self.fail(ProtocolError("E_INVALID", error.strerror or str(error)))
        if not (self.session.is_blocked or self.phase >= PHASE_DRAINING or self.input.claim_room()):
            self.fail(ProtocolError("E_INVALID", "no memory left for a command of this size"))
        if self.write_paused or self.session.is_blocked:
            self.choose_reading()
        if self.watch_buffer():
            self.rearm()
        return self.watch_command() if self.session.heartbeat_ns == 0 else 0

    cdef int run_commands(self) except -1:
        """Run those that are whole, and do what they ask of the connection."""
        if self.phase == PHASE_GREETING and not self.read_magic():
            return 0
        self.session.feed(self.at_eof)
        if self.session.new_layers is not None:
            self.upgrades, self.session.new_layers = self.session.new_layers or None, None
            self.keep_time()
        if self.session.is_broken:
            # NSQ closes without an error; shut() spares the peer the reset that Go causes.
            return self.drain()
        return self.close() if self.session.answers.waiting_count > PENDING_OK_MAX else 0

    cdef bint read_magic(self) except -1:
        """Whether the protocol's magic was received."""
        if self.input.end - self.input.start < MAGIC_SIZE or self.session.waits_to_be_costly():
            return False
        if memcmp(self.input.data + self.input.start, b"  V2", MAGIC_SIZE) != 0:
            raise ProtocolError("E_BAD_PROTOCOL")
        self.session.say(logging.INFO, f"CLIENT({self.remote_address}): desired protocol magic '  V2'")
        self.input.consume(MAGIC_SIZE)
        self.phase = PHASE_OPEN
        self.keep_time()
        return True

    cdef int share_turn(self, Py_ssize_t size) except -1:
        """The rest of a large command is read in a later turn if this one has read so much already, from whomever."""
        if (self.session.is_blocked or self.phase >= PHASE_DRAINING
                or self.input.end - self.input.start <= INPUT_SIZE):
            return 0
        self.registry.turn.costly_count += size // COSTLY_SIZE
        if not self.registry.turn.may_be_costly():
            self.session.block_for_turn()
            self.choose_reading()
        return 0

    cdef int watch_command(self) except -1:
        """Without heartbeats no input is required, but a command that has begun must be completed in time."""
        if self.input.start == self.input.end:
            self.is_begun = False
        elif not self.is_begun:
            self.is_begun = True
            self.session.command_since_ns = monotonic_ns()
            self.rearm()
        return 0

    cdef bint watch_buffer(self) noexcept:
        """Note when bytes came for a command that has a large buffer; return whether that is news. Heartbeats say that
        the peer is alive, not that the command will be completed."""
        cdef bint was_watched = self.received_ns != 0
        self.received_ns = 0
        if self.input.capacity > INPUT_SIZE and self.input.start != self.input.end and not self.session.is_blocked:
            self.received_ns = monotonic_ns()
        return self.received_ns != 0 and not was_watched

    cdef int choose_reading(self) except -1:
        """Stop reading from a peer that does not read its answers, and from one that sends much while it is blocked."""
        cdef bint is_full = False
        if self.phase >= PHASE_ENDING:
            return 0
        if self.write_paused:
            is_full = self.read_paused or self.output.size > OUTPUT_SIZE_MAX
        if self.session.is_blocked and not is_full:
            is_full = self.input.end - self.input.start >= INPUT_SIZE
            if self.packed is not None:
                is_full = is_full or self.packed.end - self.packed.start >= INPUT_SIZE
        if is_full != self.read_paused:
            self.read_paused = is_full
            if is_full:
                self.transport.pause_reading()
            else:
                self.transport.resume_reading()
        return 0

    cdef int go_on(self) except -1:
        if self.phase == PHASE_LOST:
            return self.forget()
        if self.phase == PHASE_ENDING:
            return self.end()
        if self.phase == PHASE_CLOSED:
            return 0
        if self.phase == PHASE_DRAINING:
            self.session.is_blocked = False
            return self.choose_reading()
        if self.write_paused and self.output.size > OUTPUT_SIZE_MAX and self.session.auth.error is None:
            self.is_stopped = True
            return 0
        return self.release()

    cdef int release(self) except -1:
        """Run the command that was blocked, and those behind it."""
        cdef bint at_eof = self.at_eof
        self.session.is_blocked = self.at_eof = False  # eof is handled only after all input was unpacked
        self.session.command_since_ns = monotonic_ns()
        self.parse()
        if self.adapter is not None:
            self.unpack()
        self.at_eof = self.at_eof or at_eof
        if self.at_eof and not self.session.is_blocked:
            self.eof_received()
            return 0
        self.choose_reading()
        return self.rearm()

    cdef int count_unsent(self, int64_t size) except -1:
        """Count what the transport buffers for a peer that does not read."""
        charge(self.registry.memory.account, size - self.unsent_size)
        self.unsent_size = size
        return 0

    # -- out -----------------------------------------------------------------------------------------------------------

    cdef int flush(self) except -1:
        if self.phase >= PHASE_ENDING:
            return 0
        self.session.answers.is_listed = False
        if self.write_paused or self.phase == PHASE_HANDSHAKE:
            return 0
        if self.output.size:
            self.registry.turn.written_size += self.output.size
            data = self.output.take()
            self.transport.write(data if self.adapter is None else self.adapter.pack(data))
        if self.upgrades is not None and self.session.answers.waiting_count == 0:
            self.upgrade()
        return self.session.on_flushed()

    cdef int on_durable(self, uint64_t done_ticket, str error) except -1:
        if self.session is None:
            return 0
        try:
            self.session.answers.on_durable(done_ticket, error)
        except ProtocolError as failure:
            return self.fail(failure)
        if 0 < self.session.sub_ticket <= done_ticket:
            self.session.sub_ticket = 0
            self.session.take_more()
        if self.session.answers.waiting_count == 0:
            if self.phase == PHASE_DRAINING:
                self.shut()
            elif self.at_eof and not self.session.is_blocked:
                self.close()
        return 0

    cdef int answer_now(self) except -1:
        """Send the OK of a layer that was added."""
        write_ok(self.output)
        return self.session.answers.want_flush()

    # -- layers of the stream ------------------------------------------------------------------------------------------

    cdef int upgrade(self) except -1:
        """Add the next adapter. All earlier output was sent; the OK is the first to be packed."""
        layer = self.upgrades.pop(0)
        self.adapter = layer if self.secure is None else Stacked(self.secure, layer)
        if not self.upgrades:
            self.upgrades = None
        if self.packed is None:
            self.packed = ReadBuffer(INPUT_SIZE, self.registry.memory)
        self.input.consume(self.input.end - self.input.start)
        if not layer.is_ready:
            self.secure = layer
            return self.start_handshake()
        self.session.output_size_max = PACKED_SIZE_MAX
        return self.answer_now()

    cdef int start_handshake(self) except -1:
        self.session.say(logging.INFO, f"PROTOCOL(V2): [{self.remote_address}] upgrading connection to TLS")
        self.phase = PHASE_HANDSHAKE
        self.handshake_deadline_ns = monotonic_ns() + HANDSHAKE_TIMEOUT_NS
        return self.rearm()

    cdef int check_handshake(self) except -1:
        """Send the adapter's handshake data, and continue with the protocol when the handshake is done."""
        reply = self.adapter.reply()
        if reply and self.phase < PHASE_ENDING:
            self.transport.write(reply)
        if self.phase != PHASE_HANDSHAKE or not self.adapter.is_ready:
            return 0
        self.phase = PHASE_OPEN
        self.tls = True
        self.session.needs_tls = False
        self.keep_time()
        return self.answer_now()

    cdef int fail_handshake(self, str reason) except -1:
        """Send the TLS alert, if any, then an error frame for a peer that does not speak TLS."""
        alert = self.adapter.reply()
        if alert:
            self.transport.write(alert)
        self.phase = PHASE_OPEN
        self.adapter = self.upgrades = None
        return self.fail(ProtocolError("E_IDENTIFY_FAILED", f"IDENTIFY failed {reason}"))

    cdef int end_stream(self) except -1:
        """Send the adapter's end marker, if it has one."""
        if self.adapter is not None and self.phase != PHASE_HANDSHAKE:
            end = self.adapter.end()
            if end:
                self.transport.write(end)
        return 0

    # -- the end -------------------------------------------------------------------------------------------------------

    cdef int fail(self, object error) except -1:
        """Send a fatal error, then end the connection in order."""
        # While a disk refuses publishes, the health check reports that once a minute.
        is_refused = error.code.endswith("PUB_FAILED") and self.registry.durability.health() != "OK"
        self.session.say(logging.INFO if is_refused else logging.ERROR, f"[{self.remote_address}] - {error}")
        if self.phase >= PHASE_ENDING:
            return 0
        self.phase = PHASE_DRAINING
        self.upgrades = None    # nothing is packed behind an error
        self.session.leave()
        self.session.answers.send(FRAME_ERROR, str(error).encode("utf-8", "surrogateescape"))
        if self.session.answers.waiting_count == 0:
            self.shut()
        return 0

    cdef int drain(self) except -1:
        """End in order, without an error."""
        self.phase = PHASE_DRAINING
        self.session.leave()
        if self.session.answers.waiting_count == 0:  # else on_durable does it after the last answer
            self.shut()
        return 0

    cdef int shut(self) except -1:
        """Shut our side down; the peer gets a moment to read the rest."""
        self.input.consume(self.input.end - self.input.start)
        self.input.trim()
        self.flush()
        if self.phase >= PHASE_ENDING:
            return 0
        if self.at_eof or self.write_paused or not self.transport.can_write_eof():
            return self.close()
        self.end_stream()
        self.transport.write_eof()
        return self.registry.timers.arm(self, monotonic_ns() + DRAIN_NS)

    cdef int close(self) except -1:
        if self.phase >= PHASE_ENDING:
            return 0
        self.flush()
        self.end_stream()
        self.phase = PHASE_ENDING
        self.session.leave()
        return self.end()

    cdef int end(self) except -1:
        """Close the transport, in a later turn if many are closed at once."""
        if not self.may_end():
            return self.registry.turn.want_turn(self)
        self.phase = PHASE_CLOSED
        self.transport.close()
        return 0

    cdef bint may_end(self) noexcept:
        """Whether it may be closed in this turn; to free a large buffer takes as long as to close several."""
        if not self.registry.turn.may_end():
            return False
        self.registry.turn.end_count += self.input.capacity // READ_SIZE_MAX
        return True

    cdef int disconnect(self, str reason) except -1:
        if self.session is not None:
            self.session.say(logging.ERROR, f"client({self.remote_address}) - {reason}")
            self.session.leave()
        self.abort()
        return 0

    def abort(self):
        """End the connection now."""
        if self.phase != PHASE_LOST:
            self.phase = PHASE_CLOSED
        if self.session is not None:
            self.session.is_writable = False
        if self.transport is not None:
            self.transport.abort()

    cdef int forget(self) except -1:
        """Remove every reference that others have to this client."""
        self.phase = PHASE_CLOSED
        self.session.leave()
        self.session.say(logging.INFO, f"PROTOCOL(V2): [{self.remote_address}] exiting ioloop", is_last=True)
        self.session = None     # it refers to this connection
        self.registry.turn.remove_client(self)
        return 0

    # -- time ----------------------------------------------------------------------------------------------------------

    cdef int keep_time(self) except -1:
        """Wait for the next command, and send heartbeats, from now on."""
        self.session.command_since_ns = monotonic_ns()
        self.next_heartbeat_ns = self.session.command_since_ns + self.session.heartbeat_ns
        return self.rearm()

    cdef int64_t deadline(self) noexcept:
        """The next time at which something must be checked; 0 = none."""
        cdef int64_t deadline_ns = self.next_heartbeat_ns if self.session.heartbeat_ns else INT64_MAX
        cdef int64_t patience_ns = self.session.heartbeat_ns or HEARTBEAT_DEFAULT_NS
        if self.phase == PHASE_GREETING:
            return max(self.session.command_since_ns + MAGIC_TIMEOUT_NS, self.grace_until_ns)
        if self.phase == PHASE_HANDSHAKE:
            return max(self.handshake_deadline_ns, self.grace_until_ns)
        if self.is_awaited():
            deadline_ns = min(deadline_ns, max(self.session.command_since_ns + 2 * patience_ns, self.grace_until_ns))
        if self.write_paused:
            deadline_ns = min(deadline_ns, max(self.write_paused_since_ns + patience_ns, self.grace_until_ns))
        if self.received_ns:
            deadline_ns = min(deadline_ns, max(self.received_ns + STALLED_NS, self.grace_until_ns))
        return 0 if deadline_ns == INT64_MAX else deadline_ns

    cdef bint is_awaited(self) noexcept:
        """Whether the client must send something, or the rest of it, in time."""
        return not self.session.is_blocked and (self.session.heartbeat_ns != 0 or self.is_begun)

    cdef bint is_over(self, int64_t limit_ns, int64_t allowed_ns, int64_t now_ns) noexcept:
        """Whether nothing came until the limit, nor in the grace period behind it.

        Timers may run before sockets are read, so input that already waits is read first. A loop that was late by some
        time waits for as long again, up to `allowed_ns`, since the peer may have been stopped with it.
        """
        if now_ns >= limit_ns >= self.grace_until_ns:
            self.grace_until_ns = now_ns + max(TURN_NS, min(now_ns - limit_ns, allowed_ns))
        return now_ns >= max(limit_ns, self.grace_until_ns)

    cdef int rearm(self) except -1:
        cdef int64_t deadline_ns
        if self.phase >= PHASE_DRAINING:
            return 0
        deadline_ns = self.deadline()
        if deadline_ns == 0:
            return self.registry.timers.disarm(self)
        return self.registry.timers.arm(self, deadline_ns)

    cdef int on_deadline(self, int64_t now_ns) except -1:
        cdef int64_t patience_ns
        if self.phase == PHASE_DRAINING:
            self.abort()
            return 0
        patience_ns = self.session.heartbeat_ns or HEARTBEAT_DEFAULT_NS
        if self.phase == PHASE_GREETING:
            if self.is_over(self.session.command_since_ns + MAGIC_TIMEOUT_NS, MAGIC_TIMEOUT_NS, now_ns):
                return self.disconnect("no protocol magic")
        elif self.phase == PHASE_HANDSHAKE:
            if self.is_over(self.handshake_deadline_ns, HANDSHAKE_TIMEOUT_NS, now_ns):
                local_address = format_address(self.transport.get_extra_info("sockname"))
                return self.fail_handshake(f"read tcp {local_address}->{self.remote_address}: i/o timeout")
        else:
            if self.is_awaited() and self.is_over(self.session.command_since_ns + 2 * patience_ns, patience_ns, now_ns):
                return self.disconnect("i/o timeout")
            if self.write_paused and self.is_over(self.write_paused_since_ns + patience_ns, patience_ns, now_ns):
                return self.disconnect("write timeout")
            if self.received_ns and self.is_over(self.received_ns + STALLED_NS, STALLED_NS, now_ns):
                if self.must_give_memory(now_ns):
                    return self.disconnect("a command does not go on, and memory is short: raise --max-memory")
            if self.session.heartbeat_ns and now_ns >= self.next_heartbeat_ns:
                self.beat(now_ns)
        return self.rearm()

    cdef int beat(self, int64_t now_ns) except -1:
        """Send a heartbeat ahead of all waiting answers: it says that the connection is alive, not the disk."""
        self.input.trim()
        write_frame(self.output, FRAME_RESPONSE, HEARTBEAT, HEARTBEAT_SIZE)
        self.session.answers.want_flush()
        self.next_heartbeat_ns += self.session.heartbeat_ns
        if self.next_heartbeat_ns <= now_ns:
            self.next_heartbeat_ns = now_ns + self.session.heartbeat_ns  # a single one, however many were missed
        return 0

    cdef bint must_give_memory(self, int64_t now_ns) except -1:
        """Whether a command for which no bytes come must give its buffer back. If not, look again later."""
        self.received_ns = now_ns
        if self.registry.memory.account.level < MEMORY_SPILL:
            return False
        REFUSED["stalled_command"] += 1
        return True

    @property
    def common_name(self):
        """The common name in the client's certificate; '' without one."""
        return self.secure.common_name if self.tls else ""
