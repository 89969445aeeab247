"""The commands that publish: PUB, DPUB and MPUB (spec nsqd-tcp §5). Bodies are read from the input buffer in place."""

from libc.stdint cimport int32_t
from libc.string cimport memcmp

from nsqfast._ext.broker.deferral_end cimport DeferralEnd
from nsqfast._ext.broker.mpub_bodies cimport skip_bodies
from nsqfast._ext.broker.topic cimport SLICE_MAX
from nsqfast._ext.core.budget cimport Budget, begin_part, is_spent
from nsqfast._ext.core.clock cimport monotonic_ns
from nsqfast._ext.core.limits cimport FRAME_RESPONSE, MESSAGE_ID_SIZE, WHOLE_MAX
from nsqfast._ext.core.message cimport get_be32, id_from_hex
from nsqfast._ext.protocol.command cimport COMMAND_RUN_DEFERRED, parse_decimal
from nsqfast._ext.server.pending cimport cut_tail
from nsqfast._ext.server.partial_command cimport COSTLY_UNITS, invalid, text

from nsqfast._ext.protocol.frame import encode
from nsqfast.errors import ProtocolError
from nsqfast.wire.names import is_valid_name, quote
from nsqfast.wire.refusals import PUBLISH_REFUSED, NotTakenError

cdef int64_t MS = 1000000
# Why a broker refuses that is being emptied; what clients make of it is to try another one.
cdef object DRAINING = NotTakenError("draining", "draining")

cdef enum:
    # Units for looking up another topic than that of the last command.
    TOPIC_UNITS = 4


