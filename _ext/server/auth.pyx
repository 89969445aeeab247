"""A question to an auth server takes as long as it takes: the command that needs its answer is blocked until then.

The answer is good for its time to live. When that is over nothing happens until the next command that is checked: then
the question is asked again, with the secret of AUTH.
"""

from nsqfast._ext.broker.registry cimport Registry
from nsqfast._ext.core.clock cimport monotonic_ns
from nsqfast._ext.core.memory cimport account, charge

from nsqfast.errors import ProtocolError
from nsqfast.names import quote


cdef class Guarded(Connection):
    """A connection whose client has to say who it is, if the registry has somebody who can tell."""

    def __init__(self, Registry registry not None):
        super().__init__(registry)
        self.is_guarded = registry.authorizer is not None
        self.grant = self.question = None

    def connection_lost(self, exc):
        if self.question is not None:
            self.question.cancel()
            self.question = None
        self.charge_bytes(-self.charged_size)
        Connection.connection_lost(self, exc)

    cdef int charge_bytes(self, int64_t size) except -1:
        """So many bytes more for what the client said of itself and for what packs its stream."""
        charge(&account, size)
        self.charged_size += size
        return 0

    cdef bint authenticate(self, bytes secret) except -1:
        """AUTH, up to its answer; False = blocked."""
        if not self.is_asked:
            if self.grant is not None:
                raise ProtocolError("E_INVALID", "AUTH already set")
            if not self.is_guarded:
                raise ProtocolError("E_AUTH_DISABLED", "AUTH disabled")
            self.charge_bytes(len(secret))
            self.secret = secret
            self.is_asked = True
            self.ask()
            return False
        self.is_asked = False
        if not self.grant.authorizations:
            raise ProtocolError("E_UNAUTHORIZED", "AUTH no authorizations found")
        self.respond(self.grant.answer())
        return True

    cdef bint may(self, str command, str topic, str channel) except -1:
        """Publish to a topic (channel '') or subscribe to a channel; False = blocked, ProtocolError = it may not."""
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
        self.command_blocked = True
        self.question = self.registry.authorizer(self, self.secret, self.on_answer)
        return 0

    def on_answer(self, grant):
        """What an auth server granted; None where none could be asked. Called once, not before `ask` returned."""
        self.question = None
        if self.is_closed or self.is_draining:
            self.command_blocked = False
            self.choose_reading()
            return
        if grant is None:
            # The reason stands in the log: clients that nobody knows are not told.
            self.fail(ProtocolError("E_AUTH_FAILED", "AUTH failed"))
        else:
            self.grant = grant
            self.granted_until_ns = monotonic_ns() + <int64_t> grant.ttl_ns
            self.publish_until_ns = 0
        self.release()
