"""Refuse requests that another site made a browser send, before any handler sees them.

A browser tells by Sec-Fetch-Site (https://www.w3.org/TR/fetch-metadata/) or Origin
(https://www.rfc-editor.org/rfc/rfc6454) where a request comes from. A script sends neither and is let through: it has
no login that another site could use.
"""

from typing import Final
from urllib.parse import urlsplit

from aiohttp import web

from nsqfast.nsqadmin.access.proxy import Proxies

SAFE_METHODS: Final = frozenset(("GET", "HEAD", "OPTIONS"))
FORM: Final = "application/x-www-form-urlencoded"
DEFAULT_PORTS: Final = {"http": 80, "https": 443}


def foreign_reason(request: web.Request, proxies: Proxies) -> str:
    """Why a request that may change something is not from one of our own pages; '' if nothing indicates that."""
    site = request.headers.get("Sec-Fetch-Site")
    if site is not None and site != "same-origin":
        return "sent by another site (Sec-Fetch-Site)"
    for origin in request.headers.getall("Origin", []):
        if not _is_ours(origin, proxies.hosts_of(request)):
            return "sent by another site (Origin)"
    return ""


def _is_ours(origin: str, hosts: list[str]) -> bool:
    try:
        parts = urlsplit(origin.strip().lower())
        wanted = (parts.hostname, parts.port or DEFAULT_PORTS.get(parts.scheme))
    except ValueError:
        return False
    if not parts.hostname:  # `null`: a sandboxed frame, a file, a redirect from elsewhere
        return False
    return any(_split(host, parts.scheme) == wanted for host in hosts)


def _split(host: str, scheme: str) -> tuple[str | None, int | None]:
    try:
        parts = urlsplit(f"//{host}")
        return parts.hostname, parts.port or DEFAULT_PORTS.get(scheme)
    except ValueError:
        return None, None


def has_known_type(request: web.Request) -> bool:
    """Whether the body is JSON or a form, as our pages send it. An empty body needs no type."""
    if not request.body_exists or (
        request.content_length == 0 and "Content-Type" not in request.headers
    ):
        return True
    return request.content_type in ("application/json", FORM)