cdef class Publisher(Waiter):
    """Publishes for one client; commands run once they are whole."""

    def __init__(self, PartialCommand command not None, Auth auth not None):
        self.command = command
        self.auth = auth
        self.host = command.host
        self.client = self.host
        self.registry = self.host.registry
        self.counts = {}
        self.uncounted = []

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
        cdef int64_t delay_ms_max = self.registry.settings.max_req_timeout_ns // MS
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
        """Return the size of a body that was received in full; 0 = not yet."""
        cdef int32_t body_size
        cdef int64_t size_max = self.registry.settings.max_msg_size
        if size < line.size + 4:
            self.command.more(line.size + 4, "E_BAD_MESSAGE", f"{command} failed to read message body size")
            return 0
        body_size = <int32_t> get_be32(data + line.size)
        if body_size <= 0:
            raise ProtocolError("E_BAD_MESSAGE", f"{command} invalid message body size {body_size}")
        if body_size > size_max:
            raise ProtocolError("E_BAD_MESSAGE", f"{command} message too big {body_size} > {size_max}")
        if size < line.size + 4 + body_size:
            self.command.more(line.size + 4 + body_size, "E_BAD_MESSAGE", f"{command} failed to read message body")
            return 0
        return body_size

    cdef int check_topic(self, Line *line, str command, str prefix) except -1:
        if self.is_last_topic(line):
            return 0
        if not is_valid_name(text(line.parameter[0], line.parameter_size[0])):
            name = quote(line.parameter[0][:line.parameter_size[0]])
            raise ProtocolError("E_BAD_TOPIC", f"{prefix}{command} topic name {name} is not valid")
        return 0

    cdef bint may_publish(self, Line *line, str command) except -1:
        """False = blocked. A grant for the last topic is reused until it expires."""
        if monotonic_ns() < self.auth.publish_until_ns and self.is_last_topic(line):
            return True
        if not self.auth.may(command, text(line.parameter[0], line.parameter_size[0]), ""):
            return False
        self.auth.publish_until_ns = self.auth.granted_until_ns
        return True

    cdef bint is_last_topic(self, Line *line) noexcept:
        return (self.topic is not None and not self.topic.exiting
                and len(self.topic.name_bytes) == line.parameter_size[0]
                and memcmp(<const char *> self.topic.name_bytes, line.parameter[0], line.parameter_size[0]) == 0)

    cdef int choose_topic(self, Line *line) except -1:
        """Make this command's topic, created if need be, the last one published to."""
        if self.is_last_topic(line):
            return 0
        self.add_up_counts()
        self.command.more_units = TOPIC_UNITS
        name = text(line.parameter[0], line.parameter_size[0])
        self.topic = self.registry.find_topic(name)
        if self.topic is None:
            self.command.more_units = COSTLY_UNITS
            self.registry.admit(name)
            self.topic = self.registry.topic(name)
        return 0

    cdef int add_up_counts(self) except -1:
        if self.topic_count:
            self.counts[self.topic.name] = self.counts.get(self.topic.name, 0) + self.topic_count
            self.topic_count = 0
        return 0

    cdef int publish(self, Line *line, str command, const char *body, Py_ssize_t size, int64_t delay_ms,
                     bint is_told) except -1:
        cdef uint64_t ticket
        self.check_open(command)
        self.choose_topic(line)
        if self.was_refused():
            return 0
        try:
            ticket = self.topic.publish(body, size, delay_ms, is_told)
        except NotTakenError as error:
            raise publish_failed(command, error) from None
        if is_told:
            self.note_taken(ticket, 1, False)
            self.host.answer_id(ticket, command, self.topic.guid.last())
        elif ticket:
            self.accept(ticket, command, 1, delay_ms == 0)
        else:
            self.topic_count += 1
            self.host.answer_ok(0, command)
        return self.auth.pay(1) if self.auth.usage is not None else 0

    cdef int check_open(self, str command) except -1:
        """Whether the broker takes new messages at all."""
        if self.registry.is_draining:
            raise publish_failed(command, DRAINING)
        if self.registry.syncer.health.low_disk is not None:
            raise publish_failed(command, NotTakenError(self.registry.syncer.health.low_disk, "low_disk"))
        return 0

    cdef bint was_refused(self) except -1:
        """Whether an earlier publish of this turn was refused: later ones are discarded."""
        if self.topic.has_unwritten:
            self.topic.make_room()
        return self.is_refused

    cdef int accept(self, uint64_t ticket, str command, uint64_t count, bint is_put_off) except -1:
        """Answer a publish that was taken, or will be if its write and its fsync succeed."""
        self.note_taken(ticket, count, is_put_off)
        return self.host.answer_ok(ticket, command)

    cdef int note_taken(self, uint64_t ticket, uint64_t count, bint is_put_off) except -1:
        if ticket == 0:
            self.topic_count += count
            return 0
        if ticket != self.last_ticket or self.topic is not self.last_topic:
            self.close_last()
            self.last_ticket, self.last_topic = ticket, self.topic
        if is_put_off:
            if self.open_oks == 0 or self.last_count == 0:
                self.topic.add_waiter(self)
            self.open_oks += 1
            self.open_count += count
        self.last_count += count
        return 0

    cdef int close_last(self) except -1:
        """Give the publishes that wait for the last ticket an entry of their own."""
        if self.last_count:
            self.uncounted.append([self.last_ticket, self.last_count, self.last_topic.name])
        self.last_ticket = self.last_count = 0
        self.last_topic = None
        return 0

    cdef bint refuse(self, str error) except -1:
        """The postponed write failed: its error replaces the OKs of this turn. False = there were none."""
        if self.open_oks == 0:
            return False
        PUBLISH_REFUSED["disk"] += 1
        self.close_last()
        self.host.refuse_oks(self.open_oks, error)
        cut_tail(self.uncounted, self.open_count)
        self.is_refused = True
        self.open_oks = self.open_count = 0
        return True

    cdef int on_written(self) except -1:
        """The postponed write succeeded."""
        self.open_oks = self.open_count = 0
        return 0

    cdef int on_durable(self, uint64_t done_ticket, str error) except -1:
        """Count the publishes whose fsync is done; an error answers all that wait."""
        if error is not None:
            PUBLISH_REFUSED["disk"] += 1
        if self.last_ticket <= done_ticket:
            self.close_last()
        while self.uncounted and self.uncounted[0][0] <= done_ticket:
            _, count, name = self.uncounted.pop(0)
            if error is None:
                self.counts[name] = self.counts.get(name, 0) + count
        return 0

    cdef Py_ssize_t mpub(self, const char *data, Py_ssize_t size, Line *line) except -1:
        cdef uint64_t ticket
        if line.parameter_count < 1:
            raise invalid("MPUB insufficient number of parameters")
        self.check_topic(line, "MPUB", "E_BAD_TOPIC ")
        if self.auth.is_required and self.scan.offset == 0 and not self.may_publish(line, "MPUB"):
            return 0
        if self.sliced_size:
            return self.put_slices(data, line)
        self.check_open("MPUB")
        self.choose_topic(line)
        if self.scan.offset == 0 and not self.mpub_head(data, size, line):
            return 0
        if not self.mpub_bodies(data, size, line.size + 4):
            return 0
        if self.scan.count > WHOLE_MAX:
            self.registry.storage.write_batch()
        if self.was_refused():
            size, self.scan.offset = self.scan.offset, 0
            return size
        if self.scan.count > WHOLE_MAX:
            return self.put_slices(data, line)
        try:
            ticket = self.topic.publish_many(data + line.size + 8, self.scan.count, True)
        except NotTakenError as error:
            raise publish_failed("MPUB", error) from None
        finally:
            size = self.scan.offset
            self.scan.offset = 0
        self.accept(ticket, "MPUB", self.scan.count, True)
        if self.auth.usage is not None:
            self.auth.pay(self.scan.count)
        return size

    cdef Py_ssize_t put_slices(self, const char *data, Line *line) except -1:
        """Publish a large MPUB as far as the part goes; 0 = the rest of it, and all behind it, wait for a later turn.
        Messages put before an error stay, as in NSQ."""
        cdef Budget budget = begin_part()
        cdef Py_ssize_t size = 0
        cdef uint64_t count = 0, ticket = 0
        self.sliced_size = self.sliced_size or line.size + 8
        try:
            while self.sliced_count < self.scan.count:
                if is_spent(&budget, <int64_t> count):
                    self.host.block_for_turn()
                    return 0
                count = min(<uint64_t> SLICE_MAX, self.scan.count - self.sliced_count)
                ticket = self.topic.publish_many(data + self.sliced_size, count, False)
                self.sliced_size += skip_bodies(data + self.sliced_size, count)
                self.sliced_count += count
                if ticket and self.sliced_count < self.scan.count:
                    self.host.await_ticket(ticket, "MPUB")
            size = self.sliced_size
        except NotTakenError as error:
            raise publish_failed("MPUB", error) from None
        finally:
            if not self.host.command_blocked:
                self.sliced_count = self.sliced_size = self.scan.offset = 0
        self.accept(ticket, "MPUB", self.scan.count, False)
        if self.auth.usage is not None:
            self.auth.pay(self.scan.count)
        return size

    cdef bint mpub_head(self, const char *data, Py_ssize_t size, Line *line) except -1:
        """Parse total size and count; False = not received yet. The total is checked but not used (as in NSQ)."""
        cdef int64_t size_max = self.registry.settings.max_body_size
        cdef int32_t count
        cdef Py_ssize_t body_size = self.command.sized(data, size, line, "MPUB", "failed to read body size", size_max)
        if body_size < 0:
            return False
        if size < line.size + 8:
            self.command.more(line.size + 8, "E_BAD_BODY", "MPUB failed to read message count")
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
                self.command.more(offset + 4, "E_BAD_MESSAGE", detail)
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
                self.command.more(offset + 4 + message_size, "E_BAD_MESSAGE", "MPUB failed to read message body")
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
        cdef str command = text(line.name, line.name_size)
        if line.parameter_count < 2:
            raise invalid(f"{command} insufficient number of parameters")
        self.check_topic(line, command, "")
        if line.parameter_size[1] != MESSAGE_ID_SIZE or not id_from_hex(line.parameter[1], &id):
            raise invalid(f"{command} invalid message ID")
        name = text(line.parameter[0], line.parameter_size[0])
        if self.auth.is_required and not self.auth.may(command, name, ""):
            return 0
        if is_run and not self.registry.may_store():
            return self.host.block_for_turn()
        topic = self.registry.find_topic(name)
        if self.deferral_end is None and topic is not None:
            self.deferral_end = DeferralEnd(topic, id, is_run)
        if self.deferral_end is not None and not self.deferral_end.go_on(&budget):
            self.host.block_for_turn()
            return 0
        count = self.deferral_end.count if self.deferral_end is not None else 0
        self.deferral_end = None
        self.host.send(encode(FRAME_RESPONSE, b"OK %d" % count))
        return line.size

    def pub_counts(self):
        """Successful publishes by topic name."""
        self.add_up_counts()
        return dict(self.counts)


cdef object publish_failed(str command, object error):
    PUBLISH_REFUSED[error.kind] += 1
    return ProtocolError(f"E_{command}_FAILED", f"{command} failed {error}")
