"""The asyncio seam (a BufferedProtocol), and everything about a client that is not a command.

After a fatal error the connection ends in order: gathered output is sent, our side is shut down, and for a moment input
is read and discarded, because closing with unread input would turn the error frame into a reset.

A command that has to wait sets `command_blocked`, consumes nothing and is run again by release(). Meanwhile the
commands behind it wait, input is kept up to a limit, and output is sent as usual. A client that sent more than fits
into a part of a turn is blocked in the same way until its next turn.
"""

import logging

from libc.stdint cimport INT64_MAX, uint64_t

from nsqfast._ext.broker.registry cimport Registry
from nsqfast._ext.core.budget cimport Budget, begin_part, is_spent
from nsqfast._ext.core.clock cimport monotonic_ns, wall_ns
from nsqfast._ext.core.limits cimport (
    DRAIN_NS, FRAME_ERROR, FRAME_RESPONSE, HANDSHAKE_TIMEOUT_NS, HEARTBEAT_DEFAULT_NS, INPUT_SIZE, MAGIC_TIMEOUT_NS,
    OUTPUT_SIZE_MAX, PACKED_SIZE_MAX, PENDING_OK_MAX, STALLED_NS, TRANSPORT_HIGH_WATER,
)
from nsqfast._ext.core.memory cimport account, charge
from nsqfast._ext.protocol.buffer cimport WriteBuffer
from nsqfast._ext.protocol.frame cimport HEARTBEAT, HEARTBEAT_SIZE, write_frame, write_ok
from nsqfast._ext.server.host cimport (
    PHASE_CLOSED, PHASE_DRAINING, PHASE_ENDING, PHASE_GREETING, PHASE_HANDSHAKE, PHASE_LOST, PHASE_OPEN,
)

from nsqfast._ext.protocol.frame import encode
from nsqfast.errors import ProtocolError
from nsqfast.wire.gotext import format_address, format_peer_host
from nsqfast.streams.adapter import Stacked, StreamError

log = logging.getLogger("nsqd")

cdef int64_t SECOND_NS = 1000000000
cdef int64_t TURN_NS = 1000000   # enough for the loop to read once more

cdef enum:
    # Units that an unpacked piece counts for: the clock is read after each.
    PIECE_UNITS = 64

cdef bytes OK = encode(FRAME_RESPONSE, b"OK")


