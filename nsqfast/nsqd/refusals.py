"""The answer to TCP clients beyond --max-connections."""

from nsqfast._ext.protocol.frame import encode
from nsqfast.net.refusal import Refusal
from nsqfast.wire.protocol import FRAME_ERROR


def refuse_tcp(count_max: int) -> Refusal:
    """An error that any client takes as the end of the connection, so that it tries another broker."""
    text = b"E_INVALID too many connections, the limit is %d" % count_max
    return Refusal(encode(FRAME_ERROR, text))
