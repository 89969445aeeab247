"""Unknown paths and methods: scripts get nsqadmin's answers, browsers the pages' own."""

from aiohttp import hdrs, web
from aiohttp.typedefs import Handler

from nsqfast.nsqadmin.access.answers import own_path
from nsqfast.nsqadmin.api.answers import refusal

OURS = ("/api/", "/config/", "/ping/", "/render/")


@web.middleware
async def answer_misses(request: web.Request, handler: Handler) -> web.StreamResponse:
    """JSON for 404 and 405, a redirect for a superfluous slash, the methods for OPTIONS."""
    miss = request.match_info.http_exception
    if miss is None or _is_for_a_browser(request):
        return await handler(request)
    if await _is_known_without_slash(request):
        status = 301 if request.method == hdrs.METH_GET else 308
        path, _, query = request.raw_path.partition("?")
        target = path.rstrip("/") + ("?" + query if query else "")
        return web.Response(status=status, headers={"Location": target})
    if not isinstance(miss, web.HTTPMethodNotAllowed):
        return refusal(404, "NOT_FOUND")
    allowed = ", ".join(sorted([*miss.allowed_methods, "OPTIONS"]))
    if request.method == hdrs.METH_OPTIONS:
        return web.Response(headers={"Allow": allowed})
    response = refusal(405, "METHOD_NOT_ALLOWED")
    response.headers["Allow"] = allowed
    return response


def _is_for_a_browser(request: web.Request) -> bool:
    is_ours = (own_path(request) + "/").startswith(OURS)
    return "text/html" in request.headers.get("Accept", "") and not is_ours


async def _is_known_without_slash(request: web.Request) -> bool:
    path = request.rel_url.raw_path
    if not path.endswith("/") or path == "/" or path.startswith("//"):
        return False
    shorter = request.clone(rel_url=request.rel_url.with_path(path.rstrip("/"), encoded=True))
    return (await request.app.router.resolve(shorter)).http_exception is None
