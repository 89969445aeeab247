"""The connection implements all methods; a session calls no others of its connection."""

import logging

from nsqfast._ext.core.clock cimport monotonic_ns
from nsqfast._ext.core.limits cimport (
    COSTLY_COUNT_MAX, COSTLY_SIZE, FRAME_RESPONSE, INPUT_SIZE, PENDING_OK_MAX, READ_SIZE_MAX, READ_SIZE_MIN,
)
from nsqfast._ext.core.memory cimport MEMORY_SPILL, account, charge

from nsqfast._ext.protocol.frame import encode
from nsqfast.wire.refusals import REFUSED

log = logging.getLogger("nsqd")


cdef class Host(Client):

    cdef int mark_written(self) except -1:
        """There is output; it is sent at the end of the turn."""
        if not self.is_written:
            self.is_written = True
            self.registry.want_flush(self)
        return 0

    cdef int charge_bytes(self, int64_t size) except -1:
        """Count so many more bytes for the client's IDENTIFY and for its stream's compressors."""
        charge(&account, size)
        self.charged_size += size
        return 0

    cdef int say(self, int level, str line, bint is_last=False) except -1:
        """Log a line that the peer has caused, unless it has caused too many."""
        if log.isEnabledFor(level):
            if self.lines is None:
                self.lines = LogQuota(self.remote_host)
            note = self.lines.admit(is_last)
            if note is not None:
                log.log(level, "%s%s", line, note)
        return 0

    cdef ReadBuffer expose_input(self):
        """For one read. New memory is slow: once a turn has had enough of it, it is filled little by little."""
        self.input.read_max = READ_SIZE_MAX if self.registry.costly_count <= COSTLY_COUNT_MAX else READ_SIZE_MIN
        return self.input

    cdef int share_turn(self, Py_ssize_t size) except -1:
        """The rest of a large command is read in a later turn if this one has read so much already, from whomever."""
        if self.command_blocked or self.phase >= PHASE_DRAINING or self.input.end - self.input.start <= INPUT_SIZE:
            return 0
        self.registry.costly_count += size // COSTLY_SIZE
        if not self.registry.may_be_costly():
            self.block_for_turn()
            self.choose_reading()
        return 0

    cdef bint may_end(self) noexcept:
        """Whether it may be closed in this turn; to free a large buffer takes as long as to close several."""
        if not self.registry.may_end():
            return False
        self.registry.end_count += self.input.capacity // READ_SIZE_MAX
        return True

    cdef bint watch_buffer(self) noexcept:
        """Note when bytes came for a command that has a large buffer; return whether that is news. Heartbeats say that
        the peer is alive, not that the command will be completed."""
        cdef bint was_watched = self.received_ns != 0
        self.received_ns = 0
        if self.input.capacity > INPUT_SIZE and self.input.start != self.input.end and not self.command_blocked:
            self.received_ns = monotonic_ns()
        return self.received_ns != 0 and not was_watched

    cdef bint is_refused_memory(self, int64_t now_ns) except -1:
        """Whether such a command, for which no bytes come, must give its buffer back. If not, look again later."""
        self.received_ns = now_ns
        if account.level < MEMORY_SPILL:
            return False
        REFUSED["stalled_command"] += 1
        return True

    cdef int greet(self) except -1:
        """The magic was received."""
        raise AssertionError("a Host without greet")

    cdef int keep_time(self, int64_t heartbeat_ns) except -1:
        """Send heartbeats at this interval from now on; 0 = none."""
        raise AssertionError("a Host without keep_time")

    cdef int upgrade_to(self, list upgrades) except -1:
        """Add these adapters to the stream, one by one when all earlier output was sent."""
        raise AssertionError("a Host without upgrade_to")

    cdef int send(self, bytes frame) except -1:
        """Send a whole frame, behind the answers that wait."""
        raise AssertionError("a Host without send")

    cdef int answer_ok(self, uint64_t ticket, str command) except -1:
        """Answer OK to a publish when the ticket's fsync is done; 0 = now."""
        raise AssertionError("a Host without answer_ok")

    cdef int answer_id(self, uint64_t ticket, str command, uint64_t id) except -1:
        """Answer OK and the message's id likewise."""
        if ticket:
            self.await_ticket(ticket, command)
        self.send(encode(FRAME_RESPONSE, b"OK %016x" % id))
        return self.close() if self.pending.size > PENDING_OK_MAX else 0

    cdef int await_ticket(self, uint64_t ticket, str command) except -1:
        """Wait for the ticket's fsync without an OK of its own; its error is the command's."""
        raise AssertionError("a Host without await_ticket")

    cdef int refuse_oks(self, uint64_t count, str error) except -1:
        """Replace the last `count` OKs by the error."""
        raise AssertionError("a Host without refuse_oks")

    cdef int fail(self, object error) except -1:
        """Send a fatal error, then end the connection in order."""
        raise AssertionError("a Host without fail")

    cdef int drain(self) except -1:
        """End in order, without an error."""
        raise AssertionError("a Host without drain")

    cdef int close(self) except -1:
        """Close without an error frame; written output is sent."""
        raise AssertionError("a Host without close")

    cdef int block_for_turn(self) except -1:
        """The part is over: the rest continues in a later turn, behind what other clients asked for before."""
        raise AssertionError("a Host without block_for_turn")

    cdef int choose_reading(self) except -1:
        """Stop reading from the peer, or read on."""
        raise AssertionError("a Host without choose_reading")

    cdef int unblock(self) except -1:
        """The blocked command is not run any more: the connection is ending."""
        raise AssertionError("a Host without unblock")

    cdef int release(self) except -1:
        """Run the command that was blocked, and those behind it."""
        raise AssertionError("a Host without release")

    @property
    def common_name(self):
        """The common name in the client's certificate; '' without one."""
        return self.secure.common_name if self.tls else ""
