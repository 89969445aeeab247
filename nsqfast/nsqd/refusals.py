"""The answers to clients beyond --max-connections."""

from nsqfast._ext.protocol.frame import encode
from nsqfast.net.http_message import Request, render
from nsqfast.net.http_reply import error_answer
from nsqfast.net.refusal import Refusal
from nsqfast.protocol import FRAME_ERROR


def refuse_tcp(count_max: int) -> Refusal:
    """An error that any client takes as the end of the connection, so that it tries another broker."""
    text = b"E_INVALID too many connections, the limit is %d" % count_max
    return Refusal(encode(FRAME_ERROR, text))


def refuse_http() -> Refusal:
    """503 for any request."""
    request = Request("", b"/", "")
    request.close = True
    answer = error_answer(503, "TOO_MANY_CONNECTIONS", b"Retry-After: 1\r\n")
    return Refusal(render(request, answer))
