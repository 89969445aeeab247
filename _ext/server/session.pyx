"""A command runs when it is whole; until then nothing of it is consumed and it has no effect, except that the topic of
an MPUB exists once its line was received (as in NSQ).

State x command (spec nsqd-tcp §4); what is not listed is the fatal `E_INVALID cannot X in current state`:

    init        IDENTIFY AUTH SUB              PUB MPUB DPUB NOP
    subscribed  RDY FIN REQ TOUCH CLS          PUB MPUB DPUB NOP
    closing     RDY (ignored) FIN REQ TOUCH    PUB MPUB DPUB NOP
"""

import logging

from libc.string cimport memcmp

from nsqfast._ext.broker.channel cimport DONE, EXITING, NOT_IN_FLIGHT, Outcome
from nsqfast._ext.broker.consumer cimport GLOBAL, REGION_LOCAL, ZONE_LOCAL
from nsqfast._ext.broker.topic cimport Topic
from nsqfast._ext.core.budget cimport Budget, begin_short_part, is_spent
from nsqfast._ext.core.clock cimport free_clocks, monotonic_ns, stop_clocks
from nsqfast._ext.core.limits cimport (
    FIN_SIZE, FRAME_ERROR, FRAME_RESPONSE, IDENTITY_SHOWN_MAX, IDENTITY_SIZE_FULL, IDENTITY_SIZE_MAX, INPUT_SIZE,
    LINE_SIZE_MAX, MAGIC_SIZE, MESSAGE_ID_SIZE, STATE_CLOSING, STATE_INIT, STATE_SUBSCRIBED,
)
from nsqfast._ext.core.memory cimport MEMORY_FULL, account
from nsqfast._ext.core.message cimport Delivery, id_from_hex
from nsqfast._ext.protocol.command cimport (
    COMMAND_AUTH, COMMAND_CANCEL_DEFERRED, COMMAND_CLS, COMMAND_DPUB, COMMAND_FIN, COMMAND_IDENTIFY, COMMAND_MPUB,
    COMMAND_NOP, COMMAND_PUB, COMMAND_RDY, COMMAND_REQ, COMMAND_SUB, COMMAND_TOUCH, PARSE_BROKEN, PARSE_MORE, Parse,
    parse_decimal, parse_line,
)
from nsqfast._ext.protocol.frame cimport write_frame, write_message
from nsqfast._ext.server.host cimport PHASE_DRAINING, PHASE_ENDING, PHASE_GREETING
from nsqfast._ext.server.partial_command cimport COSTLY_UNITS, invalid, text

from nsqfast._ext.protocol.frame import encode
from nsqfast.errors import ProtocolError
from nsqfast.wire.identify import identify as read_identity
from nsqfast.wire.names import is_valid_name, quote
from nsqfast.streams import upgrades

assert <int> LINE_SIZE_MAX < <int> INPUT_SIZE, "a line fits into an input buffer of the least size"

cdef int64_t MS = 1000000

cdef enum:
    # A consumer with at least so many in flight ...
    CROWD_MIN = 64
    # ... waits until so many slots are free, or a millisecond.
    FREE_MAX = 128
    # A command is a unit of a part, and one more for each 64 bytes of it.
    UNIT_BITS = 6


