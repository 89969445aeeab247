"""Who did what: a line in a file, the last thousand in memory, and a webhook."""

import asyncio
import collections
import datetime as dt
import itertools
import logging
import os
import socket
import time
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any, Final

import msgspec
import orjson
from aiohttp import web

from nsqfast.errors import OptionsError
from nsqfast.nsqadmin.access.identity import basic_of
from nsqfast.nsqadmin.access.origin import Proxies, host_of, peer_of, readable
from nsqfast.nsqadmin.access.users import user_of
from nsqfast.nsqadmin.options import Options
from nsqfast.nsqadmin.outbox import Outbox
from nsqfast.nsqadmin.results import Outcome, Result, outcome_of
from nsqfast.wire.gotext import os_error

# Go reports these even if no node did the action, the others only if one did.
TOLD_WHEN_FAILED: Final = frozenset(
    f"{verb}_{thing}" for verb in ("pause", "unpause", "empty") for thing in ("topic", "channel")
)
ACTIONS: Final = TOLD_WHEN_FAILED | {
    "create_topic",
    "create_channel",
    "delete_topic",
    "delete_channel",
    "tombstone_topic_producer",
}
log = logging.getLogger("nsqadmin")
LINES_MAX: Final = 10_000  # waiting while the disk does not answer
MODE: Final = 0o640
ENTRIES_KEPT: Final = 1000
TEXT_LENGTH_MAX: Final = 512  # of each text in an entry: names and errors come from outside
EFFECT_BYTES_MAX: Final = 64 << 10  # the names of 500 topics
RESULTS_KEPT: Final = 200  # per entry in memory; the file gets them all
CLOSE_S: Final = 2.0
ENDPOINT_FLAG: Final = "--notification-http-endpoint"
NOTHING: Final[Mapping[str, Any]] = MappingProxyType({})
REQUEST_ID_KEY: Final[web.RequestKey[str]] = web.RequestKey("nsqadmin.request_id", str)


def is_for_webhook(action: str, outcome: str) -> bool:
    """Actions unknown to NSQ, and refused ones, are not sent."""
    if action not in ACTIONS or outcome == "refused":
        return False
    return outcome != "failed" or action in TOLD_WHEN_FAILED


def notification(
    request: web.Request, action: str, target: Mapping[str, str]
) -> dict[str, str | int]:
    """The keys of Go's nsqadmin, in its order. `user` is that of HTTP Basic as there, otherwise the logged-in one."""
    is_https = request.secure or request.headers.get("X-Scheme") == "https"
    user = basic_of(request).partition(":")[0] or user_of(request).name
    told: dict[str, str | int] = {"action": action, "topic": target.get("topic", "")}
    told |= {key: target[key] for key in ("channel", "node") if target.get(key)}
    told["timestamp"] = int(time.time())
    if user:
        told["user"] = user
    told |= {
        "remote_ip": peer_of(request),
        "user_agent": request.headers.get("User-Agent", ""),
        "url": f"{'https' if is_https else 'http'}://{host_of(request)}{request.rel_url}",
        "via": socket.gethostname(),
    }
    return {
        key: readable(value) if isinstance(value, str) else value for key, value in told.items()
    }


class AuditFile:
    """Opened anew for each batch, so that the file may be renamed at any time (logrotate needs no signal)."""

    def __init__(self, path: str) -> None:
        """OptionsError if it cannot be opened."""
        self._path = path
        self._lines: list[bytes] = []
        self._lost = 0
        self._is_torn = False
        self._task: asyncio.Task[None] | None = None
        try:
            os.close(self._open())
        except OSError as error:
            raise OptionsError(f"failed to open --audit-file {path}: {os_error(error)}") from None

    def add(self, line: bytes) -> None:
        """Add one line with its newline, without waiting; a line that cannot be kept is counted and logged."""
        if len(self._lines) >= LINES_MAX:
            self._lost += 1
            return
        self._lines.append(line)
        if self._task is None or self._task.done():
            self._task = asyncio.get_running_loop().create_task(self._write_all())

    async def close(self, wait_s: float) -> None:
        """Write waiting lines, but not for longer than this."""
        if self._task is not None:
            await asyncio.wait([self._task], timeout=wait_s)

    async def _write_all(self) -> None:
        while self._lines:
            batch, self._lines = self._lines, []
            try:
                await asyncio.to_thread(self._append, b"".join(batch))
            except OSError as error:
                self._lost += len(batch)
                log.error(  # noqa: TRY400 - the disk's fault
                    "%s: %s; %d lines are lost", self._path, os_error(error), self._lost
                )
            else:
                if self._lost:
                    log.error("%s: can be written again; %d lines are lost", self._path, self._lost)
                self._lost = 0

    def _append(self, data: bytes) -> None:
        file = self._open()
        try:
            if self._is_torn:
                data = b"\n" + data
            rest = memoryview(data)
            while rest:
                self._is_torn = len(rest) < len(data)
                rest = rest[os.write(file, rest) :]
            self._is_torn = False
        finally:
            os.close(file)

    def _open(self) -> int:
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC
        return os.open(self._path, flags, MODE)


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
    """What was done on one nsqadmin; it tells the file and the webhook, too."""

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
        target: Mapping[str, str] = NOTHING,
        *,
        effect: Mapping[str, object] = NOTHING,
        results: Sequence[Result] = (),
        outcome: Outcome | None = None,
    ) -> None:
        """Record an attempt, once, when its outcome is known. Neither waits for the disk nor fails.

        `action` is NSQ's word if there is one (create_topic, empty_channel...): only these go to the webhook. `target`
        has some of the keys topic, channel, node; `effect` is the intended effect, and the outcome that of the results.
        """
        user = user_of(request)
        outcome = outcome or outcome_of(results)
        target = {name: value for name, value in target.items() if value}
        entry = Entry(
            time=dt.datetime.now(dt.UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z"),
            user=_cut(user.name),
            role=user.role.value,
            ip=self._proxies.address_of(request),
            action=_cut(action),
            target={name: _cut(value) for name, value in target.items()},
            effect=_plain(dict(effect)),
            results=[Result(r.node, r.ok, _cut(r.text)) for r in results],
            outcome=outcome,
            request_id=request.get(REQUEST_ID_KEY, ""),
        )
        self._entries.append(_shorten(entry))
        if self._file is not None:
            self._file.add(msgspec.json.encode(entry) + b"\n")
        if self._outbox is not None and is_for_webhook(action, outcome):
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
