"""A broker with a commit log answers a publish when it is on disk; whatever is answered behind it waits as long."""

from collections import deque

cimport cython

from nsqfast._ext.broker.channel cimport EXITING, NOT_IN_FLIGHT, REFUSED
from nsqfast._ext.core.limits cimport FRAME_ERROR, FRAME_RESPONSE
from nsqfast._ext.protocol.v2 cimport write_frame, write_ok
from nsqfast._ext.storage.engine cimport Tickets

from nsqfast._ext.protocol.v2 import encode
from nsqfast.errors import ProtocolError
from nsqfast.wire.refusals import PUBLISH_REFUSED

cdef bytes OK = encode(FRAME_RESPONSE, b"OK")


@cython.final
cdef class Answers:
    """Those to one client. It counts what the client has published, too: that is known when it is answered."""

    def __init__(self, Registry registry not None, Client client not None, WriteBuffer output not None):
        self.registry = registry
        self.client = client
        self.output = output
        self.publish_counts = {}

    cdef int want_flush(self) except -1:
        """There is output; it is sent at the end of the turn."""
        if not self.is_listed:
            self.is_listed = True
            self.registry.turn.want_output(self.client)
        return 0

    cdef int send(self, int frame_type, bytes data) except -1:
        """Send a frame, behind the answers that wait."""
        if self.waiting_count:
            return self.append(0, "", encode(frame_type, data), "", 0)
        write_frame(self.output, frame_type, data, len(data))
        return self.want_flush()

    cdef bytes refuse(self, str command, bytes id, Outcome outcome):
        """Send, and return, the error of a command for a message. What waits for the disk does not delay it."""
        cdef bytes error, name = command.encode()
        reason = {NOT_IN_FLIGHT: b"ID not in flight", EXITING: b"exiting", REFUSED: b"it is a dead letter"}.get(
            outcome, b"client does not own message")
        error = b"E_%s_FAILED %s %s failed %s" % (name, name, id, reason)
        write_frame(self.output, FRAME_ERROR, error, len(error))
        self.want_flush()
        return error

    cdef int accept(self, uint64_t ticket, str command, Topic topic, uint64_t message_count) except -1:
        """Answer OK to a publish that was taken, or will be if its batch is written; ticket 0 = it was, and its caller
        counts it."""
        if ticket == 0 and self.waiting_count == 0:
            write_ok(self.output)
            return self.want_flush()
        self.begin_group(ticket, command, topic)
        self.last_ok_count += 1
        self.last_message_count += message_count if ticket else 0
        return 0

    cdef int accept_with_id(self, uint64_t ticket, str command, Topic topic, uint64_t id) except -1:
        """Answer OK and the id of the only message likewise."""
        data = b"OK %016x" % id
        if ticket == 0:
            return self.send(FRAME_RESPONSE, data)
        return self.append(ticket, command, encode(FRAME_RESPONSE, data), topic.name, 1)

    cdef uint64_t send_kept(self, str command, bytes data) except? 0:
        """Send a response when the commit log has all that happened until now; without a log at once. Return the ticket
        that it waits for, or 0. A SUB does not wait for a log that has failed: consumers go on."""
        cdef Tickets tickets = self.registry.durability.store.tickets()
        cdef bint is_kept = not self.registry.settings.has_log or tickets.last <= tickets.done
        if is_kept or (tickets.error and command == "SUB"):
            self.send(FRAME_RESPONSE, data)
            return 0
        self.append(tickets.last, command, encode(FRAME_RESPONSE, data), "", 0)
        return self.last_ticket

    cdef int count(self, str topic_name, uint64_t message_count) except -1:
        """So many more messages were published."""
        self.publish_counts[topic_name] = self.publish_counts.get(topic_name, 0) + message_count
        return 0

    # -- what waits ----------------------------------------------------------------------------------------------------

    cdef int begin_entry(self, uint64_t ticket) except -1:
        """One more waits behind all others."""
        if self.waiting_count == 0:
            self.registry.durability.wait(self.client)
            if self.waiting is None:
                self.waiting = deque()
        self.end_group()
        self.last_ticket = max(self.last_ticket, ticket)
        self.waiting_count += 1
        return 0

    cdef int begin_group(self, uint64_t ticket, str command, Topic topic) except -1:
        """Make this the last group, unless it is already."""
        if self.last_ticket >= ticket and self.last_command == command and self.last_topic is topic:
            return 0
        self.begin_entry(ticket)
        self.last_command, self.last_topic = command, topic
        return 0

    cdef int end_group(self) except -1:
        """Nothing is added to the last group any more."""
        if self.last_command is not None:
            self.waiting.append([self.last_ticket, self.last_ok_count, self.last_command, None, self.last_topic.name,
                                 self.last_message_count])
            self.last_command = self.last_topic = None
            self.last_ok_count = self.last_message_count = 0
        return 0

    cdef int append(self, uint64_t ticket, str command, object other, str topic_name, uint64_t message_count) except -1:
        """Let this wait, which is no group; the error of its batch is that of the command, unless that is empty."""
        self.begin_entry(ticket)
        self.waiting.append([self.last_ticket, 0, command, other, topic_name, message_count])
        return 0

    cdef list take_done(self, uint64_t done_ticket):
        """Return what need not wait any more and stands first; None = there is nothing."""
        if self.waiting_count == 0:
            return None
        if self.last_ticket <= done_ticket:
            self.end_group()
        if not self.waiting or <uint64_t> self.waiting[0][0] > done_ticket:
            return None
        self.waiting_count -= 1
        return self.waiting.popleft()

    cdef bint answer_group(self, uint64_t done_ticket) except -1:
        """If a group that is done is all that waits, as most often, answer it."""
        cdef Py_ssize_t _
        if self.waiting_count != 1 or self.last_command is None or self.last_ticket > done_ticket:
            return False
        for _ in range(self.last_ok_count):
            write_ok(self.output)
        if self.last_message_count:
            self.count(self.last_topic.name, self.last_message_count)
        self.last_command = self.last_topic = None
        self.last_ok_count = self.last_message_count = self.waiting_count = 0
        self.want_flush()
        return True

    cdef int on_durable(self, uint64_t done_ticket, str error) except -1:
        """Send what waited for this. ProtocolError: it could not be written."""
        cdef list entry
        if error is not None:
            PUBLISH_REFUSED["disk"] += 1
        elif self.answer_group(done_ticket):
            return self.registry.durability.end_wait(self.client)
        entry = self.take_done(done_ticket)
        while entry is not None:
            _, ok_count, command, other, topic_name, message_count = entry
            if error is not None and command:
                self.end_group()
                self.waiting.clear()
                self.waiting_count = 0
                self.registry.durability.end_wait(self.client)
                raise ProtocolError(f"E_{command}_FAILED", f"{command} failed {error}")
            if message_count:
                self.count(topic_name, message_count)
            data = OK * ok_count if other is None else other
            self.output.append(data, len(data))
            self.want_flush()
            entry = self.take_done(done_ticket)
        if self.waiting_count == 0:
            self.registry.durability.end_wait(self.client)
        return 0


cdef str text(const char *data, Py_ssize_t size):
    return data[:size].decode("utf-8", "surrogateescape")


cdef object invalid(str detail):
    return ProtocolError("E_INVALID", detail)


cdef object wrong_state(str command):
    return ProtocolError("E_INVALID", f"cannot {command} in current state")


cdef object publish_failed(str command, object error):
    PUBLISH_REFUSED[error.kind] += 1
    return ProtocolError(f"E_{command}_FAILED", f"{command} failed {error}")