cdef class Session(Consumer):
    """A client that speaks V2, on the connection that is its host."""

    def __init__(self, Host host not None):
        settings = host.registry.settings
        self.client = self.host = host
        self.registry = host.registry
        self.input, self.output = host.input, host.output
        self.command = PartialCommand(host)
        self.auth = Auth(host)
        self.publisher = Publisher(self.command, self.auth)
        self.in_flight_queue = None
        self.state = STATE_INIT
        self.timeout_ns = self.registry.settings.msg_timeout_ns
        self.distance = GLOBAL if self.registry.settings.is_topology_aware else ZONE_LOCAL
        self.client_id = self.hostname = self.user_agent = self.topology_zone = self.topology_region = ""
        self.needs_tls = bool(settings.options.tls_required)

    # -- from input to commands ----------------------------------------------------------------------------------------

    cdef int feed(self) except -1:
        """Run the commands that are whole, until the part is over."""
        cdef Budget budget = begin_short_part()
        cdef Host host = self.host
        cdef PartialCommand command = self.command
        cdef Py_ssize_t consumed, units, size = self.input.end - self.input.start
        cdef bint has_run = False
        stop_clocks()
        try:
            while size > 0 and (size >= command.need or host.at_eof) and host.phase < PHASE_ENDING:
                consumed = self.step(self.input.data + self.input.start, size)
                if consumed == 0:
                    break
                has_run = True
                self.input.consume(consumed)
                command.scanned = command.need = 0
                size = self.input.end - self.input.start
                units = 1 + (consumed >> UNIT_BITS) + command.more_units
                command.more_units = 0
                if not host.command_blocked and is_spent(&budget, units) and size > 0:
                    host.block_for_turn()
                if host.command_blocked:
                    break
        finally:
            if has_run:
                host.command_since_ns = monotonic_ns()
            try:
                if self.has_free_slot:
                    self.has_free_slot = False
                    self.refill_window()
            finally:
                free_clocks()
        return 0

    cdef int refill_window(self) except -1:
        """Slots came free; fill them now, or after a short delay together with more of them."""
        if not self.is_crowded():
            return self.take_more()
        if not self.is_put_off:
            self.is_put_off = True
            self.registry.put_off(self)
        return 0

    cdef bint is_crowded(self) noexcept:
        """Whether it has enough to do: a few more messages would cost both sides a system call each."""
        return self.in_flight >= CROWD_MIN and self.rdy - self.in_flight < min(self.rdy // 8, FREE_MAX)

    cdef int take_more(self) except -1:
        self.is_put_off = False
        if self.channel is not None:
            if self.wants():
                self.channel.add_ready(self)
            self.channel.pump()
        return 0

    cdef Py_ssize_t step(self, const char *data, Py_ssize_t size) except -1:
        """Return the bytes consumed; 0 = the command is not whole yet."""
        cdef Line line
        cdef Parse outcome
        cdef uint64_t id = 0
        if self.host.phase == PHASE_GREETING:
            return self.read_magic(data, size)
        if (size >= FIN_SIZE and data[FIN_SIZE - 1] == c"\n" and self.channel is not None
                and memcmp(data, b"FIN ", 4) == 0 and id_from_hex(data + 4, &id)
                and self.channel.finish(self, id) == DONE):
            self.finish_count += 1
            self.has_free_slot = True
            return FIN_SIZE
        outcome = parse_line(data, size, self.command.scanned, &line)
        if outcome == PARSE_MORE:
            self.command.scanned = size
            return 0
        if outcome == PARSE_BROKEN:
            # NSQ closes without an error; shut() spares the peer the reset that Go causes.
            self.host.say(logging.ERROR, f"client({self.host.remote_address}) - command line too long")
            self.host.drain()
            return 0
        return self.run(data, size, &line)

    cdef Py_ssize_t read_magic(self, const char *data, Py_ssize_t size) except -1:
        if size < MAGIC_SIZE or self.waits_to_be_costly():
            return 0
        if memcmp(data, b"  V2", MAGIC_SIZE) != 0:
            raise ProtocolError("E_BAD_PROTOCOL")
        self.host.say(logging.INFO, f"CLIENT({self.host.remote_address}): desired protocol magic '  V2'")
        self.host.greet()
        return MAGIC_SIZE

    cdef Py_ssize_t run(self, const char *data, Py_ssize_t size, Line *line) except -1:
        if self.needs_tls and not self.host.tls and line.kind != COMMAND_IDENTIFY:
            raise invalid(f"cannot {text(line.name, line.name_size)} in current state (TLS required)")
        if line.kind == COMMAND_FIN:
            return self.fin(line)
        if line.kind == COMMAND_PUB:
            return self.publisher.pub(data, size, line)
        if line.kind == COMMAND_MPUB:
            return self.publisher.mpub(data, size, line)
        if line.kind == COMMAND_RDY:
            return self.ready(line)
        if line.kind == COMMAND_REQ:
            return self.req(line)
        if line.kind == COMMAND_TOUCH:
            return self.touch(line)
        if line.kind == COMMAND_DPUB:
            return self.publisher.dpub(data, size, line)
        if line.kind == COMMAND_NOP:
            return line.size
        if self.publisher.tells_ids and line.kind >= COMMAND_CANCEL_DEFERRED:
            return self.publisher.end_deferral(line)
        if self.waits_to_be_costly():
            return 0
        self.command.more_units = COSTLY_UNITS
        if line.kind == COMMAND_SUB:
            return self.sub(line)
        if line.kind == COMMAND_IDENTIFY:
            return self.identify(data, size, line)
        if line.kind == COMMAND_CLS:
            return self.cls(line)
        if line.kind == COMMAND_AUTH:
            return self.run_auth(data, size, line)
        raise invalid(f"invalid command {text(line.name, line.name_size)}")

    cdef bint waits_to_be_costly(self) except -1:
        """Whether to wait because this turn already had as many of these commands as it may."""
        if self.registry.may_be_costly():
            return False
        self.host.block_for_turn()
        return True

    # -- subscribing ---------------------------------------------------------------------------------------------------

    cdef Py_ssize_t sub(self, Line *line) except -1:
        cdef Topic topic
        cdef Channel channel
        cdef int64_t limit = self.registry.settings.max_channel_consumers
        if self.state != STATE_INIT:
            raise wrong_state("SUB")
        if self.host.heartbeat_ns == 0:
            raise invalid("cannot SUB with heartbeats disabled")
        if line.parameter_count < 2:
            raise invalid("SUB insufficient number of parameters")
        self.publisher.check_topic(line, "SUB", "")
        name = text(line.parameter[1], line.parameter_size[1])
        if not is_valid_name(name):
            raw = line.parameter[1][:line.parameter_size[1]]
            raise ProtocolError("E_BAD_CHANNEL", f"SUB channel name {quote(raw)} is not valid")
        topic_name = text(line.parameter[0], line.parameter_size[0])
        if self.auth.is_required and not self.auth.may("SUB", topic_name, name):
            return 0
        self.registry.admit(topic_name, name)
        topic = self.registry.topic(topic_name)
        channel = topic.channel(name)
        if limit and len(channel.members) >= limit:
            raise ProtocolError(
                "E_SUB_FAILED", f"SUB failed consumers for {topic.name}:{name} exceeds limit of {limit}")
        if channel.exiting or topic.exiting:
            raise ProtocolError("E_SUB_FAILED", "SUB failed exiting")
        channel.join(self)
        self.channel = channel
        self.state = STATE_SUBSCRIBED
        self.auth.watch(topic_name, name)
        self.respond(b"OK")
        return line.size

    cdef Py_ssize_t ready(self, Line *line) except -1:
        cdef uint64_t count = 1
        cdef int64_t limit = self.registry.settings.max_rdy_count
        if self.state == STATE_CLOSING:
            return line.size
        if self.state != STATE_SUBSCRIBED:
            raise wrong_state("RDY")
        if line.parameter_count and not parse_decimal(line.parameter[0], line.parameter_size[0], &count):
            raise invalid(f"RDY could not parse count {text(line.parameter[0], line.parameter_size[0])}")
        if count > <uint64_t> limit:
            raise invalid(f"RDY count {<int64_t> count} out of range 0-{limit}")
        self.rdy = <int64_t> count
        self.has_free_slot = True
        return line.size

    cdef Py_ssize_t fin(self, Line *line) except -1:
        cdef uint64_t id = 0
        cdef Outcome outcome = NOT_IN_FLIGHT
        self.check_message_command(line, "FIN", 1)
        if id_from_hex(line.parameter[0], &id):
            outcome = self.channel.finish(self, id)
        if outcome != DONE:
            return self.refuse_message_command(line, "FIN", outcome)
        self.finish_count += 1
        self.has_free_slot = True
        return line.size

    cdef Py_ssize_t req(self, Line *line) except -1:
        cdef uint64_t id = 0, delay_ms = 0
        cdef Outcome outcome = NOT_IN_FLIGHT
        self.check_message_command(line, "REQ", 2)
        if not parse_decimal(line.parameter[1], line.parameter_size[1], &delay_ms):
            raise invalid(f"REQ could not parse timeout {text(line.parameter[1], line.parameter_size[1])}")
        if not self.registry.may_store():
            return self.host.block_for_turn()
        if id_from_hex(line.parameter[0], &id):
            outcome = self.channel.requeue(self, id, self.clamp(delay_ms))
        if outcome != DONE:
            return self.refuse_message_command(line, "REQ", outcome)
        self.requeue_count += 1
        self.has_free_slot = True
        return line.size

    cdef int64_t clamp(self, uint64_t delay_ms) except -1:
        """Return ns; as in Go, a product that overflows into the negative means no delay."""
        cdef int64_t limit_ns = self.registry.settings.max_req_timeout_ns
        cdef int64_t delay_ns = <int64_t> (delay_ms * <uint64_t> MS)
        if 0 <= delay_ns <= limit_ns:
            return delay_ns
        self.host.say(logging.INFO, f"PROTOCOL(V2): [{self.host.remote_address}] REQ timeout {delay_ns} out of range "
                                    f"0-{limit_ns}, setting to the nearest")
        return 0 if delay_ns < 0 else limit_ns

    cdef Py_ssize_t touch(self, Line *line) except -1:
        cdef uint64_t id = 0
        cdef Outcome outcome = NOT_IN_FLIGHT
        self.check_message_command(line, "TOUCH", 1)
        if id_from_hex(line.parameter[0], &id):
            outcome = self.channel.touch(self, id, self.registry.settings.max_msg_timeout_ns)
        if outcome != DONE:
            return self.refuse_message_command(line, "TOUCH", outcome)
        return line.size

    cdef int check_message_command(self, Line *line, str command, int parameters) except -1:
        if self.state != STATE_SUBSCRIBED and self.state != STATE_CLOSING:
            raise wrong_state(command)
        if line.parameter_count < parameters:
            raise invalid(f"{command} insufficient number of params")
        if line.parameter_size[0] != MESSAGE_ID_SIZE:
            raise invalid("invalid message ID")
        return 0

    cdef Py_ssize_t refuse_message_command(self, Line *line, str command, Outcome outcome) except -1:
        """Send the only errors that do not end the connection."""
        reason = {NOT_IN_FLIGHT: b"ID not in flight", EXITING: b"exiting"}.get(outcome, b"client does not own message")
        name = command.encode()
        cdef bytes error = b"E_%s_FAILED %s %s failed %s" % (name, name, line.parameter[0][:MESSAGE_ID_SIZE], reason)
        self.host.say(logging.ERROR, f"[{self.host.remote_address}] - {error.decode('utf-8', 'backslashreplace')}")
        write_frame(self.output, FRAME_ERROR, error, len(error))
        self.host.mark_written()
        return line.size

    cdef Py_ssize_t cls(self, Line *line) except -1:
        if self.state != STATE_SUBSCRIBED:
            raise wrong_state("CLS")
        self.rdy = 0
        self.state = STATE_CLOSING
        self.respond(b"CLOSE_WAIT")
        return line.size

    # -- once per connection -------------------------------------------------------------------------------------------

    cdef bytes whole_body(self, const char *data, Py_ssize_t size, Line *line, str command):
        """Return the body of IDENTIFY or AUTH; None = not received yet."""
        cdef int64_t size_max = min(self.registry.settings.max_body_size, IDENTITY_SIZE_MAX)
        cdef Py_ssize_t body_size = self.command.sized(data, size, line, command, "failed to read body size", size_max)
        if body_size < 0:
            return None
        if size < line.size + 4 + body_size:
            self.command.more(line.size + 4 + body_size, "E_BAD_BODY", f"{command} failed to read body")
            return None
        return data[line.size + 4:line.size + 4 + body_size]

    cdef Py_ssize_t identify(self, const char *data, Py_ssize_t size, Line *line) except -1:
        if self.state != STATE_INIT:
            raise wrong_state("IDENTIFY")
        body = self.whole_body(data, size, line, "IDENTIFY")
        if body is None:
            return 0
        if account.level >= MEMORY_FULL and len(body) > IDENTITY_SIZE_FULL:
            raise ProtocolError("E_INVALID", "no memory left for a command of this size")
        identity = read_identity(body, self.registry.settings.options)
        shown = body[:IDENTITY_SHOWN_MAX].decode("utf-8", "backslashreplace")
        self.host.say(logging.INFO, f"[{self.host.remote_address}] IDENTIFY: {shown}")
        self.client_id, self.hostname, self.user_agent = identity.client_id, identity.hostname, identity.user_agent
        self.topology_zone, self.topology_region = identity.topology_zone, identity.topology_region
        self.publisher.tells_ids = identity.tells_ids
        self.locate()
        self.sample_percent, self.timeout_ns = identity.sample_rate, identity.msg_timeout_ns
        self.host.keep_time(identity.heartbeat_ns)
        # Each of them once: a layer that another one replaced would stay in memory.
        identity.tls &= not self.host.tls
        if self.deflate or self.snappy:
            identity.deflate = identity.snappy = False
        self.respond(identity.answer(self.registry.settings.options))
        self.deflate = self.deflate or identity.deflate
        self.snappy = self.snappy or identity.snappy
        layers = upgrades(identity, self.registry.tls_context)
        self.host.charge_bytes(len(body) - self.identity_size + sum([each.size for each in layers]))
        self.identity_size = len(body)
        if layers:
            self.host.upgrade_to(layers)
        return size if layers else line.size + 4 + len(body)

    cdef int locate(self) except -1:
        """Set the distance to the client; the first IDENTIFY does so for good (spec nsqd-tcp §14)."""
        options = self.registry.settings.options
        if self.is_located or not self.registry.settings.is_topology_aware:
            return 0
        self.is_located = True
        if self.topology_zone == options.topology_zone:
            self.distance = ZONE_LOCAL
        elif self.topology_region == options.topology_region:
            self.distance = REGION_LOCAL
        return 0

    cdef Py_ssize_t run_auth(self, const char *data, Py_ssize_t size, Line *line) except -1:
        if self.state != STATE_INIT:
            raise wrong_state("AUTH")
        if line.parameter_count:
            raise invalid("AUTH invalid number of parameters")
        body = self.whole_body(data, size, line, "AUTH")
        if body is None or not self.auth.authenticate(body):
            return 0
        return line.size + 4 + len(body)

    # -- what a channel asks of its consumer ---------------------------------------------------------------------------

    cdef bint wants(self) noexcept:
        return (self.in_flight < self.rdy and self.state == STATE_SUBSCRIBED and not self.host.write_paused
                and self.output.size < self.host.output_size_max and self.host.phase < PHASE_DRAINING)

    cdef int deliver(self, Delivery *delivery) except -1:
        write_message(self.output, delivery.message, delivery.attempts)
        self.message_count += 1
        return self.host.mark_written()

    cdef int disconnect(self) except -1:
        return self.host.close()

    # -- what its connection asks of it --------------------------------------------------------------------------------

    cdef int begin(self) except -1:
        """The peer's address is known."""
        self.client_id = self.hostname = self.host.remote_host
        return 0

    cdef int respond(self, bytes data) except -1:
        """Send a response frame, behind the answers that wait."""
        return self.host.send(encode(FRAME_RESPONSE, data))

    cdef int on_flushed(self) except -1:
        """The output was sent: there may be room for more messages."""
        if self.channel is not None and not self.is_in_ring and self.wants():
            return self.registry.hand_out(self)
        return 0

    cdef int leave(self) except -1:
        """Unsubscribe."""
        if self.channel is not None:
            self.channel.leave(self)
        return 0

    # -- figures -------------------------------------------------------------------------------------------------------

    def pub_counts(self):
        """Successful publishes by topic name."""
        return self.publisher.pub_counts()

    @property
    def grant(self):
        """What an auth server granted; None before AUTH."""
        return self.auth.grant

    @property
    def ready_count(self):
        return self.rdy

    @property
    def in_flight_count(self):
        return self.in_flight

    @property
    def sample_rate(self):
        return self.sample_percent


cdef object wrong_state(str command):
    return ProtocolError("E_INVALID", f"cannot {command} in current state")
