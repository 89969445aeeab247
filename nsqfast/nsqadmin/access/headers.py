"""Headers of every response, including errors and static files."""

from typing import Final
from urllib.parse import urlsplit

from aiohttp import web

from nsqfast.errors import OptionsError
from nsqfast.nsqadmin.options import Options

POLICY: Final = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:{images}; connect-src 'self'; "
    "form-action 'self'; base-uri 'none'; frame-ancestors 'none'; "
    "require-trusted-types-for 'script'; trusted-types 'none'"
)


def security_headers(options: Options) -> dict[str, str]:
    """Allow Graphite's pictures if the browser fetches them directly."""
    images = ""
    if options.graphite_url and not options.proxy_graphite:
        images = " " + _origin(options.graphite_url)
    return {
        "Content-Security-Policy": POLICY.format(images=images),
        "X-Content-Type-Options": "nosniff",
        "Referrer-Policy": "same-origin",
        "X-Frame-Options": "DENY",
        "Cross-Origin-Opener-Policy": "same-origin",
        "Server": "nsqadmin",
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
        self.headers = security_headers(options)

    def add_to(self, response: web.StreamResponse) -> None:
        """Keep what a handler said about caching; override everything else."""
        response.headers.update(self.headers)
        response.headers.setdefault("Cache-Control", "no-store")

    async def on_prepare(self, _request: web.Request, response: web.StreamResponse) -> None:
        """See aiohttp.web.Application.on_response_prepare."""
        self.add_to(response)
