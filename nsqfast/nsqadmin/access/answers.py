"""The outermost handling of every request: an id, a line in the log, headers, and an answer even after an error.

Scripts get NSQ's `{"message": "..."}`, browsers a page. Our own errors are logged with their tracebacks, which nobody
sees.
"""

import logging
import re
import secrets
import time
from collections.abc import Mapping
from http import HTTPStatus
from typing import Final, Protocol
from urllib.parse import urlsplit

import msgspec
import orjson
from aiohttp import web
from aiohttp.typedefs import Handler

from nsqfast.errors import OptionsError
from nsqfast.nsqadmin.access.audit import REQUEST_ID_KEY
from nsqfast.nsqadmin.access.origin import Proxies, peer_of, readable
from nsqfast.nsqadmin.context import context_of
from nsqfast.nsqadmin.options import Options
from nsqfast.wire.gotext import format_duration

POLICY: Final = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:{images}; connect-src 'self'; "
    "form-action 'self'; base-uri 'none'; frame-ancestors 'none'; "
    "require-trusted-types-for 'script'; trusted-types 'none'"
)
log = logging.getLogger("nsqadmin")
PREPARED_KEY: Final[web.RequestKey[bool]] = web.RequestKey("nsqadmin.prepared", bool)
REQUEST_ID: Final = re.compile(r"[A-Za-z0-9._-]{1,64}")
JSON_PATHS: Final = ("/api/", "/ui/", "/config/")
# Polled constantly.
QUIET_PATHS: Final = ("/ui/", "/static/", "/ping", "/livez", "/readyz", "/metrics")
V1: Final = {"X-NSQ-Content-Type": "nsq; version=1.0"}
JSON: Final = {"Content-Type": "application/json; charset=utf-8", **V1}
SENTENCES: Final = {
    "FORBIDDEN": "You may not do this: ask the operator of this nsqadmin.",
    "NOT_FOUND": "There is no such page.",
    "METHOD_NOT_ALLOWED": "This address does not take such requests.",
    "UNAUTHORIZED": "Log in first.",
    "UNKNOWN_HOST": "This nsqadmin is not known by the name in the address. Its flag --allowed-host adds a name.",
    "INTERNAL_ERROR": "Something went wrong here. The log of nsqadmin has the cause.",
}


def _origin(url: str) -> str:
    """An origin for use in a policy: nothing in it may end the directive or begin another one."""
    try:
        parts = urlsplit(url)
        host, port = parts.hostname or "", parts.port
    except ValueError:
        host, port = "", None
    is_name = bool(host) and all(sign.isalnum() or sign in "-._:" for sign in host)
    if parts.scheme not in ("http", "https") or not is_name or not host.isascii():
        raise OptionsError(f"--graphite-url has to be http://HOST or https://HOST: {url}")
    host = f"[{host}]" if ":" in host else host
    return f"{parts.scheme}://{host}:{port}" if port else f"{parts.scheme}://{host}"


class SecurityHeaders:
    """Registered as a signal of the application, because that also fires for streamed responses."""

    def __init__(self, options: Options) -> None:
        images = ""
        if options.graphite_url and not options.proxy_graphite:
            # Browsers fetch Graphite's pictures from there.
            images = " " + _origin(options.graphite_url)
        self.headers = {
            "Content-Security-Policy": POLICY.format(images=images),
            "X-Content-Type-Options": "nosniff",
            "Referrer-Policy": "same-origin",
            "X-Frame-Options": "DENY",
            "Cross-Origin-Opener-Policy": "same-origin",
            "Server": "nsqadmin",
        }

    def add_to(self, response: web.StreamResponse) -> None:
        """Keep what a handler said about caching; override everything else."""
        response.headers.update(self.headers)
        response.headers.setdefault("Cache-Control", "no-store")

    async def on_prepare(self, _request: web.Request, response: web.StreamResponse) -> None:
        """The signal of aiohttp that an answer's headers are about to be sent."""
        self.add_to(response)


