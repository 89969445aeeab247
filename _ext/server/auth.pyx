"""A request to an auth server may take any time: the command that needs the answer is blocked until then.

The answer is valid for its time to live. When that has passed, nothing happens until the next command that is checked:
then the auth servers are asked again, with the secret of AUTH.
"""

from nsqfast._ext.core.clock cimport monotonic_ns
from nsqfast._ext.core.limits cimport FRAME_RESPONSE
from nsqfast._ext.server.host cimport PHASE_DRAINING

from nsqfast._ext.protocol.frame import encode
from nsqfast.errors import ProtocolError
from nsqfast.names import quote


cdef class Auth:
    """The permissions of one client, which must AUTH if the registry has an authorizer."""

    def __init__(self, Host host not None):
        self.host = host
        self.is_required = host.registry.authorizer is not None
        self.grant = self.question = None

    cdef int cancel(self) except -1:
        """Nobody waits for an answer any more."""
        if self.question is not None:
            self.question.cancel()
            self.question = None
        return 0

    cdef bint authenticate(self, bytes secret) except -1:
        """Run AUTH up to its answer; False = blocked."""
        if not self.is_asked:
            if self.grant is not None:
                raise ProtocolError("E_INVALID", "AUTH already set")
            if not self.is_required:
                raise ProtocolError("E_AUTH_DISABLED", "AUTH disabled")
            self.host.charge_bytes(len(secret))
            self.secret = secret
            self.is_asked = True
            self.ask()
            return False
        self.is_asked = False
        if not self.grant.authorizations:
            raise ProtocolError("E_UNAUTHORIZED", "AUTH no authorizations found")
        self.host.send(encode(FRAME_RESPONSE, self.grant.answer()))
        return True

    cdef bint may(self, str command, str topic, str channel) except -1:
        """Check a publish to a topic (channel '') or a subscription to a channel; False = blocked, ProtocolError =
        forbidden."""
        if self.grant is None:
            raise ProtocolError("E_AUTH_FIRST", f"AUTH required before {command}")
        if monotonic_ns() >= self.granted_until_ns:
            self.ask()
            return False
        if not self.grant.allows(topic, channel):
            names = f"{quote(topic.encode())} {quote(channel.encode())}"
            raise ProtocolError("E_UNAUTHORIZED", f"AUTH failed for {command} on {names}")
        return True

    cdef int ask(self) except -1:
        self.host.command_blocked = True
        self.question = self.host.registry.authorizer(self.host, self.secret, self.on_answer)
        return 0

    def on_answer(self, grant):
        """Take what an auth server granted; None if none could be asked. Called once, and not before `ask` has
        returned."""
        self.question = None
        if self.host.phase >= PHASE_DRAINING:
            self.host.unblock()
            return
        if grant is None:
            # The log has the reason: unidentified clients are not told.
            self.host.fail(ProtocolError("E_AUTH_FAILED", "AUTH failed"))
        else:
            self.grant = grant
            self.granted_until_ns = monotonic_ns() + <int64_t> grant.ttl_ns
            self.publish_until_ns = 0
        self.host.release()
