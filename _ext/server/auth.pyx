"""A request to an auth server may take any time: the command that needs the answer is blocked until then.

The answer is valid for its time to live. When that has passed, the next command that is checked asks again, with the
secret of AUTH. So does a subscription by itself: it ends if it would not be allowed any more, but not because nobody
could be asked.
"""

cimport cython

from nsqfast.errors import ProtocolError
from nsqfast.wire.names import quote
from nsqfast.wire.refusals import REFUSED

cdef int64_t ASK_AGAIN_NS = 10000000000


cdef class Pause(Timed):
    """A client publishes faster than its identity may: the commands behind wait."""

    def __init__(self, Client client not None):
        self.client = client

    cdef int on_deadline(self, int64_t now_ns) except -1:
        return self.client.go_on()


@cython.final
cdef class Auth(Timed):
    """The permissions of one client, which must AUTH if the registry has an authorizer."""

    def __init__(self, Registry registry not None, Client client not None):
        self.registry, self.timers = registry, registry.timers
        self.client = client
        self.is_required = registry.authorizer is not None
        self.grant = self.question = self.error = self.usage = self.topic = self.channel = None

    cdef int cancel(self) except -1:
        """The client is gone: nobody waits for an answer any more."""
        self.timers.disarm(self)
        if self.pause is not None:
            self.timers.disarm(self.pause)
        if self.usage is not None:
            self.usage.leave()
            self.usage = None
        if self.question is not None:
            self.question.cancel()
            self.question = None
        return 0

    cdef int join(self) except -1:
        """Count among the connections of the identity."""
        cdef Usage usage = self.grant.usage
        if usage is not None and not usage.join():
            REFUSED["identity_connections"] += 1
            raise ProtocolError(
                "E_UNAUTHORIZED", f"AUTH failed, this identity may have {usage.connections_max} connections")
        self.usage = usage
        return 0

    cdef bint must_pause(self, int64_t count) except -1:
        """So many messages were published; whether the commands behind wait now. Then the client goes on by itself."""
        cdef int64_t now_ns = self.timers.clock.monotonic_ns(), wait_ns = self.usage.pay(count, now_ns)
        if wait_ns == 0:
            return False
        if self.pause is None:
            self.pause = Pause(self.client)
        self.timers.arm(self.pause, now_ns + wait_ns)
        return True

    cdef int watch(self, str topic, str channel) except -1:
        """It has subscribed: look again when the grant has run out."""
        if not self.is_required:
            return 0
        self.topic, self.channel = topic, channel
        return self.timers.arm(self, self.granted_until_ns)

    cdef int unwatch(self) except -1:
        """It is not subscribed any more."""
        self.channel = None
        return self.timers.disarm(self)

    cdef int on_deadline(self, int64_t now_ns) except -1:
        if now_ns < self.granted_until_ns:
            return self.timers.arm(self, self.granted_until_ns)
        if self.question is None:
            self.question = self.registry.authorizer(self.client, self.secret, self.on_answer)
        return 0

    cdef bint is_withdrawn(self, object grant, bint is_refused) except -1:
        """Whether the subscription is not allowed any more."""
        if self.channel is None:
            return False
        return is_refused if grant is None else not grant.allows(self.topic, self.channel)

    cdef bint authenticate(self, bytes secret) except -1:
        """Run AUTH up to its answer, which is the grant's; False = blocked."""
        if not self.is_asked:
            if self.grant is not None:
                raise ProtocolError("E_INVALID", "AUTH already set")
            if not self.is_required:
                raise ProtocolError("E_AUTH_DISABLED", "AUTH disabled")
            self.secret = secret
            self.is_asked = True
            self.ask()
            return False
        self.is_asked = False
        if not self.grant.authorizations:
            raise ProtocolError("E_UNAUTHORIZED", "AUTH no authorizations found")
        self.join()
        return True

    cdef bint may(self, str command, str topic, str channel) except -1:
        """Check a publish to a topic (channel '') or a subscription to a channel; False = blocked, ProtocolError =
        forbidden."""
        if self.grant is None:
            raise ProtocolError("E_AUTH_FIRST", f"AUTH required before {command}")
        if self.timers.clock.monotonic_ns() >= self.granted_until_ns:
            self.ask()
            return False
        if not self.grant.allows(topic, channel):
            names = f"{quote(topic.encode())} {quote(channel.encode())}"
            raise ProtocolError("E_UNAUTHORIZED", f"AUTH failed for {command} on {names}")
        return True

    cdef int ask(self) except -1:
        self.is_awaited = True
        if self.question is None:
            self.question = self.registry.authorizer(self.client, self.secret, self.on_answer)
        return 0

    def on_answer(self, grant, is_refused):
        """Take what an auth server granted; None if one of them refused, or none could be asked. Called once, and not
        before the question was returned."""
        self.question = None
        if self.is_withdrawn(grant, is_refused):
            REFUSED["grant_withdrawn"] += 1
            self.error = ProtocolError("E_UNAUTHORIZED", "AUTH failed, the subscription is not allowed any more")
        elif grant is not None:
            self.grant = grant
            self.granted_until_ns = self.timers.clock.monotonic_ns() + <int64_t> grant.ttl_ns
            self.publish_until_ns = 0
        elif self.is_awaited or self.channel is None:
            # The log has the reason: unidentified clients are not told.
            self.error = ProtocolError("E_AUTH_FAILED", "AUTH failed")
        if self.channel is not None:
            next_ns = self.granted_until_ns if grant is not None else self.timers.clock.monotonic_ns() + ASK_AGAIN_NS
            self.timers.arm(self, next_ns)
        if self.is_awaited or self.error is not None:
            self.is_awaited = False
            self.client.go_on()
