"""What a client hears for whom there is no room (--max-connections)."""

from nsqfast._ext.protocol.frame import encode
from nsqfast.net.http_message import Request, render
from nsqfast.net.http_reply import error_answer
from nsqfast.net.refusal import Refusal
from nsqfast.protocol import FRAME_ERROR


def refuse_tcp(count_max: int) -> Refusal:
    """An error that any client takes for the end of the connection, and goes to another broker."""
    text = b"E_INVALID too many connections, the limit is %d" % count_max
    return Refusal(encode(FRAME_ERROR, text))


def refuse_http() -> Refusal:
    """503, for whatever was asked."""
    request = Request("", b"/", "")
    request.close = True
    answer = error_answer(503, "TOO_MANY_CONNECTIONS", b"Retry-After: 1\r\n")
    return Refusal(render(request, answer))