class Pages(Protocol):
    """What renders errors and the login as whole HTML documents: the pages of `web`, which imports this package."""

    def page(
        self, request: web.Request, template: str, title: str, values: Mapping[str, object]
    ) -> str:
        """The page of a template with these values, perhaps before its sender was identified."""


PAGES: Final[web.AppKey[Pages]] = web.AppKey("nsqadmin.pages", Pages)


def own_path(request: web.Request) -> str:
    """The path below --base-path, decoded as the router reads it: an encoded slash is not a slash."""
    return request.rel_url.path_safe.removeprefix(context_of(request).urls.decoded_base)


class Answers:
    def __init__(self, proxies: Proxies) -> None:
        self._proxies = proxies

    async def on_prepare(self, request: web.Request, response: web.StreamResponse) -> None:
        """From here on no other answer can be given."""
        request[PREPARED_KEY] = True
        response.headers.setdefault("X-Request-Id", self.request_id(request))

    def request_id(self, request: web.Request) -> str:
        """A proxy's id, so that its log and ours can be matched, or one of our own."""
        known = request.get(REQUEST_ID_KEY)
        if known is None:
            known = request.headers.get("X-Request-Id", "") if self._proxies.has(request) else ""
            if not REQUEST_ID.fullmatch(known):
                known = secrets.token_hex(8)
            request[REQUEST_ID_KEY] = known
        return known

    @web.middleware
    async def answer(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        self.request_id(request)
        begun_ns = time.perf_counter_ns()
        status = 0
        try:
            response = await self._answer(request, handler)
            status = response.status
        except web.HTTPException as redirection:
            status = redirection.status
            raise
        finally:
            self._log(request, status, time.perf_counter_ns() - begun_ns)
        return response

    async def _answer(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        try:
            return await handler(request)
        except web.HTTPException as error:
            if error.status < 400 or request.get(PREPARED_KEY):
                raise
            return self._error(request, error)
        except ConnectionError:
            raise
        except Exception:
            log.exception(
                "HTTP: %s %s failed (request %s)",
                request.method,
                request.rel_url,
                request[REQUEST_ID_KEY],
            )
            if request.get(PREPARED_KEY):
                raise ConnectionError("the answer had begun") from None
            return self._error(request, web.HTTPInternalServerError(text="INTERNAL_ERROR"))

    def _error(self, request: web.Request, error: web.HTTPException) -> web.Response:
        word = HTTPStatus(error.status).name
        plain = f"{error.status}: {error.reason}"
        text = error.text if error.text and error.text != plain else word
        kept = {
            name: value
            for name, value in error.headers.items()
            if name.lower() in ("allow", "retry-after", "www-authenticate")
        }
        path = own_path(request)
        if not path.startswith(JSON_PATHS) and "text/html" in request.headers.get("Accept", ""):
            title = f"{error.status} {error.reason}"
            values = {"text": SENTENCES.get(text, text), "near": [], "status": error.status}
            page = request.config_dict[PAGES].page(request, "error.html", title, values)
            return web.Response(
                status=error.status, text=page, content_type="text/html", headers=kept
            )
        return refusal(error.status, readable(text), kept)

    def _log(self, request: web.Request, status: int, duration_ns: int) -> None:
        path = own_path(request)
        level = logging.DEBUG if path.startswith(QUIET_PATHS) and status < 400 else logging.INFO
        log.log(
            level,
            "%d %s %s (%s) %s",
            status,
            request.method,
            request.rel_url,
            peer_of(request),
            format_duration(duration_ns),
        )


def refusal(status: int, text: str, headers: dict[str, str] | None = None) -> web.Response:
    """What scripts get instead of an answer, in NSQ's form."""
    body = orjson.dumps({"message": text})
    return web.Response(status=status, body=body, headers=JSON | (headers or {}))


def answer_json(value: object, status: int = 200) -> web.Response:
    """The JSON of any value that msgspec can encode, for scripts of our pages."""
    body = msgspec.json.encode(value)
    return web.Response(body=body, status=status, content_type="application/json")
