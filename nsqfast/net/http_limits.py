"""How long the peer of an HTTP connection may take."""

from dataclasses import dataclass

RECEIVE_RATE_MIN = 64 * 1024  # bytes per second that earn a large body more time


@dataclass(frozen=True, slots=True)
class HttpLimits:
    """In seconds."""

    receive_timeout_s: float = 30.0  # from a request's first byte to its last
    idle_timeout_s: float = 120.0  # between requests, and for a peer that does not read its answers
    linger_s: float = 1.0  # after the last answer, for a peer that is still sending

    def receive_s(self, body_size: int) -> float:
        """For a whole request."""
        return self.receive_timeout_s + body_size / RECEIVE_RATE_MIN


DEFAULT_LIMITS = HttpLimits()
