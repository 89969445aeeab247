"""Logins: a signed cookie, and the token in a page's own forms; docs/ADMIN.md says what ends one.

A cookie contains the user, its end, and a mark of the password, which is another one after a change.
"""

import base64
import binascii
import hashlib
import hmac
import secrets
from dataclasses import dataclass
from typing import Final

import msgspec

COOKIE_LENGTH_MAX: Final = 1024
ENDED_MAX: Final = 10_000  # logged out and not yet expired
SIGNATURE_BYTES: Final = hashlib.sha256().digest_size


@dataclass(frozen=True, slots=True)
class Session:
    """One login, as its cookie contains it."""

    id: str
    name: str
    password_mark: str  # see Sessions.mark
    ends_at: float  # Unix time


class Sessions:
    def __init__(self, lifetime_s: float) -> None:
        self.lifetime_s = lifetime_s
        self._key = secrets.token_bytes(32)
        self._ended: dict[str, float] = {}

    def mark(self, password_hash: str) -> str:
        """A mark of the hash that changes with it, and does not reveal it."""
        return self._sign(b"password " + password_hash.encode()).hex()[:16]

    def begin(self, name: str, password_hash: str, now_s: float) -> str:
        """Begin a login; returns the cookie's value."""
        session = Session(
            secrets.token_hex(8), name, self.mark(password_hash), now_s + self.lifetime_s
        )
        body = msgspec.json.encode(session)
        return base64.urlsafe_b64encode(self._sign(b"cookie " + body) + body).decode().rstrip("=")

    def read(self, cookie: str, now_s: float) -> Session | None:
        """None for a foreign, altered, expired or logged-out one."""
        if len(cookie) > COOKIE_LENGTH_MAX:
            return None
        try:
            data = base64.b64decode(
                cookie + "=" * (-len(cookie) % 4), altchars=b"-_", validate=True
            )
        except (binascii.Error, ValueError):
            return None
        signature, body = data[:SIGNATURE_BYTES], data[SIGNATURE_BYTES:]
        if not hmac.compare_digest(signature, self._sign(b"cookie " + body)):
            return None
        session = msgspec.json.decode(body, type=Session)
        if session.ends_at <= now_s or session.id in self._ended:
            return None
        return session

    def end(self, session: Session, now_s: float) -> None:
        """Make its cookie worthless before it expires."""
        if len(self._ended) >= ENDED_MAX:
            self._ended = {key: ends for key, ends in self._ended.items() if ends > now_s}
        while len(self._ended) >= ENDED_MAX:
            self._ended.pop(next(iter(self._ended)))
        self._ended[session.id] = session.ends_at

    def token(self, session: Session) -> str:
        """The token that forms and scripts of this login send along; another site cannot read it."""
        return self._sign(b"token " + session.id.encode()).hex()

    def is_token(self, session: Session, token: str) -> bool:
        """Whether this is the login's token, compared in constant time."""
        return hmac.compare_digest(token.encode("utf-8", "replace"), self.token(session).encode())

    def _sign(self, data: bytes) -> bytes:
        return hmac.digest(self._key, data, "sha256")
