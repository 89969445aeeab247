"""A plain publish goes from the bytes received to the topic; the answer is the same bytes all through a second.

Wherever the answer is not OK for sure, the request is given back, and the handlers in Python have it as if nothing had
been. Once a topic was asked to take a message there is no way back, so from there on `reply` words what went wrong.
"""

from libc.string cimport memcmp

from nsqfast._ext.broker.mpub_bodies cimport Bodies
from nsqfast._ext.core.budget cimport Budget, begin_part
from nsqfast._ext.core.clock cimport wall_ns
from nsqfast._ext.core.limits cimport WHOLE_MAX

from nsqfast.errors import ProtocolError

cdef int64_t SECOND_NS = 1000000000
cdef int64_t MS = 1000000


cdef class Shortcut:
    """`reply(None)` gives the answer to a publish that went well, `reply(error)` that to one that did not."""

    def __init__(self, Registry registry not None, object reply not None):
        if registry.settings.is_durable:
            raise ValueError("a durable broker answers when the disk has it, and that is no short way")
        self.registry = registry
        self.reply = reply
        self.ok_second = -1

    cdef bint admits(self, PlainRequest *request) noexcept:
        """Whether sizes and delay are within what the broker takes, and it takes messages at all."""
        if self.registry.is_draining:
            return False
        if request.is_many:
            return request.body_size <= self.registry.settings.max_body_size
        return (request.body_size <= self.registry.settings.max_msg_size
                and request.defer_ms <= self.registry.settings.max_req_timeout_ns // MS)

    cdef Topic find_topic(self, PlainRequest *request):
        """None unless there is such a topic already."""
        return self.registry.topic_by_name.get(request.topic[:request.topic_size].decode("ascii"))

    cdef bytes publish(self, Topic topic, PlainRequest *request):
        """The answer; None if nothing was queued and the request is for somebody else to judge."""
        try:
            if not self.put(topic, request):
                return None
        except ProtocolError:
            return None  # about the framing of a body, which is checked before the first message is queued
        except Exception as error:
            return self.reply(error)
        return self.answer_ok()

    cdef bint put(self, Topic topic, PlainRequest *request) except -1:
        """False: it takes more than a part of a turn."""
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


cdef bint is_named(Topic topic, PlainRequest *request) noexcept:
    """Whether the request is for this topic, and the topic is still one."""
    return (topic is not None and not topic.exiting and len(topic.name_bytes) == request.topic_size
            and memcmp(<const char *> topic.name_bytes, request.topic, request.topic_size) == 0)
