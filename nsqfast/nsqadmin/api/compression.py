"""gzip and deflate, chosen as in nsqadmin: the first known one in the Accept-Encoding header, whatever its q.

deflate is the bare stream without zlib's header, as in Go. Pages are not compressed: they hold a secret beside text
from the address, and the length of a compressed page would leak it (https://breachattack.com/).
"""

import asyncio
import zlib

from aiohttp import web
from aiohttp.typedefs import Handler

WINDOW_BITS = {"gzip": 31, "deflate": -15}
THREAD_SIZE_MIN = 64 << 10  # about 2 ms


@web.middleware
async def compress(request: web.Request, handler: Handler) -> web.StreamResponse:
    """For complete answers that are not compressed yet."""
    response = await handler(request)
    encoding = chosen_encoding(request.headers.getall("Accept-Encoding", ()))
    if (
        not encoding
        or not isinstance(response, web.Response)
        or not isinstance(response.body, bytes)
        or not response.body
        or "Content-Encoding" in response.headers
        or response.content_type == "text/html"
    ):
        return response
    if len(response.body) < THREAD_SIZE_MIN:
        response.body = _compress(response.body, encoding)
    else:
        response.body = await asyncio.to_thread(_compress, response.body, encoding)
    response.headers["Content-Encoding"] = encoding
    response.headers.add("Vary", "Accept-Encoding")
    return response


def chosen_encoding(headers: tuple[str, ...] | list[str]) -> str:
    """'' for none. As in Go, only the first header counts."""
    for word in headers[0].split(",") if headers else ():
        if word.strip() in WINDOW_BITS:
            return word.strip()
    return ""


def _compress(body: bytes, encoding: str) -> bytes:
    packer = zlib.compressobj(wbits=WINDOW_BITS[encoding])
    return packer.compress(body) + packer.flush()
