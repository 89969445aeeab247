"""A command runs when it is whole; until then nothing of it is consumed and it has no effect, except that the topic of
an MPUB exists once its line was received (as in NSQ). Bodies are read from the input buffer in place.

State x command (spec nsqd-tcp §4); what is not listed is the fatal `E_INVALID cannot X in current state`:

    init        IDENTIFY AUTH SUB                          PUB MPUB DPUB NOP
    subscribed  RDY FIN REQ REJ TOUCH DEATHS CLS           PUB MPUB DPUB NOP
    closing     RDY (ignored) FIN REQ REJ TOUCH DEATHS     PUB MPUB DPUB NOP

A command that has to wait sets `is_blocked`, consumes nothing and is run again by the next feed().
"""

import logging

cimport cython
from libc.stdint cimport int32_t
from libc.string cimport memcmp

from nsqfast._ext.broker.channel cimport DONE, Outcome
from nsqfast._ext.broker.consumer cimport GLOBAL, ZONE_LOCAL, distance_to
from nsqfast._ext.broker.dead_letter_topic cimport find_dead_letters
from nsqfast._ext.broker.mpub_bodies cimport log_pieces, skip_bodies
from nsqfast._ext.broker.topic cimport SLICE_MAX
from nsqfast._ext.core.budget cimport Budget, begin_part, begin_short_part, is_spent
from nsqfast._ext.core.limits cimport (
    DEATHS_COUNT_MAX, ERROR_SIZE_MAX, FIN_SIZE, FRAME_RESPONSE, HEARTBEAT_DEFAULT_NS, IDENTITY_SHOWN_MAX,
    IDENTITY_SIZE_FULL, IDENTITY_SIZE_MAX, INPUT_SIZE, LINE_SIZE_MAX, MESSAGE_ID_SIZE, OUTPUT_SIZE_MAX, PENDING_OK_MAX,
    STATE_CLOSING, STATE_INIT, STATE_SUBSCRIBED, WHOLE_MAX,
)
from nsqfast._ext.core.memory cimport MEMORY_FULL, charge
from nsqfast._ext.core.message cimport Delivery, get_be32, id_from_hex
from nsqfast._ext.protocol.v2 cimport (
    COMMAND_AUTH, COMMAND_CANCEL_DEFERRED, COMMAND_CLS, COMMAND_DEATHS, COMMAND_DPUB, COMMAND_FIN, COMMAND_IDENTIFY,
    COMMAND_MPUB, COMMAND_NOP, COMMAND_PUB, COMMAND_RDY, COMMAND_REJ, COMMAND_REQ, COMMAND_RUN_DEFERRED, COMMAND_SUB,
    COMMAND_TOUCH, PARSE_BROKEN, PARSE_MORE, Parse, parse_decimal, parse_line, write_message,
)
from nsqfast._ext.server.answers cimport invalid, publish_failed, text, wrong_state

from nsqfast.errors import ProtocolError
from nsqfast.streams import upgrades
from nsqfast.wire.identify import identify as read_identity
from nsqfast.wire.names import is_valid_name, quote
from nsqfast.wire.refusals import NotTakenError

assert <int> LINE_SIZE_MAX < <int> INPUT_SIZE, "a line fits into an input buffer of the least size"

log = logging.getLogger("nsqd")

cdef int64_t MS = 1000000
# Why a broker refuses that is being emptied; what clients make of it is to try another one.
cdef object DRAINING = NotTakenError("draining", "draining")

cdef enum:
    # A consumer with at least so many in flight ...
    CROWD_MIN = 64
    # ... waits until so many slots are free, or a millisecond.
    FREE_MAX = 128
    # A command is a unit of a part, and one more for each 64 bytes of it.
    UNIT_BITS = 6
    # Units of what may take as long as a part by itself: the clock is read after each.
    COSTLY_UNITS = 64
    # Units for looking up another topic than that of the last command.
    TOPIC_UNITS = 4


