"""POST /drain, POST /drain/cancel and GET /drain."""

import logging
from collections.abc import Awaitable

from nsqfast.net.http_message import Request, Response
from nsqfast.net.http_reply import HttpError, json_answer, parameters
from nsqfast.nsqd.drain import Drain
from nsqfast.nsqd.options import DURATION_NS_MAX
from nsqfast.wire.gotext import parse_duration_ns
from nsqfast.wire.refusals import REFUSED

log = logging.getLogger("nsqd")


class DrainPages:
    """Handlers; all of them answer with the state, and with the messages that are still to be delivered."""

    def __init__(self, drain: Drain, is_allowed: bool) -> None:
        self._drain = drain
        self._is_allowed = is_allowed

    async def show(self, _request: Request) -> Response:
        """The current state."""
        drain = self._drain
        left = await drain.look()
        found = drain.figures() if drain.is_on else left.figures()
        return json_answer({"draining": drain.is_on, **found})

    def begin(self, request: Request) -> Awaitable[Response]:
        """Begin, or change the deadline: ?deadline=30m, or none."""
        self._check(request)
        values = parameters(request)
        self._drain.begin(_read_deadline(values["deadline"]) if "deadline" in values else None)
        return self.show(request)

    def cancel(self, request: Request) -> Awaitable[Response]:
        """Take messages again; nothing happens to a broker that does."""
        self._check(request)
        self._drain.cancel()
        return self.show(request)

    def _check(self, request: Request) -> None:
        if self._is_allowed:
            return
        REFUSED["drain"] += 1
        if (note := request.admit_line()) is not None:
            text = "DRAIN: refused over HTTP: --http-drain allows it, or --http-admin-address"
            log.warning("%s%s", text, note)
        raise HttpError(403, "DRAIN_NOT_ALLOWED")


def _read_deadline(text: str) -> int:
    try:
        after_ns = parse_duration_ns(text)
    except ValueError:
        after_ns = -1
    if not 0 <= after_ns <= DURATION_NS_MAX:
        raise HttpError(400, "INVALID_DEADLINE")
    return after_ns
