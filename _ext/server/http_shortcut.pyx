"""A plain publish goes from the input buffer to the topic; the same answer bytes are used for a second.

Unless the answer is certainly OK, the request is returned, and the Python handlers get it as if nothing had happened.
Once a topic was asked to take a message there is no way back, so from there on `reply` words the errors.

    publish ─► no ticket: the answer
          └──► a ticket: Debt ─► on_durable ─► HttpFront.pay: all answers of a connection that are due, by one write
"""

import logging
from collections import deque

from nsqfast._ext.broker.mpub_bodies cimport Bodies
from nsqfast._ext.core.budget cimport Budget, begin_part
from nsqfast._ext.core.clock cimport wall_ns

from nsqfast._ext.protocol.http_front cimport OWED

from nsqfast.errors import ProtocolError
from nsqfast.wire.refusals import NotTakenError

log = logging.getLogger("nsqd")

cdef int64_t SECOND_NS = 1000000000
cdef int64_t MS = 1000000

# How often a success was answered here, by is_many: of /pub and of /mpub, whatever the listener.
cdef int64_t ok_count[2]


def ok_counts():
    """By path."""
    return {"/pub": ok_count[False], "/mpub": ok_count[True]}


cdef class PublishShortcut(Shortcut):
    """`reply(None)` returns the answer to a success; `reply(error, path)` returns that to a failure, and counts it."""

    def __init__(self, Registry registry not None, object reply not None, bint asks_host):
        self.registry = registry
        self.reply = reply
        self.asks_host = asks_host
        self.ok_second = -1
        self.debts = {}

    cdef bint admits(self, PlainRequest *request) noexcept:
        """Whether sizes, delay and host are certainly allowed, and the broker takes messages at all."""
        if self.registry.is_draining or self.registry.durability.store.health.low_disk is not None:
            return False
        if self.asks_host and not request.is_local_host:
            return False
        if request.is_many:
            return request.body_size <= self.registry.settings.max_body_size
        return (request.body_size <= self.registry.settings.max_msg_size
                and request.defer_ms <= self.registry.settings.defer_ns_max // MS)

    cdef bytes publish(self, PlainRequest *request, HttpFront front):
        """Return the answer, or OWED; None if nothing was queued and the Python handlers must decide."""
        cdef bytes answer = None
        cdef Topic topic = self.registry.topics.find_ascii(request.topic, request.topic_size)
        if topic is None or not self.admits(request):
            return None
        try:
            if not self.put(topic, request):
                return None
        except ProtocolError:
            return None  # invalid framing of a body, found before the first message is queued
        except Exception as error:
            self.ticket = 0
            answer = self.answer_error(error, request.is_many)
        if self.ticket or front.owed_count:
            return self.owe(front, self.ticket, request.is_many, answer)
        if answer is not None:
            return answer
        ok_count[request.is_many] += 1
        return self.answer_ok()

    cdef bint put(self, Topic topic, PlainRequest *request) except -1:
        """False: it would take more than a part of a turn."""
        cdef Bodies bodies
        cdef Budget budget
        if not request.is_many:
            self.ticket = topic.publish(request.body, request.body_size, request.defer_ms)
            return True
        bodies = Bodies(topic, request.body[:request.body_size], request.is_binary)
        budget = begin_part()
        if not bodies.check_some(&budget) or bodies.has_parts():
            return False
        self.ticket = bodies.put_next()
        return True

    cdef bytes answer_ok(self):
        cdef int64_t second = wall_ns() // SECOND_NS
        if second != self.ok_second:
            self.ok = self.reply(None)
            self.ok_second = second
        return self.ok

    cdef bytes answer_error(self, object error, bint is_many):
        return self.reply(error, "/mpub" if is_many else "/pub")

    # -- what is owed until a disk has it ------------------------------------------------------------------------------

    cdef bint must_wait(self) noexcept:
        return self.registry.durability.store.must_wait()

    cdef bytes owe(self, HttpFront front, uint64_t ticket, bint is_many, bytes answer):
        cdef Debt debt = self.debts.get(front)
        if debt is None:
            debt = self.debts[front] = Debt(self, front)
            self.registry.durability.wait(debt)
        debt.add(ticket, is_many, answer)
        return OWED

    cdef int settle(self, Debt debt) except -1:
        self.registry.durability.end_wait(debt)
        self.debts.pop(debt.front, None)
        return 0

    cdef int forget(self, HttpFront front) except -1:
        cdef Debt debt = self.debts.get(front)
        return 0 if debt is None else self.settle(debt)


cdef class Debt(Client):
    """The answers that are owed to one connection, in the order of its requests."""

    def __init__(self, PublishShortcut shortcut not None, HttpFront front not None):
        self.shortcut, self.front = shortcut, front

    cdef int add(self, uint64_t ticket, bint is_many, bytes answer) except -1:
        """The answer if that is known already; else `ticket` decides, where 0 is a success."""
        ticket = max(ticket, self.ticket)
        if self.count and answer is None and self.answer is None and ticket == self.ticket and is_many == self.is_many:
            self.count += 1
            return 0
        if self.count:
            if self.earlier is None:
                self.earlier = deque()
            self.earlier.append((self.ticket, self.is_many, self.count, self.answer))
        self.ticket, self.is_many, self.count, self.answer = ticket, is_many, 1, answer
        return 0

    cdef int on_durable(self, uint64_t done_ticket, str error) except -1:
        cdef HttpFront front = self.front
        cdef list answers = []
        cdef Py_ssize_t count = 0
        while self.earlier and <uint64_t> self.earlier[0][0] <= done_ticket:
            _, is_many, entry_count, answer = self.earlier.popleft()
            count += self.put_answers(answers, is_many, entry_count, answer, error)
        if self.ticket <= done_ticket:
            count += self.put_answers(answers, self.is_many, self.count, self.answer, error)
            self.shortcut.settle(self)
        if count:
            front.pay(b"".join(answers) if len(answers) > 1 else answers[0], count)
        return 0

    cdef Py_ssize_t put_answers(self, list answers, bint is_many, Py_ssize_t count, bytes answer, str error) except -1:
        """Return how many."""
        cdef Py_ssize_t _
        if answer is None and error is not None:
            # Each of them is counted as refused.
            answers += [self.shortcut.answer_error(NotTakenError(error), is_many) for _ in range(count)]
            return count
        if answer is None:
            ok_count[is_many] += count
            answer = self.shortcut.answer_ok()
        answers += [answer] * count
        return count

    cdef int disconnect(self, str reason) except -1:
        log.error("HTTP: a connection ends - %s", reason)
        (<object> self.front).close()
        return 0
