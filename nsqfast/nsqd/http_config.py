"""GET and PUT /config/NAME: one setting by its config key."""

from collections.abc import Callable
from typing import Any

import orjson

from nsqfast.net.http_message import Request, Response
from nsqfast.net.http_reply import HttpError, json_answer, text_answer
from nsqfast.net.masks import masked
from nsqfast.nsqd.options import PROGRAM, Options
from nsqfast.program import logs
from nsqfast.program.options import by_key

# Each costs a task, a connection, and a query for every new topic.
ADDRESSES_MAX = 100


class Config:
    """Handlers for the running program's settings; changes last until it ends.

    `on_lookupd` is called when the addresses of nsqlookupd changed.
    """

    def __init__(self, options: Options, on_lookupd: Callable[[], None]) -> None:
        self._options = options
        self._on_lookupd = on_lookupd
        self._known = by_key(Options)

    def get(self, request: Request) -> Response:
        """A string unchanged, anything else as JSON, durations in nanoseconds."""
        return self._answer(_name(request))

    def put(self, request: Request) -> Response:
        """Change a setting; only some can change while clients are connected."""
        body, name = bytes(request.body), _name(request)
        if request.oversize or not body or len(body) > self._options.max_msg_size:
            raise HttpError(413, "INVALID_VALUE")
        if name == "log_level":
            self._set_log_level(body)
        elif name == "nsqlookupd_tcp_addresses":
            self._options.nsqlookupd_tcp_addresses = _read_addresses(body)
            self._on_lookupd()
        else:
            raise HttpError(400, "INVALID_OPTION")
        return self._answer(name)

    def _answer(self, name: str) -> Response:
        option = self._known.get(name)
        if option is None:
            raise HttpError(400, "INVALID_OPTION")
        value = getattr(self._options, option.attribute)
        if isinstance(value, str):
            return text_answer(masked(value) if "address" in name else value)
        if isinstance(value, list):
            value = [_shown(item) for item in value]
        return json_answer(value)

    def _set_log_level(self, body: bytes) -> None:
        level = logs.LEVELS.get(body.decode("latin-1").lower())
        if level is None:
            raise HttpError(400, "INVALID_VALUE")
        self._options.log_level = level
        logs.set_level(PROGRAM, level)


def _name(request: Request) -> str:
    return request.path.rpartition("/")[2]


def _read_addresses(body: bytes) -> list[str] | None:
    try:
        value: Any = orjson.loads(body)
    except ValueError:
        raise HttpError(400, "INVALID_VALUE") from None
    if value is None:
        return None
    if isinstance(value, list) and all(isinstance(item, str) for item in value):
        if len(value) > ADDRESSES_MAX:
            raise HttpError(
                400, f"INVALID_VALUE: at most {ADDRESSES_MAX} addresses, not {len(value)}"
            )
        return value
    raise HttpError(400, "INVALID_VALUE")


def _shown(value: object) -> object:
    """An element of a list: 1.0 as 1, as Go writes it, and addresses without their secrets."""
    if isinstance(value, str):
        return masked(value)
    return int(value) if isinstance(value, float) and value.is_integer() else value
