"""Who did what: a line in a file, the last thousand in memory, and a webhook."""

import collections
import datetime as dt
import itertools
import time
from typing import Final

import msgspec
import orjson
from aiohttp import web

from nsqfast.nsqadmin.access.audit_file import AuditFile
from nsqfast.nsqadmin.access.proxy import Proxies, readable
from nsqfast.nsqadmin.access.roles import user_of
from nsqfast.nsqadmin.access.webhook import is_told, notification
from nsqfast.nsqadmin.options import Options
from nsqfast.nsqadmin.outbox import Outbox
from nsqfast.nsqadmin.results import Outcome, Result

ENTRIES_KEPT: Final = 1000
TEXT_LENGTH_MAX: Final = 512  # of each text in an entry: names and errors come from outside
EFFECT_BYTES_MAX: Final = 64 << 10  # the names of 500 topics
RESULTS_KEPT: Final = 200  # per entry in memory; the file gets them all
CLOSE_S: Final = 2.0
ENDPOINT_FLAG: Final = "--notification-http-endpoint"
REQUEST_ID_KEY: Final[web.RequestKey[str]] = web.RequestKey("nsqadmin.request_id", str)


class Entry(msgspec.Struct, frozen=True):
    """One attempt, as written to --audit-file, with these names."""

    time: str  # RFC 3339, UTC
    user: str
    role: str
    ip: str
    action: str
    target: dict[str, str]
    effect: dict[str, object]
    results: list[Result]
    outcome: Outcome
    request_id: str


class Audit:
    """One per nsqadmin."""

    def __init__(self, options: Options) -> None:
        """OptionsError for a file that cannot be opened, or an endpoint that is not a URL."""
        self._entries: collections.deque[Entry] = collections.deque(maxlen=ENTRIES_KEPT)
        self._proxies = Proxies(options.acl_trusted_cidr)
        self._file = AuditFile(options.audit_file) if options.audit_file else None
        endpoint = options.notification_http_endpoint
        self._outbox = Outbox(ENDPOINT_FLAG, endpoint) if endpoint else None

    async def note(
        self,
        request: web.Request,
        action: str,
        target: dict[str, str],
        *,
        effect: dict[str, object] | None = None,
        results: list[Result] | None = None,
        outcome: Outcome,
    ) -> None:
        """Record an attempt, once, when its outcome is known. Neither waits for the disk nor fails.

        `action` is NSQ's word if there is one (create_topic, empty_channel...): only these go to the webhook. `target`
        has some of the keys topic, channel, node; `effect` is the intended effect.
        """
        user = user_of(request)
        entry = Entry(
            time=dt.datetime.now(dt.UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z"),
            user=_cut(user.name),
            role=user.role.value,
            ip=self._proxies.address_of(request),
            action=_cut(action),
            target={name: _cut(value) for name, value in target.items()},
            effect=_plain(effect or {}),
            results=[Result(r.node, r.ok, _cut(r.text)) for r in results or ()],
            outcome=outcome,
            request_id=request.get(REQUEST_ID_KEY, ""),
        )
        self._entries.append(_shorten(entry))
        if self._file is not None:
            self._file.add(msgspec.json.encode(entry) + b"\n")
        if self._outbox is not None and is_told(action, outcome):
            body = orjson.dumps(notification(request, action, target))
            self._outbox.add(body, f"{action} of {target}")

    def last(self, count: int = ENTRIES_KEPT) -> list[Entry]:
        """The newest first, at most ENTRIES_KEPT."""
        return list(itertools.islice(reversed(self._entries), count))

    async def close(self) -> None:
        """Write and send waiting entries, for CLOSE_S at most."""
        ends_at = time.monotonic() + CLOSE_S
        if self._file is not None:
            await self._file.close(CLOSE_S)
        if self._outbox is not None:
            await self._outbox.close(max(0.0, ends_at - time.monotonic()))


def _shorten(entry: Entry) -> Entry:
    if len(entry.results) <= RESULTS_KEPT:
        return entry
    # Keep the failures: somebody will look for them.
    results = sorted(entry.results, key=lambda result: result.ok)[:RESULTS_KEPT]
    return msgspec.structs.replace(entry, results=results)


def _plain(effect: dict[str, object]) -> dict[str, object]:
    """A copy that is surely valid JSON and not too long; every attempt is recorded, whatever its target."""
    try:
        data = msgspec.json.encode(effect, enc_hook=str)
    except (TypeError, ValueError):
        data = b""
    if not data or len(data) > EFFECT_BYTES_MAX:
        return {"text": _cut(repr(effect))}
    return msgspec.json.decode(data, type=dict[str, object])


def _cut(text: str) -> str:
    text = readable(text)
    return text if len(text) <= TEXT_LENGTH_MAX else text[: TEXT_LENGTH_MAX - 1] + "…"
