"""--notification-http-endpoint: a POST for each of NSQ's own actions, as its nsqadmin sends it.

One after the other, in the background. An endpoint that does not answer is logged and does no harm.
"""

import asyncio
import collections
import logging
import os
import socket
import time
from typing import Final
from urllib.parse import urlsplit

import aiohttp
import orjson
from aiohttp import web

from nsqfast.errors import OptionsError
from nsqfast.nsqadmin.access.identity import basic_of
from nsqfast.nsqadmin.access.proxy import host_of, peer_of, readable
from nsqfast.nsqadmin.access.roles import user_of

log = logging.getLogger("nsqadmin")

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
QUEUE_MAX: Final = 1000
TIMEOUT_S: Final = 5.0


class Webhook:
    """One per nsqadmin that has an endpoint."""

    def __init__(self, endpoint: str) -> None:
        """OptionsError if it is not a URL."""
        try:
            parts = urlsplit(endpoint)
            is_url = parts.scheme in ("http", "https") and bool(parts.hostname)
        except ValueError:
            is_url = False
        if not is_url:
            raise OptionsError(
                f"--notification-http-endpoint has to be http://... or https://...: {endpoint}"
            )
        self._endpoint = endpoint
        self._bodies: collections.deque[bytes] = collections.deque()
        self._task: asyncio.Task[None] | None = None

    def tell(self, request: web.Request, action: str, target: dict[str, str], outcome: str) -> None:
        """Queue a notification without waiting. Actions unknown to NSQ, and refused ones, are not sent."""
        if action not in ACTIONS or outcome == "refused":
            return
        if outcome == "failed" and action not in TOLD_WHEN_FAILED:
            return
        if len(self._bodies) >= QUEUE_MAX:
            log.error("webhook: %s of %s was not sent: %d wait", action, target, QUEUE_MAX)
            return
        self._bodies.append(orjson.dumps(notification(request, action, target)))
        if self._task is None or self._task.done():
            self._task = asyncio.get_running_loop().create_task(self._send_all())

    async def close(self, wait_s: float) -> None:
        """Send waiting notifications, but not for longer than this."""
        if self._task is None:
            return
        _, pending = await asyncio.wait([self._task], timeout=wait_s)
        if pending:
            self._task.cancel()
            await asyncio.wait([self._task])
            # The one being sent is no longer in the queue.
            log.error("webhook: %d notifications were not sent", len(self._bodies) + 1)

    async def _send_all(self) -> None:
        # One session per burst: actions are rare, and nothing is kept open between them.
        timeout = aiohttp.ClientTimeout(total=TIMEOUT_S)
        while self._bodies:  # again, because an action may come while the session is closed
            async with aiohttp.ClientSession(timeout=timeout) as session:
                while self._bodies:
                    await self._send(session, self._bodies.popleft())

    async def _send(self, session: aiohttp.ClientSession, body: bytes) -> None:
        headers = {"Content-Type": "application/json"}
        try:
            async with session.post(
                self._endpoint, data=body, headers=headers, allow_redirects=False
            ) as answer:
                if answer.status >= 300:
                    log.error("webhook: %s answered %d", self._shown, answer.status)
        except TimeoutError:
            log.error("webhook: %s did not answer within %g s", self._shown, TIMEOUT_S)  # noqa: TRY400
        except (aiohttp.ClientError, OSError, ValueError) as error:
            log.error("webhook: %s: %s", self._shown, error)  # noqa: TRY400 - not our fault

    @property
    def _shown(self) -> str:
        # Without the user, password and query that it may have.
        parts = urlsplit(self._endpoint)
        return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}"


def notification(request: web.Request, action: str, target: dict[str, str]) -> dict[str, str | int]:
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
        "via": _hostname(),
    }
    return {
        key: readable(value) if isinstance(value, str) else value for key, value in told.items()
    }


def _hostname() -> str:
    try:
        return socket.gethostname() or os.uname().nodename
    except OSError:
        return ""
