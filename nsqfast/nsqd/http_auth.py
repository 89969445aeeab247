"""--http-auth-required: who may use which endpoint of the HTTP API (docs/AUTH.md).

The auth servers and their rules are those of AUTH over TCP; the secret comes as `Authorization: Bearer SECRET`. A grant
is cached for its time to live, under a digest of the whole query, and identical queries wait for the one that is
already under way.
"""

import asyncio
import logging
from collections import OrderedDict
from hashlib import sha256
from typing import NamedTuple

from nsqfast._ext.core.clock import now
from nsqfast.net.http_message import Request, Response, parse_query
from nsqfast.net.http_reply import error_answer
from nsqfast.nsqd.auth import AuthClient, AuthError, Grant
from nsqfast.wire.names import is_valid_name

log = logging.getLogger("nsqd")

GRANTS_MAX = 4096
SCHEME = b"bearer"

CHALLENGE = b"WWW-Authenticate: Bearer\r\n"
UNKNOWN = error_answer(401, "UNAUTHORIZED", CHALLENGE)
DENIED = error_answer(403, "FORBIDDEN")
UNREACHABLE = error_answer(503, "AUTH_FAILED")


def may(need: str, request: Request, grant: Grant) -> bool:
    """Whether the grant covers an endpoint's demand (see Route): a topic, a channel of one, or everything."""
    if need == "everything":
        return grant.allows_everything()
    try:
        names = parse_query(request.query)
    except ValueError:
        names = {}
    topic, channel = names.get("topic", ""), names.get("channel", "")
    if not is_valid_name(topic) or (need == "channel" and not is_valid_name(channel)):
        return True  # it does not exist: the handler says so, and does nothing
    return grant.allows(topic, channel if need == "channel" else "")


class _Kept(NamedTuple):
    grant: Grant
    until_ns: int


class HttpAuth:
    """Authorizes the requests of one listener; `is_tls` is reported to the auth servers."""

    def __init__(self, client: AuthClient, *, is_tls: bool) -> None:
        self._client = client
        self._is_tls = is_tls
        self._kept: OrderedDict[bytes, _Kept] = OrderedDict()
        self._asked: dict[bytes, asyncio.Task[Grant]] = {}

    def check(
        self, request: Request, need: str
    ) -> "Response | asyncio.Future[Response | None] | None":
        """The refusal, None if there is none, or a future of either while an auth server is being asked."""
        secret = _secret(request)
        if not secret:
            return UNKNOWN
        host = _host(request.remote)
        key = sha256(b"%d %b\n%b" % (self._is_tls, host.encode(), secret)).digest()
        kept = self._kept.get(key)
        if kept is not None and now()[1] < kept.until_ns:
            self._kept.move_to_end(key)
            return _judge(request, need, kept.grant)
        task = self._asked.get(key)
        if task is None:
            query = self._client.query(secret, host, self._is_tls, "")
            task = self._asked[key] = asyncio.ensure_future(query)
            task.add_done_callback(lambda done: self._keep(key, done))
        return asyncio.ensure_future(self._wait(request, need, task))

    async def _wait(
        self, request: Request, need: str, task: "asyncio.Task[Grant]"
    ) -> Response | None:
        try:
            return _judge(request, need, await asyncio.shield(task))
        except AuthError as error:
            if (note := request.admit_line()) is not None:
                log.warning("HTTP: client(%s) - AUTH failed %s%s", request.remote, error, note)
            return UNKNOWN if error.is_refused else UNREACHABLE

    def _keep(self, key: bytes, done: asyncio.Task[Grant]) -> None:
        del self._asked[key]
        if done.cancelled() or done.exception() is not None:
            return
        grant = done.result()
        self._kept[key] = _Kept(grant, now()[1] + grant.ttl_ns)
        self._kept.move_to_end(key)
        if len(self._kept) > GRANTS_MAX:
            self._kept.popitem(last=False)


def _judge(request: Request, need: str, grant: Grant) -> Response | None:
    if not grant.authorizations:
        return UNKNOWN
    request.usage = grant.usage
    return None if may(need, request, grant) else DENIED


def _secret(request: Request) -> bytes:
    scheme, _, secret = request.headers.get(b"authorization", b"").partition(b" ")
    return secret.strip() if scheme.lower() == SCHEME else b""


def _host(remote: str) -> str:
    """Without the port; '' for a unix socket's client."""
    return remote.rpartition(":")[0].strip("[]")
