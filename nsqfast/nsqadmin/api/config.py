"""GET and PUT /config/NAME: a setting by its config key, for permitted addresses; changes end with the program.

Access has checked that the user is an admin.
"""

import logging
from typing import Any

import msgspec
from aiohttp import web

from nsqfast.net.addresses import mask_address, place_of
from nsqfast.nsqadmin.access.answers import V1
from nsqfast.nsqadmin.access.origin import parse_peer_ip
from nsqfast.nsqadmin.actions.order import read_limited
from nsqfast.nsqadmin.api.answers import answer
from nsqfast.nsqadmin.api.bodies import BODY_SIZE_MAX
from nsqfast.nsqadmin.checks import parse_cidr
from nsqfast.nsqadmin.context import Context
from nsqfast.nsqadmin.options import PROGRAM, Options
from nsqfast.program import logs
from nsqfast.program.options import by_key

log = logging.getLogger(PROGRAM)

WEBHOOKS = ("notification_http_endpoint", "problem_webhook")


class Config:
    def __init__(self, context: Context) -> None:
        self._context = context
        self._options = context.options
        cidr = context.options.allow_config_from_cidr
        self._network = parse_cidr(cidr) if cidr else None
        self._known = by_key(Options)

    async def get(self, request: web.Request) -> web.Response:
        """A string without its secrets, anything else as JSON, durations in nanoseconds."""
        self._check_address(request)
        return self._answer(request.match_info["name"])

    async def put(self, request: web.Request) -> web.Response:
        self._check_address(request)
        body = await read_limited(request, BODY_SIZE_MAX, "INVALID_VALUE")
        if not body:
            raise web.HTTPRequestEntityTooLarge(BODY_SIZE_MAX, len(body), text="INVALID_VALUE")
        name = request.match_info["name"]
        if name == "log_level":
            self._set_log_level(body)
        elif name == "nsqlookupd_http_addresses":
            self._options.nsqlookupd_http_addresses = _read_addresses(body)
            self._context.poller.ask_now()
        else:
            raise web.HTTPBadRequest(text="INVALID_OPTION")
        log.info("/config/%s was set", name)
        effect = {"name": name, "value": body[:1024].decode("utf-8", "replace")}
        await self._context.audit.note(request, "set_config", effect=effect)
        return self._answer(name)

    def _check_address(self, request: web.Request) -> None:
        if self._network is None:
            return
        peer = parse_peer_ip(request.remote or "")
        if peer is None:
            raise web.HTTPBadRequest(text="INVALID_REMOTE_ADDR")
        if peer not in self._network:
            raise web.HTTPForbidden(text="FORBIDDEN")

    def _answer(self, name: str) -> web.Response:
        option = self._known.get(name)
        if option is None:
            raise web.HTTPBadRequest(text="INVALID_OPTION")
        value: Any = getattr(self._options, option.attribute)
        if isinstance(value, str):
            # The path of a webhook is often its secret.
            mask = place_of if name in WEBHOOKS else mask_address
            return web.Response(text=mask(value) if "://" in value else value, headers=V1)
        return answer(value)

    def _set_log_level(self, body: bytes) -> None:
        level = logs.LEVELS.get(body.decode("latin-1").lower())
        if level is None:
            raise web.HTTPBadRequest(text="INVALID_VALUE")
        self._options.log_level = level
        logs.set_level(PROGRAM, level)


def _read_addresses(body: bytes) -> list[str]:
    try:
        return msgspec.json.decode(body, type=list[str] | None) or []
    except (msgspec.DecodeError, UnicodeDecodeError):
        raise web.HTTPBadRequest(text="INVALID_VALUE") from None