@cython.final
cdef class Session(Consumer):
    """One client that speaks V2: bytes of `input` become commands, their answers stand in `output`."""

    def __init__(self, Registry registry not None, Client client not None):
        self.registry = registry
        self.clock = registry.timers.clock
        self.client = client
        self.input, self.output = ReadBuffer(INPUT_SIZE, registry.memory), WriteBuffer()
        self.answers = Answers(registry, client, self.output)
        self.auth = Auth(registry, client)
        self.in_flight_queue = None
        self.is_writable = True
        self.heartbeat_ns = HEARTBEAT_DEFAULT_NS
        self.output_size_max = OUTPUT_SIZE_MAX
        self.state = STATE_INIT
        self.timeout_ns = registry.settings.msg_timeout_ns
        self.distance = GLOBAL if registry.settings.is_topology_aware else ZONE_LOCAL
        self.remote_address = self.remote_host = ""
        self.client_id = self.hostname = self.user_agent = self.topology_zone = self.topology_region = ""
        self.needs_tls = bool(registry.settings.options.tls_required)

    # -- what its connection asks of it --------------------------------------------------------------------------------

    cdef int begin(self, str remote_address, str remote_host) except -1:
        """The peer is known."""
        self.remote_address = remote_address
        self.remote_host = self.client_id = self.hostname = remote_host
        return 0

    cdef int feed(self, bint at_eof) except -1:
        """Run the commands that are whole, until the part is over. ProtocolError ends the connection; so do
        `is_broken`, without an error, and too many answers that wait."""
        cdef Budget budget = begin_short_part()
        cdef Py_ssize_t consumed, units, size = self.input.end - self.input.start
        cdef bint has_run = False
        if self.auth.error is not None:
            raise self.auth.error
        self.at_eof = at_eof
        self.clock.stop()
        try:
            while size > 0 and (size >= self.need or at_eof) and self.answers.waiting_count <= PENDING_OK_MAX:
                consumed = self.step(self.input.data + self.input.start, size)
                if consumed == 0:
                    break
                has_run = True
                self.input.consume(consumed)
                self.scanned = self.need = 0
                size = self.input.end - self.input.start
                units = 1 + (consumed >> UNIT_BITS) + self.more_units
                self.more_units = 0
                if not self.is_blocked and is_spent(&budget, units) and size > 0:
                    self.block_for_turn()
                if self.is_blocked:
                    break
        finally:
            if has_run:
                self.command_since_ns = self.clock.monotonic_ns()
            try:
                if self.has_free_slot:
                    self.has_free_slot = False
                    self.refill_window()
            finally:
                self.clock.go_on()
        return 0

    cdef int block_for_turn(self) except -1:
        """The part is over: the rest continues in a later turn, behind what other clients asked for before."""
        self.is_blocked = True
        return self.registry.turn.want_turn(self.client)

    cdef bint waits_to_be_costly(self) except -1:
        """Whether to wait because this turn already had as many commands that take long as it may."""
        if self.registry.turn.may_be_costly():
            return False
        self.block_for_turn()
        return True

    cdef int say(self, int level, str line, bint is_last=False) except -1:
        """Log a line that the peer has caused, unless it has caused too many."""
        if log.isEnabledFor(level):
            if self.lines is None:
                self.lines = LogQuota(self.remote_host)
            note = self.lines.admit(is_last)
            if note is not None:
                log.log(level, "%s%s", line, note)
        return 0

    cdef int charge_bytes(self, int64_t size) except -1:
        """Count so many more bytes for the client's IDENTIFY, its secret and its stream's compressors."""
        charge(self.registry.memory.account, size)
        self.charged_size += size
        return 0

    cdef int leave(self) except -1:
        """Unsubscribe: no more messages come. A large MPUB that has not gone into the log as a whole is dropped."""
        self.leave_large()
        if self.channel is not None:
            self.channel.leave(self)
            self.channel = None
            self.auth.unwatch()
        return 0

    cdef int on_flushed(self) except -1:
        """The output was sent: there may be room for more messages."""
        if self.channel is not None and not self.is_in_ring and self.wants():
            return self.registry.turn.want_messages(self)
        return 0

    # -- what a channel asks of its consumer ---------------------------------------------------------------------------

    cdef bint wants(self) noexcept:
        return (self.in_flight < self.rdy and self.state == STATE_SUBSCRIBED and self.sub_ticket == 0
                and self.is_writable and self.output.size < self.output_size_max)

    cdef int deliver(self, Delivery *delivery) except -1:
        write_message(self.output, delivery.message, delivery.attempts)
        self.message_count += 1
        return self.answers.want_flush()

    cdef int take_more(self) except -1:
        self.waits_to_refill = False
        if self.channel is not None:
            if self.wants():
                self.channel.add_ready(self)
            self.channel.pump()
        return 0

    cdef int refill_window(self) except -1:
        """Slots came free; fill them now, or after a short delay together with more of them."""
        if not self.is_crowded():
            return self.take_more()
        if not self.waits_to_refill:
            self.waits_to_refill = True
            self.registry.turn.want_messages_later(self)
        return 0

    cdef bint is_crowded(self) noexcept:
        """Whether it has enough to do: a few more messages would cost both sides a system call each."""
        return self.in_flight >= CROWD_MIN and self.rdy - self.in_flight < min(self.rdy // 8, FREE_MAX)

    # -- from input to commands ----------------------------------------------------------------------------------------

    cdef Py_ssize_t step(self, const char *data, Py_ssize_t size) except -1:
        """Return the bytes consumed; 0 = the command is not whole yet."""
        cdef Line line
        cdef Parse outcome
        cdef uint64_t id = 0
        if (size >= FIN_SIZE and data[FIN_SIZE - 1] == c"\n" and self.channel is not None
                and memcmp(data, b"FIN ", 4) == 0 and id_from_hex(data + 4, &id)
                and self.channel.finish(self, id) == DONE):
            self.finish_count += 1
            self.has_free_slot = True
            return FIN_SIZE
        outcome = parse_line(data, size, self.scanned, &line)
        if outcome == PARSE_MORE:
            self.scanned = size
            return 0
        if outcome == PARSE_BROKEN:
            self.say(logging.ERROR, f"client({self.remote_address}) - command line too long")
            self.is_broken = True
            return 0
        return self.run(data, size, &line)

    cdef Py_ssize_t run(self, const char *data, Py_ssize_t size, Line *line) except -1:
        if self.needs_tls and line.kind != COMMAND_IDENTIFY:
            raise invalid(f"cannot {text(line.name, line.name_size)} in current state (TLS required)")
        if line.kind == COMMAND_FIN:
            return self.fin(line)
        if line.kind == COMMAND_PUB:
            return self.pub(data, size, line)
        if line.kind == COMMAND_MPUB:
            return self.mpub(data, size, line)
        if line.kind == COMMAND_RDY:
            return self.ready(line)
        if line.kind == COMMAND_REQ:
            return self.req(line)
        if line.kind == COMMAND_TOUCH:
            return self.touch(line)
        if line.kind == COMMAND_DPUB:
            return self.dpub(data, size, line)
        if line.kind == COMMAND_NOP:
            return line.size
        if self.may_reject and line.kind == COMMAND_REJ:
            return self.rej(line)
        if self.tells_ids and line.kind >= COMMAND_CANCEL_DEFERRED:
            return self.end_deferral(line)
        if self.waits_to_be_costly():
            return 0
        self.more_units = COSTLY_UNITS
        if self.may_reject and line.kind == COMMAND_DEATHS:
            return self.look_up_deaths(data, size, line)
        if line.kind == COMMAND_SUB:
            return self.sub(line)
        if line.kind == COMMAND_IDENTIFY:
            return self.identify(data, size, line)
        if line.kind == COMMAND_CLS:
            return self.cls(line)
        if line.kind == COMMAND_AUTH:
            return self.run_auth(data, size, line)
        raise invalid(f"invalid command {text(line.name, line.name_size)}")

    cdef bint more(self, Py_ssize_t need, str code, str detail) except -1:
        """The command needs so many bytes; if no more can come, raise its error."""
        if self.at_eof:
            raise ProtocolError(code, detail)
        self.need = need
        return True

    cdef Py_ssize_t body_size(self, const char *data, Py_ssize_t size, Line *line, str command, str missing,
                              int64_t size_max) except -2:
        """Return the size field behind the line, in range; -1 = not received yet."""
        cdef int32_t body_size
        if size < line.size + 4:
            self.more(line.size + 4, "E_BAD_BODY", f"{command} {missing}")
            return -1
        body_size = <int32_t> get_be32(data + line.size)
        if body_size <= 0:
            raise ProtocolError("E_BAD_BODY", f"{command} invalid body size {body_size}")
        if body_size > size_max:
            raise ProtocolError("E_BAD_BODY", f"{command} body too big {body_size} > {size_max}")
        return body_size

    cdef bint is_allowed(self, str command, str topic, str channel) except -1:
        """See Auth.may; if it is blocked, an auth server's answer lets the client go on."""
        self.is_blocked = not self.auth.may(command, topic, channel)
        return not self.is_blocked

    # -- subscribing ---------------------------------------------------------------------------------------------------

    cdef Py_ssize_t sub(self, Line *line) except -1:
        cdef Topic topic
        cdef Channel channel
        cdef int64_t limit = self.registry.settings.max_channel_consumers
        if self.state != STATE_INIT:
            raise wrong_state("SUB")
        if self.heartbeat_ns == 0:
            raise invalid("cannot SUB with heartbeats disabled")
        if line.parameter_count < 2:
            raise invalid("SUB insufficient number of parameters")
        self.check_topic(line, "SUB", "")
        name = text(line.parameter[1], line.parameter_size[1])
        if not is_valid_name(name):
            name = quote(line.parameter[1][:line.parameter_size[1]])
            raise ProtocolError("E_BAD_CHANNEL", f"SUB channel name {name} is not valid")
        topic_name = text(line.parameter[0], line.parameter_size[0])
        if self.auth.is_required and not self.is_allowed("SUB", topic_name, name):
            return 0
        self.registry.topics.admit(topic_name, name)
        topic = self.registry.topics.ensure(topic_name)
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
        self.sub_ticket = self.answers.send_kept("SUB", b"OK")
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
        self.rdy, self.has_free_slot = <int64_t> count, True
        return line.size

    cdef Py_ssize_t fin(self, Line *line) except -1:
        cdef uint64_t id = self.message_id(line, "FIN", 1)
        cdef Outcome outcome = self.channel.finish(self, id)
        if outcome != DONE:
            return self.refuse_message_command(line, "FIN", outcome)
        self.finish_count += 1
        self.has_free_slot = True
        return line.size

    cdef Py_ssize_t req(self, Line *line) except -1:
        cdef uint64_t id = self.message_id(line, "REQ", 2), delay_ms = 0
        cdef Outcome outcome
        if not parse_decimal(line.parameter[1], line.parameter_size[1], &delay_ms):
            raise invalid(f"REQ could not parse timeout {text(line.parameter[1], line.parameter_size[1])}")
        if not self.registry.turn.may_store() or self.channel.must_wait_to_die(id):
            return self.block_for_turn()
        outcome = self.channel.requeue(self, id, self.clamp(delay_ms), self.error_of(line, 2))
        if outcome != DONE:
            return self.refuse_message_command(line, "REQ", outcome)
        self.requeue_count += 1
        self.has_free_slot = True
        return line.size

    cdef Py_ssize_t rej(self, Line *line) except -1:
        cdef uint64_t id = self.message_id(line, "REJ", 1)
        cdef Outcome outcome
        if not self.registry.turn.may_store() or self.channel.store.delays_answers():
            return self.block_for_turn()
        find_dead_letters(self.registry.topics, self.channel)
        outcome = self.channel.reject(self, id, self.error_of(line, 1))
        self.has_free_slot = True
        return line.size if outcome == DONE else self.refuse_message_command(line, "REJ", outcome)

    cdef Py_ssize_t look_up_deaths(self, const char *data, Py_ssize_t size, Line *line) except -1:
        if self.state != STATE_SUBSCRIBED and self.state != STATE_CLOSING:
            raise wrong_state("DEATHS")
        body = self.whole_body(data, size, line, "DEATHS", DEATHS_COUNT_MAX * MESSAGE_ID_SIZE)
        if body is None:
            return 0
        if self.death_lookup is None:
            self.death_lookup = DeathLookup(self.registry, self.client)
        answer = self.death_lookup.find(self.channel.topic_name, body)
        if answer is None:
            self.is_blocked = True
            return 0
        self.answers.send(FRAME_RESPONSE, answer)
        return line.size + 4 + len(body)

    cdef bytes error_of(self, Line *line, int place):
        """Why the message failed: the rest of the line from that parameter on, if the client negotiated that."""
        if not self.may_reject or line.parameter_count <= place:
            return b""
        return line.parameter[place][:min(line.end - line.parameter[place], <Py_ssize_t> ERROR_SIZE_MAX)]

    cdef int64_t clamp(self, uint64_t delay_ms) except -1:
        """Return ns; as in Go, a product that overflows into the negative means no delay."""
        cdef int64_t limit_ns = self.registry.settings.defer_ns_max
        cdef int64_t delay_ns = <int64_t> (delay_ms * <uint64_t> MS)
        if 0 <= delay_ns <= limit_ns:
            return delay_ns
        self.say(logging.INFO, f"PROTOCOL(V2): [{self.remote_address}] REQ timeout {delay_ns} out of range "
                                    f"0-{limit_ns}, setting to the nearest")
        return 0 if delay_ns < 0 else limit_ns

    cdef Py_ssize_t touch(self, Line *line) except -1:
        cdef uint64_t id = self.message_id(line, "TOUCH", 1)
        cdef Outcome outcome = self.channel.touch(self, id, self.registry.settings.max_msg_timeout_ns)
        return line.size if outcome == DONE else self.refuse_message_command(line, "TOUCH", outcome)

    cdef uint64_t message_id(self, Line *line, str command, int parameters) except? 0:
        """Return 0, which no message has, for what is no id of ours."""
        cdef uint64_t id = 0
        if self.state != STATE_SUBSCRIBED and self.state != STATE_CLOSING:
            raise wrong_state(command)
        if line.parameter_count < parameters:
            raise invalid(f"{command} insufficient number of params")
        if line.parameter_size[0] != MESSAGE_ID_SIZE:
            raise invalid("invalid message ID")
        id_from_hex(line.parameter[0], &id)
        return id

    cdef Py_ssize_t refuse_message_command(self, Line *line, str command, Outcome outcome) except -1:
        """Send the only errors that do not end the connection."""
        error = self.answers.refuse(command, line.parameter[0][:MESSAGE_ID_SIZE], outcome)
        self.say(logging.ERROR, f"[{self.remote_address}] - {error.decode('utf-8', 'backslashreplace')}")
        return line.size

    cdef Py_ssize_t cls(self, Line *line) except -1:
        if self.state != STATE_SUBSCRIBED:
            raise wrong_state("CLS")
        self.rdy = 0
        self.state = STATE_CLOSING
        self.answers.send(FRAME_RESPONSE, b"CLOSE_WAIT")
        return line.size

    # -- publishing ----------------------------------------------------------------------------------------------------

    cdef Py_ssize_t pub(self, const char *data, Py_ssize_t size, Line *line) except -1:
        cdef Py_ssize_t body_size
        if line.parameter_count < 1:
            raise invalid("PUB insufficient number of parameters")
        self.check_topic(line, "PUB", "")
        body_size = self.message_size(data, size, line, "PUB")
        if body_size == 0:
            return 0
        if self.auth.is_required and not self.may_publish(line, "PUB"):
            return 0
        self.publish(line, "PUB", data + line.size + 4, body_size, 0, False)
        return line.size + 4 + body_size

    cdef Py_ssize_t dpub(self, const char *data, Py_ssize_t size, Line *line) except -1:
        cdef uint64_t delay_ms = 0
        cdef int64_t delay_ms_max = self.registry.settings.defer_ns_max // MS
        cdef Py_ssize_t body_size
        if line.parameter_count < 2:
            raise invalid("DPUB insufficient number of parameters")
        self.check_topic(line, "DPUB", "")
        if not parse_decimal(line.parameter[1], line.parameter_size[1], &delay_ms):
            raise invalid(f"DPUB could not parse timeout {text(line.parameter[1], line.parameter_size[1])}")
        if delay_ms > <uint64_t> delay_ms_max:
            raise invalid(f"DPUB timeout {<int64_t> delay_ms} out of range 0-{delay_ms_max}")
        body_size = self.message_size(data, size, line, "DPUB")
        if body_size == 0:
            return 0
        if self.auth.is_required and not self.may_publish(line, "DPUB"):
            return 0
        self.publish(line, "DPUB", data + line.size + 4, body_size, <int64_t> delay_ms,
                     self.tells_ids and line.parameter_count == 3 and delay_ms > 0)
        return line.size + 4 + body_size

    cdef Py_ssize_t message_size(self, const char *data, Py_ssize_t size, Line *line, str command) except -1:
        """Return the size of a body that was received in full; 0 = not yet, or storage takes none in this turn."""
        cdef int32_t body_size
        cdef int64_t size_max = self.registry.settings.max_msg_size
        if size < line.size + 4:
            self.more(line.size + 4, "E_BAD_MESSAGE", f"{command} failed to read message body size")
            return 0
        body_size = <int32_t> get_be32(data + line.size)
        if body_size <= 0:
            raise ProtocolError("E_BAD_MESSAGE", f"{command} invalid message body size {body_size}")
        if body_size > size_max:
            raise ProtocolError("E_BAD_MESSAGE", f"{command} message too big {body_size} > {size_max}")
        if size < line.size + 4 + body_size:
            self.more(line.size + 4 + body_size, "E_BAD_MESSAGE", f"{command} failed to read message body")
            return 0
        return 0 if self.must_wait() else body_size

    cdef bint must_wait(self) except -1:
        """Whether storage takes no publish in this turn: it goes on in a later one."""
        if self.registry.durability.store.must_wait():
            self.block_for_turn()
        return self.is_blocked

    cdef int check_topic(self, Line *line, str command, str prefix) except -1:
        if self.is_last_topic(line):
            return 0
        if not is_valid_name(text(line.parameter[0], line.parameter_size[0])):
            name = quote(line.parameter[0][:line.parameter_size[0]])
            raise ProtocolError("E_BAD_TOPIC", f"{prefix}{command} topic name {name} is not valid")
        return 0

    cdef bint may_publish(self, Line *line, str command) except -1:
        """False = blocked. A grant for the last topic is reused until it expires."""
        if self.clock.monotonic_ns() < self.auth.publish_until_ns and self.is_last_topic(line):
            return True
        if not self.is_allowed(command, text(line.parameter[0], line.parameter_size[0]), ""):
            return False
        self.auth.publish_until_ns = self.auth.granted_until_ns
        return True

    cdef bint is_last_topic(self, Line *line) noexcept:
        return (self.topic is not None and not self.topic.exiting
                and self.topic.has_name(line.parameter[0], line.parameter_size[0]))

    cdef int choose_topic(self, Line *line) except -1:
        """Make this command's topic, created if need be, the last one published to."""
        if self.is_last_topic(line):
            return 0
        self.add_up_counts()
        self.more_units = TOPIC_UNITS
        name = text(line.parameter[0], line.parameter_size[0])
        self.topic = self.registry.topics.find(name)
        if self.topic is None:
            self.more_units = COSTLY_UNITS
            self.registry.topics.admit(name)
            self.topic = self.registry.topics.ensure(name)
        return 0

    cdef int add_up_counts(self) except -1:
        if self.topic_count:
            self.answers.count(self.topic.name, self.topic_count)
            self.topic_count = 0
        return 0

    cdef int publish(self, Line *line, str command, const char *body, Py_ssize_t size, int64_t delay_ms,
                     bint is_told) except -1:
        cdef uint64_t ticket
        self.check_open(command)
        self.choose_topic(line)
        try:
            ticket = self.topic.publish(body, size, delay_ms, is_told)
        except NotTakenError as error:
            raise publish_failed(command, error) from None
        if not is_told:
            return self.accept(ticket, command, 1)
        if ticket == 0:
            self.topic_count += 1
        self.answers.accept_with_id(ticket, command, self.topic, self.topic.guid.last())
        return self.pay(1)

    cdef int check_open(self, str command) except -1:
        """Whether the broker takes new messages at all."""
        if self.registry.is_draining:
            raise publish_failed(command, DRAINING)
        if self.registry.durability.store.health.low_disk is not None:
            raise publish_failed(command, NotTakenError(self.registry.durability.store.health.low_disk, "low_disk"))
        return 0

    cdef int accept(self, uint64_t ticket, str command, uint64_t count) except -1:
        """Answer a publish that was taken, or will be if its batch is written."""
        if ticket == 0:
            self.topic_count += count
        self.answers.accept(ticket, command, self.topic, count)
        return self.pay(count)

    cdef int pay(self, uint64_t count) except -1:
        if self.auth.usage is not None and self.auth.must_pause(<int64_t> count):
            self.is_blocked = True
        return 0

    cdef Py_ssize_t mpub(self, const char *data, Py_ssize_t size, Line *line) except -1:
        cdef uint64_t ticket
        if line.parameter_count < 1:
            raise invalid("MPUB insufficient number of parameters")
        self.check_topic(line, "MPUB", "E_BAD_TOPIC ")
        if self.auth.is_required and self.scan.offset == 0 and not self.may_publish(line, "MPUB"):
            return 0
        if self.sliced_size:
            return self.put_large(data, line)
        self.check_open("MPUB")
        self.choose_topic(line)
        if self.scan.offset == 0 and not self.mpub_head(data, size, line):
            return 0
        if not self.mpub_bodies(data, size, line.size + 4) or self.must_wait():
            return 0
        if self.scan.count > WHOLE_MAX:
            return self.put_large(data, line)
        size, self.scan.offset = self.scan.offset, 0
        try:
            ticket = self.topic.publish_many(data + line.size + 8, size - line.size - 8, self.scan.count)
        except NotTakenError as error:
            raise publish_failed("MPUB", error) from None
        self.accept(ticket, "MPUB", self.scan.count)
        return size

    cdef Py_ssize_t put_large(self, const char *data, Line *line) except -1:
        """Publish a large MPUB as far as the part goes; 0 = its rest, and all behind it, wait for a later turn."""
        cdef Py_ssize_t size
        cdef uint64_t ticket = 0
        self.sliced_size = self.sliced_size or line.size + 8
        try:
            if self.sliced_count == 0 and self.large is None:
                self.topic.refuse_if_full(self.scan.count, self.scan.offset - self.sliced_size - 4 * self.scan.count)
            ticket = self.put_pieces(data) if self.topic.has_log else self.put_slices(data)
            size = 0 if self.is_blocked else self.sliced_size
        except NotTakenError as error:
            raise publish_failed("MPUB", error) from None
        finally:
            if not self.is_blocked:
                self.leave_large()
                self.sliced_count = self.sliced_size = self.scan.offset = 0
        if size:
            self.accept(ticket, "MPUB", self.scan.count)
        return size

    cdef uint64_t put_slices(self, const char *data) except? 0:
        """Messages put before an error stay, as in NSQ."""
        cdef Budget budget = begin_part()
        cdef Py_ssize_t size, count = 0
        while self.sliced_count < self.scan.count:
            if is_spent(&budget, count):
                self.block_for_turn()
                return 0
            count = min(<Py_ssize_t> SLICE_MAX, <Py_ssize_t> (self.scan.count - self.sliced_count))
            size = skip_bodies(data + self.sliced_size, count)
            self.topic.publish_many(data + self.sliced_size, size, count, True)
            self.sliced_size += size
            self.sliced_count += count
        return 0

    cdef uint64_t put_pieces(self, const char *data) except? 0:
        """It is taken as a whole, or not at all. Return the ticket that its OK waits for."""
        cdef LargeMpub mpub = self.large
        if mpub is None:
            mpub = self.large = self.topic.begin_large(self.scan.count)
        if not mpub.is_logged and not log_pieces(self.topic, mpub, data, &self.sliced_size, &self.sliced_count):
            self.block_for_turn()
        elif not mpub.is_over:
            mpub.waiter, self.is_blocked = self.client, True
        elif mpub.error is not None:
            raise NotTakenError(mpub.error)
        return mpub.ticket

    cdef int leave_large(self) except -1:
        cdef LargeMpub mpub = self.large
        self.large = None
        return 0 if mpub is None else mpub.leave()

    cdef bint mpub_head(self, const char *data, Py_ssize_t size, Line *line) except -1:
        """Parse total size and count; False = not received yet. The total is checked but not used (as in NSQ)."""
        cdef int64_t size_max = self.registry.settings.max_body_size
        cdef int32_t count
        cdef Py_ssize_t body_size = self.body_size(data, size, line, "MPUB", "failed to read body size", size_max)
        if body_size < 0:
            return False
        if size < line.size + 8:
            self.more(line.size + 8, "E_BAD_BODY", "MPUB failed to read message count")
            return False
        count = <int32_t> get_be32(data + line.size + 4)
        if not 0 < count <= (size_max - 4) // 5:
            raise ProtocolError("E_BAD_BODY", f"MPUB invalid message count {count}")
        self.scan.count = <uint64_t> count
        self.scan.index = 0
        self.scan.offset = line.size + 8
        return True

    cdef bint mpub_bodies(self, const char *data, Py_ssize_t size, Py_ssize_t start) except -1:
        """Whether all messages were received; those already checked are not checked again."""
        cdef int64_t size_max = self.registry.settings.max_msg_size
        cdef int64_t total_max = self.registry.settings.max_body_size
        cdef int32_t message_size
        cdef Py_ssize_t offset
        while self.scan.index < self.scan.count:
            offset = self.scan.offset
            if size < offset + 4:
                detail = f"MPUB failed to read message({self.scan.index}) body size"
                self.more(offset + 4, "E_BAD_MESSAGE", detail)
                return False
            message_size = <int32_t> get_be32(data + offset)
            if message_size <= 0:
                raise ProtocolError(
                    "E_BAD_MESSAGE", f"MPUB invalid message({self.scan.index}) body size {message_size}")
            if message_size > size_max:
                raise ProtocolError("E_BAD_MESSAGE", f"MPUB message too big {message_size} > {size_max}")
            if offset + 4 + message_size - start > total_max:
                # Go follows the sizes wherever they lead; here a body is limited whatever it announced.
                raise ProtocolError(
                    "E_BAD_BODY", f"MPUB body too big {offset + 4 + message_size - start} > {total_max}")
            if size < offset + 4 + message_size:
                self.more(offset + 4 + message_size, "E_BAD_MESSAGE", "MPUB failed to read message body")
                return False
            self.scan.offset = offset + 4 + message_size
            self.scan.index += 1
        return True

    # -- deferred messages ---------------------------------------------------------------------------------------------

    cdef Py_ssize_t end_deferral(self, Line *line) except -1:
        """Answer in how many channels the message was still deferred. To change what was published takes the permission
        to publish; a grant for the topic published to last is none for this one."""
        cdef Budget budget = begin_part()
        cdef uint64_t id = 0
        cdef bint is_run = line.kind == COMMAND_RUN_DEFERRED
        cdef str command = "RUN_DEFERRED" if is_run else "CANCEL_DEFERRED"
        cdef Topic topic
        if line.parameter_count < 2:
            raise invalid(f"{command} insufficient number of parameters")
        self.check_topic(line, command, "")
        if line.parameter_size[1] != MESSAGE_ID_SIZE or not id_from_hex(line.parameter[1], &id):
            raise invalid(f"{command} invalid message ID")
        if (self.auth.is_required
                and not self.is_allowed(command, text(line.parameter[0], line.parameter_size[0]), "")):
            return 0
        if is_run and not self.registry.turn.may_store():
            return self.block_for_turn()
        topic = self.registry.topics.find_ascii(line.parameter[0], line.parameter_size[0])
        if self.deferral_end is None and topic is not None:
            self.deferral_end = DeferralEnd(topic, id, is_run)
        if self.deferral_end is not None and not self.deferral_end.go_on(&budget):
            self.block_for_turn()
            return 0
        count = self.deferral_end.count if self.deferral_end is not None else 0
        self.deferral_end = None
        self.answers.send_kept(command, b"OK %d" % count)
        return line.size

    # -- once per connection -------------------------------------------------------------------------------------------

    cdef bytes whole_body(self, const char *data, Py_ssize_t size, Line *line, str command, int64_t size_max):
        """Return the body of IDENTIFY, AUTH or DEATHS; None = not received yet."""
        cdef Py_ssize_t body_size = self.body_size(data, size, line, command, "failed to read body size",
                                                   min(self.registry.settings.max_body_size, size_max))
        if body_size < 0:
            return None
        if size < line.size + 4 + body_size:
            self.more(line.size + 4 + body_size, "E_BAD_BODY", f"{command} failed to read body")
            return None
        return data[line.size + 4:line.size + 4 + body_size]

    cdef Py_ssize_t identify(self, const char *data, Py_ssize_t size, Line *line) except -1:
        if self.state != STATE_INIT:
            raise wrong_state("IDENTIFY")
        body = self.whole_body(data, size, line, "IDENTIFY", IDENTITY_SIZE_MAX)
        if body is None:
            return 0
        if self.registry.memory.account.level >= MEMORY_FULL and len(body) > IDENTITY_SIZE_FULL:
            raise ProtocolError("E_INVALID", "no memory left for a command of this size")
        identity = read_identity(body, self.registry.settings.options)
        shown = body[:IDENTITY_SHOWN_MAX].decode("utf-8", "backslashreplace")
        self.say(logging.INFO, f"[{self.remote_address}] IDENTIFY: {shown}")
        self.client_id, self.hostname, self.user_agent = identity.client_id, identity.hostname, identity.user_agent
        self.topology_zone, self.topology_region = identity.topology_zone, identity.topology_region
        self.tells_ids, self.may_reject = identity.tells_ids, identity.may_reject
        # The first IDENTIFY sets the distance to the client for good (spec nsqd-tcp §14).
        if not self.is_located and self.registry.settings.is_topology_aware:
            self.is_located = True
            self.distance = distance_to(self.topology_zone, self.topology_region, self.registry.settings.options)
        self.sample_percent, self.timeout_ns = identity.sample_rate, identity.msg_timeout_ns
        self.heartbeat_ns = identity.heartbeat_ns
        # Each of them once: a layer that another one replaced would stay in memory.
        identity.tls &= not self.tls
        if self.deflate or self.snappy:
            identity.deflate = identity.snappy = False
        self.answers.send(FRAME_RESPONSE, identity.answer(self.registry.settings.options))
        self.tls = self.tls or identity.tls
        self.deflate = self.deflate or identity.deflate
        self.snappy = self.snappy or identity.snappy
        self.new_layers = upgrades(identity, self.registry.tls_context)
        self.charge_bytes(len(body) - self.identity_size + sum([each.size for each in self.new_layers]))
        self.identity_size = len(body)
        return size if self.new_layers else line.size + 4 + len(body)

    cdef Py_ssize_t run_auth(self, const char *data, Py_ssize_t size, Line *line) except -1:
        if self.state != STATE_INIT:
            raise wrong_state("AUTH")
        if line.parameter_count:
            raise invalid("AUTH invalid number of parameters")
        body = self.whole_body(data, size, line, "AUTH", IDENTITY_SIZE_MAX)
        if body is None:
            return 0
        if not self.auth.authenticate(body):
            self.charge_bytes(len(body))
            self.is_blocked = True
            return 0
        self.answers.send(FRAME_RESPONSE, self.auth.grant.answer())
        return line.size + 4 + len(body)

    # -- figures -------------------------------------------------------------------------------------------------------

    def pub_counts(self):
        """Successful publishes by topic name."""
        self.add_up_counts()
        return dict(self.answers.publish_counts)

    @property
    def grant(self):
        """What an auth server granted; None before AUTH."""
        return self.auth.grant