cdef class Connection(Host):
    """Created for each accepted socket; `registry` outlives it."""

    def __init__(self, Registry registry not None):
        self.registry = registry
        self.input = ReadBuffer(INPUT_SIZE)
        self.output = WriteBuffer()
        self.output_size_max = OUTPUT_SIZE_MAX
        self.phase = PHASE_GREETING
        self.remote_address = self.remote_host = ""
        self.heartbeat_ns = HEARTBEAT_DEFAULT_NS
        self.pending = PendingAnswers()
        self.adapter = self.upgrades = self.secure = self.pieces = None
        self.session = Session(self)

    # -- the asyncio seam ----------------------------------------------------------------------------------------------

    def connection_made(self, transport):
        self.transport = transport
        transport.set_write_buffer_limits(TRANSPORT_HIGH_WATER)
        peername = transport.get_extra_info("peername")
        self.remote_address, self.remote_host = format_address(peername), format_peer_host(peername)
        self.connect_ts = wall_ns() // SECOND_NS
        self.command_since_ns = monotonic_ns()
        self.next_heartbeat_ns = self.command_since_ns + self.heartbeat_ns
        self.session.begin()
        self.registry.add_client(self)
        self.say(logging.INFO, f"TCP: new client({self.remote_address})")
        self.rearm()

    def get_buffer(self, sizehint):
        return self.expose_input() if self.adapter is None else self.packed

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
        if self.pending.size or self.command_blocked:
            return True  # an answer still waits; on_durable or release ends the connection
        if not (self.phase >= PHASE_DRAINING or self.write_paused or self.registry.may_be_costly()):
            self.block_for_turn()   # many leave at once
            return True
        self.close()
        return self.phase == PHASE_ENDING

    def connection_lost(self, exc):
        self.phase = PHASE_LOST
        self.session.auth.cancel()
        self.charge_bytes(-self.charged_size)
        self.count_unsent(0)
        self.registry.timers.disarm(self)
        if self.registry.may_be_costly():
            self.forget()
        else:
            self.registry.want_turn(self)

    cdef int forget(self) except -1:
        """Remove every reference that others have to this client."""
        self.phase = PHASE_CLOSED
        self.leave()
        self.session = None     # it refers to this connection
        self.registry.remove_client(self)
        self.say(logging.INFO, f"PROTOCOL(V2): [{self.remote_address}] exiting ioloop", is_last=True)
        return 0

    def pause_writing(self):
        self.write_paused = True
        self.write_paused_since_ns = monotonic_ns()
        self.count_unsent(self.transport.get_write_buffer_size())
        self.rearm()

    def resume_writing(self):
        self.write_paused = False
        self.count_unsent(0)
        self.flush()
        self.choose_reading()
        if self.is_stopped:
            self.is_stopped = False
            self.registry.want_turn(self)

    # -- in ------------------------------------------------------------------------------------------------------------

    cdef int unpack(self) except -1:
        """Unpack piece by piece: however much a few bytes expand to, no more is kept than a command may have, and when
        the part is over the rest stays packed until the next turn.
        """
        cdef Budget budget = begin_part()
        try:
            while not self.command_blocked:
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
                    if is_spent(&budget, PIECE_UNITS) and not self.command_blocked:
                        self.block_for_turn()
                    continue
                self.pieces = None
                if self.adapter.at_end and not self.at_eof:
                    self.eof_received()
        except StreamError as error:
            if self.phase == PHASE_HANDSHAKE:
                return self.fail_handshake(str(error))
            return self.drop(str(error))
        return self.choose_reading()

    cdef int parse(self) except -1:
        # Input before the peer knows our answer to IDENTIFY is discarded, too; keeping it would have no limit.
        if self.phase >= PHASE_DRAINING or self.upgrades is not None:
            self.input.consume(self.input.end - self.input.start)
            return 0
        try:
            if not self.command_blocked:
                self.session.feed()
        except ProtocolError as error:
            self.fail(error)
        except OSError as error:
            # A queue could not be opened: too many files, a broken disk.
            self.fail(ProtocolError("E_INVALID", error.strerror or str(error)))
        if not (self.command_blocked or self.phase >= PHASE_DRAINING or self.input.claim_room()):
            self.fail(ProtocolError("E_INVALID", "no memory left for a command of this size"))
        if self.write_paused or self.command_blocked:
            self.choose_reading()
        if self.watch_buffer():
            self.rearm()
        return self.watch_command() if self.heartbeat_ns == 0 else 0

    cdef int watch_command(self) except -1:
        """Without heartbeats no input is required, but a command that has begun must be completed in time."""
        if self.input.start == self.input.end:
            self.is_begun = False
        elif not self.is_begun:
            self.is_begun = True
            self.command_since_ns = monotonic_ns()
            self.rearm()
        return 0

    cdef int choose_reading(self) except -1:
        """Stop reading from a peer that does not read its answers, and from one that sends much while it is blocked."""
        cdef bint is_full = False
        if self.phase >= PHASE_ENDING:
            return 0
        if self.write_paused:
            is_full = self.read_paused or self.output.size > OUTPUT_SIZE_MAX
        if self.command_blocked and not is_full:
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

    cdef int block_for_turn(self) except -1:
        self.command_blocked = True
        return self.registry.want_turn(self)

    cdef int unblock(self) except -1:
        self.command_blocked = False
        return self.choose_reading()

    cdef int go_on(self) except -1:
        if self.phase == PHASE_LOST:
            return self.forget()
        if self.phase == PHASE_ENDING:
            return self.end()
        if self.phase >= PHASE_DRAINING:
            return self.unblock()
        if self.write_paused and self.output.size > OUTPUT_SIZE_MAX:
            self.is_stopped = True
            return 0
        return self.release()

    cdef int release(self) except -1:
        cdef bint at_eof = self.at_eof
        self.command_blocked = self.at_eof = False  # eof is handled only after all input was unpacked
        self.command_since_ns = monotonic_ns()
        self.parse()
        if self.adapter is not None:
            self.unpack()
        self.at_eof = self.at_eof or at_eof
        if self.at_eof and not self.command_blocked:
            self.eof_received()
            return 0
        self.choose_reading()
        return self.rearm()

    cdef int leave(self) except -1:
        """Unsubscribe."""
        return self.session.leave() if self.session is not None else 0

    cdef int count_unsent(self, int64_t size) except -1:
        """Count what the transport buffers for a peer that does not read."""
        charge(&account, size - self.unsent_size)
        self.unsent_size = size
        return 0

    # -- out -----------------------------------------------------------------------------------------------------------

    cdef int flush(self) except -1:
        self.is_written = False
        if self.write_paused or self.phase == PHASE_HANDSHAKE or self.phase >= PHASE_ENDING:
            return 0
        if self.output.size:
            self.registry.written_size += self.output.size
            data = self.output.take()
            self.transport.write(data if self.adapter is None else self.adapter.pack(data))
        if self.upgrades is not None and self.pending.size == 0:
            self.upgrade()
        return self.session.on_flushed()

    cdef int send(self, bytes frame) except -1:
        if self.pending.size:
            return self.pending.add_frame(frame)
        self.output.append(frame, len(frame))
        return self.mark_written()

    cdef int answer_ok(self, uint64_t ticket, str command) except -1:
        if ticket == 0 and self.pending.size == 0:
            write_ok(self.output)
            return self.mark_written()
        if self.pending.size == 0:
            self.registry.wait_durable(self)
        self.pending.add_ok(ticket, command)
        if self.pending.size > PENDING_OK_MAX:
            self.close()
        return 0

    cdef int await_ticket(self, uint64_t ticket, str command) except -1:
        if self.pending.size == 0:
            self.registry.wait_durable(self)
        return self.pending.add_ticket(ticket, command)

    cdef int refuse_oks(self, uint64_t count, str error) except -1:
        return self.pending.refuse_oks(count, error)

    cdef int on_durable(self, uint64_t done_ticket, str error) except -1:
        cdef list entry
        if self.session is not None:
            self.session.publisher.on_durable(done_ticket, error)
        entry = self.pending.take_done(done_ticket)
        while entry is not None:
            _, count, command, frame = entry
            error = error or (frame if count else None)
            if error is not None and (count or frame is None):
                self.pending.clear()
                self.registry.done_waiting(self)
                return self.fail(ProtocolError(f"E_{command}_FAILED", f"{command} failed {error}"))
            data = OK * count if frame is None else frame
            self.output.append(data, len(data))
            self.mark_written()
            entry = self.pending.take_done(done_ticket)
        if self.pending.size == 0:
            self.registry.done_waiting(self)
            if self.phase == PHASE_DRAINING:
                self.shut()
            elif self.at_eof and not self.command_blocked:
                self.close()
        return 0

    # -- layers of the stream ------------------------------------------------------------------------------------------

    cdef int upgrade_to(self, list upgrades) except -1:
        self.upgrades = upgrades
        return 0

    cdef int upgrade(self) except -1:
        """Add the next adapter. All earlier output was sent; the OK is the first to be packed."""
        layer = self.upgrades.pop(0)
        self.adapter = layer if self.secure is None else Stacked(self.secure, layer)
        if not self.upgrades:
            self.upgrades = None
        if self.packed is None:
            self.packed = ReadBuffer(INPUT_SIZE)
        self.input.consume(self.input.end - self.input.start)
        if not layer.is_ready:
            self.secure = layer
            return self.start_handshake()
        self.output_size_max = PACKED_SIZE_MAX
        write_ok(self.output)
        return self.mark_written()

    cdef int start_handshake(self) except -1:
        self.say(logging.INFO, f"PROTOCOL(V2): [{self.remote_address}] upgrading connection to TLS")
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
        self.keep_time(self.heartbeat_ns)
        write_ok(self.output)
        return self.mark_written()

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
        # While a disk refuses publishes, the health check reports that once a minute.
        is_refused = error.code.endswith("PUB_FAILED") and self.registry.health() != "OK"
        self.say(logging.INFO if is_refused else logging.ERROR, f"[{self.remote_address}] - {error}")
        if self.phase >= PHASE_ENDING:
            return 0
        self.phase = PHASE_DRAINING
        self.upgrades = None    # nothing is packed behind an error
        self.leave()
        self.send(encode(FRAME_ERROR, str(error).encode("utf-8", "surrogateescape")))
        if self.pending.size == 0:
            self.shut()
        return 0

    cdef int drain(self) except -1:
        self.phase = PHASE_DRAINING
        self.leave()
        if self.pending.size == 0:  # else on_durable does it after the last answer
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
        self.leave()
        return self.end()

    cdef int end(self) except -1:
        """Close the transport, in a later turn if many are closed at once."""
        if not self.may_end():
            return self.registry.want_turn(self)
        self.phase = PHASE_CLOSED
        self.transport.close()
        return 0

    def abort(self):
        """End the connection now."""
        if self.phase != PHASE_LOST:
            self.phase = PHASE_CLOSED
        if self.transport is not None:
            self.transport.abort()

    # -- time ----------------------------------------------------------------------------------------------------------

    cdef int greet(self) except -1:
        self.phase = PHASE_OPEN
        return self.keep_time(self.heartbeat_ns)

    cdef int keep_time(self, int64_t heartbeat_ns) except -1:
        self.heartbeat_ns = heartbeat_ns
        self.command_since_ns = monotonic_ns()
        self.next_heartbeat_ns = self.command_since_ns + heartbeat_ns
        return self.rearm()

    cdef int64_t deadline(self) noexcept:
        """The next time at which something must be checked; 0 = none."""
        cdef int64_t deadline_ns = self.next_heartbeat_ns if self.heartbeat_ns else INT64_MAX
        cdef int64_t patience_ns = self.heartbeat_ns or HEARTBEAT_DEFAULT_NS
        if self.phase == PHASE_GREETING:
            return max(self.command_since_ns + MAGIC_TIMEOUT_NS, self.grace_until_ns)
        if self.phase == PHASE_HANDSHAKE:
            return max(self.handshake_deadline_ns, self.grace_until_ns)
        if self.is_awaited():
            deadline_ns = min(deadline_ns, max(self.command_since_ns + 2 * patience_ns, self.grace_until_ns))
        if self.write_paused:
            deadline_ns = min(deadline_ns, max(self.write_paused_since_ns + patience_ns, self.grace_until_ns))
        if self.received_ns:
            deadline_ns = min(deadline_ns, max(self.received_ns + STALLED_NS, self.grace_until_ns))
        return 0 if deadline_ns == INT64_MAX else deadline_ns

    cdef bint is_awaited(self) noexcept:
        """Whether the client must send something, or the rest of it, in time."""
        return not self.command_blocked and (self.heartbeat_ns != 0 or self.is_begun)

    cdef bint is_over(self, int64_t limit_ns, int64_t allowed_ns, int64_t now_ns) noexcept:
        """Whether nothing came until the limit, nor in the grace period behind it.

        Timers may run before sockets are read, so input that already waits is read first. A loop that was late by some
        time waits for as long again, up to `allowed_ns`, since the peer may have been stopped with it.
        """
        if now_ns >= limit_ns >= self.grace_until_ns:
            self.grace_until_ns = now_ns + max(TURN_NS, min(now_ns - limit_ns, allowed_ns))
        return now_ns >= max(limit_ns, self.grace_until_ns)

    cdef int rearm(self) except -1:
        cdef int64_t deadline_ns = self.deadline()
        if self.phase >= PHASE_DRAINING:
            return 0
        if deadline_ns == 0:
            return self.registry.timers.disarm(self)
        return self.registry.timers.arm(self, deadline_ns)

    cdef int on_deadline(self, int64_t now_ns) except -1:
        cdef int64_t patience_ns = self.heartbeat_ns or HEARTBEAT_DEFAULT_NS
        if self.phase == PHASE_DRAINING:
            self.abort()
            return 0
        if self.phase == PHASE_GREETING:
            if self.is_over(self.command_since_ns + MAGIC_TIMEOUT_NS, MAGIC_TIMEOUT_NS, now_ns):
                return self.drop("no protocol magic")
        elif self.phase == PHASE_HANDSHAKE:
            if self.is_over(self.handshake_deadline_ns, HANDSHAKE_TIMEOUT_NS, now_ns):
                local_address = format_address(self.transport.get_extra_info("sockname"))
                return self.fail_handshake(f"read tcp {local_address}->{self.remote_address}: i/o timeout")
        else:
            if self.is_awaited() and self.is_over(self.command_since_ns + 2 * patience_ns, patience_ns, now_ns):
                return self.drop("i/o timeout")
            if self.write_paused and self.is_over(self.write_paused_since_ns + patience_ns, patience_ns, now_ns):
                return self.drop("write timeout")
            if self.received_ns and self.is_over(self.received_ns + STALLED_NS, STALLED_NS, now_ns):
                if self.is_refused_memory(now_ns):
                    return self.drop("a command does not go on, and memory is short: raise --max-memory")
            if self.heartbeat_ns and now_ns >= self.next_heartbeat_ns:
                self.beat(now_ns)
        return self.rearm()

    cdef int beat(self, int64_t now_ns) except -1:
        """Send a heartbeat ahead of all waiting answers: it says that the connection is alive, not the disk."""
        self.input.trim()
        write_frame(self.output, FRAME_RESPONSE, HEARTBEAT, HEARTBEAT_SIZE)
        self.mark_written()
        self.next_heartbeat_ns += self.heartbeat_ns
        if self.next_heartbeat_ns <= now_ns:
            self.next_heartbeat_ns = now_ns + self.heartbeat_ns  # a single one, however many were missed
        return 0

    cdef int drop(self, str reason) except -1:
        self.say(logging.ERROR, f"client({self.remote_address}) - {reason}")
        self.leave()
        self.abort()
        return 0
