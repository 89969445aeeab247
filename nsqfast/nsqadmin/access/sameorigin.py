"""Refuse requests that another site made a browser send, before any handler sees them; net.browsers says how one tells.

A script sends neither Sec-Fetch-Site nor Origin and is let through: it has no login that another site could use.
"""

import socket
from typing import Final

from aiohttp import web

from nsqfast.net.browsers import is_known, is_own, read_name
from nsqfast.nsqadmin.access.proxy import Proxies, host_of
from nsqfast.nsqadmin.options import Options

FORM: Final = "application/x-www-form-urlencoded"


class Names:
    """The names under which this nsqadmin is served; OptionsError.

    A page whose name was made to resolve to this machine (DNS rebinding) is one of ours to the browser, but not under
    one of these.
    """

    def __init__(self, options: Options) -> None:
        given = options.http_address.rpartition(":")[0].lower()
        own = {socket.gethostname().lower(), given} - {""}
        self._known = own.union(map(read_name, options.allowed_hosts))

    def has(self, request: web.Request) -> bool:
        """Whether it has no other Host; old scripts have none."""
        host = host_of(request).lower()
        return not host or is_known(host, self._known)


def foreign_reason(request: web.Request, proxies: Proxies) -> str:
    """Why a request that may change something is not from one of our own pages; '' if nothing indicates that."""
    site = request.headers.get("Sec-Fetch-Site")
    if site is not None and site != "same-origin":
        return "sent by another site (Sec-Fetch-Site)"
    for origin in request.headers.getall("Origin", []):
        if not is_own(origin, proxies.hosts_of(request)):
            return "sent by another site (Origin)"
    return ""


def has_known_type(request: web.Request) -> bool:
    """Whether the body is JSON or a form, as our pages send it. An empty body needs no type."""
    if not request.body_exists or (
        request.content_length == 0 and "Content-Type" not in request.headers
    ):
        return True
    return request.content_type in ("application/json", FORM)
