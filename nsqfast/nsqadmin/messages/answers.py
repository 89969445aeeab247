"""nsqd's answers to /channel/peek and /topic/peek (docs/PEEK.md), as far as pages need them."""

import base64
import binascii

import msgspec

from nsqfast.nsqadmin.cluster.answers import UpstreamError


class PeekedClient(msgspec.Struct):
    """The consumer that has a message in flight."""

    client_id: str = ""
    hostname: str = ""
    remote_address: str = ""


class PeekedMessage(msgspec.Struct):
    """Times in ns since 1970; `encoding` is "text" or "base64"."""

    id: str
    timestamp: int = 0
    age_ms: int = 0
    attempts: int = 0
    size: int = 0
    where: str = ""
    due: int | None = None
    due_in_ms: int | None = None
    client: PeekedClient | None = None
    body: str = ""
    encoding: str = "text"
    is_truncated: bool = False

    @property
    def piece(self) -> bytes:
        """The beginning of the body, or all of it; UpstreamError if it is malformed."""
        if self.encoding != "base64":
            return self.body.encode()
        try:
            return base64.b64decode(self.body, validate=True)
        except binascii.Error as error:
            raise UpstreamError(f"the body of message {self.id[:32]}: {error}") from None


class Peeked(msgspec.Struct):
    """`scanned` messages from `offset` on were examined; `next_offset` is None if no more can be seen."""

    taken_at: int = 0
    depth: int = 0
    offset: int = 0
    scanned: int = 0
    is_complete: bool = True
    next_offset: int | None = None
    next: str | None = None
    note: str | None = None
    messages: list[PeekedMessage] = []
