"""The grants of an auth server, read as strictly as NSQ reads them, and what they allow (spec nsqd-tcp §11).

Regular expressions are RE2's: they take linear time, whatever an auth server sends. They match anywhere in a name, so
`^` and `$` must be written where they are meant.
"""

import json
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import re2

from nsqfast.errors import NsqfastError
from nsqfast.net.http_reply import encode_json
from nsqfast.wire.gotext import INT64_MAX

if TYPE_CHECKING:
    from nsqfast._ext.core.usage import Usage

PUBLISH, SUBSCRIBE = "publish", "subscribe"
EVERYTHING = ".*"

# A grant is kept no longer than this; longer times would not fit into nanoseconds.
TTL_S_MAX = 1_000_000_000
# More is no limit; a message's share of a second is counted in nanoseconds.
RATE_MAX = 1_000_000_000
DECISIONS_MAX = 1024  # remembered per grant
PATTERNS_MAX = 1024  # compiled ones, of all grants

_OPTIONS = re2.Options()
_OPTIONS.log_errors = False
_OPTIONS.never_capture = True


class AuthError(NsqfastError):
    """No auth server gave a good answer; `is_refused` if one of them answered that it does not know the secret."""

    def __init__(self, text: str, *, is_refused: bool = False) -> None:
        super().__init__(text)
        self.is_refused = is_refused


@lru_cache(maxsize=PATTERNS_MAX)
def compile_pattern(text: str) -> Any:
    """Compile an expression; AuthError if it is invalid."""
    try:
        return re2.compile(text, _OPTIONS)
    except re2.error:
        raise AuthError("a regular expression that does not compile") from None


class Authorization:
    """One entry of an answer; AuthError if it cannot be honoured."""

    __slots__ = ("_channels", "_permissions", "_topic", "is_for_everything")

    def __init__(self, topic: str, channels: list[str], permissions: list[str]) -> None:
        if not {PUBLISH, SUBSCRIBE}.issuperset(permissions):
            raise AuthError("a permission that is neither publish nor subscribe")
        self._permissions = frozenset(permissions)
        self._topic = compile_pattern(topic)
        self._channels = [compile_pattern(channel) for channel in channels]
        self.is_for_everything = (
            topic == EVERYTHING and EVERYTHING in channels and len(self._permissions) == 2
        )

    def allows(self, topic: str, channel: str) -> bool:
        """Whether it allows subscribing to a channel or, if `channel` is empty, publishing: then one of the channels
        must match ''.
        """
        return (
            (SUBSCRIBE if channel else PUBLISH) in self._permissions
            and self._topic.search(topic) is not None
            and any(pattern.search(channel) is not None for pattern in self._channels)
        )


class Grant:
    """A client's identity and permissions, valid for `ttl_ns` from the arrival of the answer."""

    __slots__ = (
        "_decisions",
        "authorizations",
        "connections_max",
        "identity",
        "identity_url",
        "rate_max",
        "ttl_ns",
        "usage",
    )

    def __init__(
        self, ttl_s: int, identity: str, identity_url: str, authorizations: list[Authorization]
    ) -> None:
        self.connections_max = self.rate_max = 0  # of all who have this identity; 0 = any number
        self.usage: Usage | None = None  # what they use together; None = it has no limits
        self.ttl_ns = min(ttl_s, TTL_S_MAX) * 1_000_000_000
        self.identity = identity
        self.identity_url = identity_url
        self.authorizations = authorizations
        self._decisions: dict[tuple[str, str], bool] = {}

    def allows(self, topic: str, channel: str) -> bool:
        """Whether any one authorization suffices; `channel` is empty for publishing."""
        known = self._decisions.get((topic, channel))
        if known is not None:
            return known
        if len(self._decisions) >= DECISIONS_MAX:
            self._decisions.clear()
        found = any(entry.allows(topic, channel) for entry in self.authorizations)
        self._decisions[topic, channel] = found
        return found

    def allows_everything(self) -> bool:
        """Whether one authorization says so literally: both permissions, and `.*` as topic and as a channel."""
        return any(entry.is_for_everything for entry in self.authorizations)

    def answer(self) -> bytes:
        """The data of the response to AUTH."""
        return encode_json(
            {
                "identity": self.identity,
                "identity_url": self.identity_url,
                "permission_count": len(self.authorizations),
            }
        )


def read_grant(body: bytes) -> Grant:
    """Read the JSON of an auth server; AuthError says what is wrong with it, without quoting it."""
    try:
        text = body.decode("utf-8", "replace")
        given = json.loads(text, parse_constant=_refuse, object_pairs_hook=_members)
    except (ValueError, RecursionError):
        raise AuthError("an answer that is not JSON") from None
    found = _Fields(given)
    authorizations = [
        Authorization(
            entry.text("topic"),
            [_text(channel) for channel in entry.items("channels")],
            [_text(permission) for permission in entry.items("permissions")],
        )
        for entry in map(_Fields, found.items("authorizations"))
    ]
    ttl_s = found.number("ttl")
    if ttl_s <= 0:
        raise AuthError("a ttl that is not greater than 0")
    grant = Grant(ttl_s, found.text("identity"), found.text("identity_url"), authorizations)
    grant.connections_max = found.number("max_connections")
    grant.rate_max = min(found.number("max_rate"), RATE_MAX)
    if grant.connections_max < 0 or grant.rate_max < 0:
        raise AuthError("a max_connections or max_rate below 0")
    return grant


def _members(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Read an object as Go's decoder does: keys in any case, the last one that is not null wins."""
    return {key.lower(): value for key, value in pairs if value is not None}


class _Fields:
    """An object's members; absent ones have their type's default."""

    def __init__(self, given: object) -> None:
        given = {} if given is None else given
        if not isinstance(given, dict):
            raise _wrong_type()
        self._values = given

    def text(self, name: str) -> str:
        return _text(self._values.get(name))

    def number(self, name: str) -> int:
        value = self._values.get(name, 0)
        if not isinstance(value, int) or isinstance(value, bool) or abs(value) > INT64_MAX:
            raise _wrong_type()
        return value

    def items(self, name: str) -> list[Any]:
        value = self._values.get(name, [])
        if not isinstance(value, list):
            raise _wrong_type()
        return value


def _text(value: object) -> str:
    if value is None:
        return ""
    if not isinstance(value, str):
        raise _wrong_type()
    # Half a surrogate pair becomes U+FFFD, as in Go.
    return value.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def _wrong_type() -> AuthError:
    return AuthError("an answer whose fields have the wrong types")


def _refuse(constant: str) -> float:
    raise ValueError(constant)
