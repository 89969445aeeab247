"""A plain publish goes from the input buffer to the topic; the same answer bytes are used for a second.

Unless the answer is certainly OK, the request is returned, and the Python handlers get it as if nothing had happened.
Once a topic was asked to take a message there is no way back, so from there on `reply` words the errors.
"""

from nsqfast._ext.broker.mpub_bodies cimport Bodies
from nsqfast._ext.core.budget cimport Budget, begin_part
from nsqfast._ext.core.clock cimport wall_ns
from nsqfast._ext.core.limits cimport WHOLE_MAX

from nsqfast.errors import ProtocolError

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
        if registry.settings.has_log:
            raise ValueError("a durable broker answers when the disk has it, and that is no short way")
        self.registry = registry
        self.reply = reply
        self.asks_host = asks_host
        self.ok_second = -1

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

    cdef bytes publish(self, PlainRequest *request):
        """Return the answer; None if nothing was queued and the Python handlers must decide."""
        cdef Topic topic = self.registry.topics.find_ascii(request.topic, request.topic_size)
        if topic is None or not self.admits(request):
            return None
        try:
            if not self.put(topic, request):
                return None
        except ProtocolError:
            return None  # invalid framing of a body, found before the first message is queued
        except Exception as error:
            return self.reply(error, "/mpub" if request.is_many else "/pub")
        ok_count[request.is_many] += 1
        return self.answer_ok()

    cdef bint put(self, Topic topic, PlainRequest *request) except -1:
        """False: it would take more than a part of a turn."""
        cdef Bodies bodies
        cdef Budget budget
        if not request.is_many:
            topic.publish(request.body, request.body_size, request.defer_ms)
            return True
        bodies = Bodies(topic, request.body[:request.body_size], request.is_binary)
        budget = begin_part()
        if not bodies.check_some(&budget) or bodies.count > WHOLE_MAX:
            return False
        bodies.put_next()
        return True

    cdef bytes answer_ok(self):
        cdef int64_t second = wall_ns() // SECOND_NS
        if second != self.ok_second:
            self.ok = self.reply(None)
            self.ok_second = second
        return self.ok
