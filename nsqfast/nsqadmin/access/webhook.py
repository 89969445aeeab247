"""--notification-http-endpoint: a POST for each of NSQ's own actions, as its nsqadmin sends it: once."""

import os
import socket
import time
from typing import Final

from aiohttp import web

from nsqfast.nsqadmin.access.identity import basic_of
from nsqfast.nsqadmin.access.proxy import host_of, peer_of, readable
from nsqfast.nsqadmin.access.roles import user_of

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


def is_told(action: str, outcome: str) -> bool:
    """Actions unknown to NSQ, and refused ones, are not sent."""
    if action not in ACTIONS or outcome == "refused":
        return False
    return outcome != "failed" or action in TOLD_WHEN_FAILED


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
