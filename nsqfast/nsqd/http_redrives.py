"""/channel/redrive: dead letters go back to the channel that they died in, or are deleted, see `redrives`."""

import re
from collections.abc import Awaitable
from dataclasses import asdict
from typing import Any

from nsqfast._ext.broker.channel import Channel
from nsqfast._ext.broker.dead_letters import REASONS
from nsqfast.errors import OptionsError
from nsqfast.net.http_message import Request, Response
from nsqfast.net.http_reply import (
    HttpError,
    error_answer,
    json_answer,
    parameters,
    read_switch,
    topic_and_channel_name,
)
from nsqfast.nsqd.broker import Broker
from nsqfast.nsqd.http_peek import Peek, read_needle, read_terms
from nsqfast.wire.gotext import os_error

RATE_MAX = 10_000_000

_NUMBER = re.compile(r"[0-9]{1,15}")
_RATE = re.compile(r"[0-9]{1,8}(\.[0-9]{1,6})?")


class RedrivePages:
    """Handlers."""

    def __init__(self, broker: Broker, peek: Peek) -> None:
        self._broker = broker
        self._peek = peek

    def show(self, request: Request) -> Response:
        """How far the last one of a channel is."""
        topic, channel = topic_and_channel_name(parameters(request))
        order = self._broker.load_redrives().find(topic, channel)
        if order is None:
            raise HttpError(404, "NO_REDRIVE")
        return json_answer(asdict(order))

    def start(self, request: Request) -> Awaitable[Response]:
        """Begin one."""
        values = parameters(request)
        channel = self._peek.channel(values)
        read_needle(values)
        read_terms(values)
        wish = {
            "rate": _read_rate(values),
            "limit": _read_limit(values),
            "filter": values.get("filter", ""),
            "search": values.get("search", ""),
            "reason": values.get("reason", ""),
            "delete": read_switch(values, "delete"),
        }
        if wish["reason"] not in ("", *REASONS):
            raise HttpError(400, "INVALID_ARG_REASON")
        if wish["delete"] and wish["limit"]:
            # How many are gone is kept now and then only: after a kill it would be more than that.
            raise HttpError(400, "INVALID_ARG_LIMIT", "a delete has none")
        return self._start(channel, values.get("from"), wish)

    def cancel(self, request: Request) -> Awaitable[Response]:
        """End it; what was moved stays where it is, what was deleted is gone."""
        return self._cancel(*topic_and_channel_name(parameters(request)))

    async def _start(
        self, channel: Channel, source_channel: str | None, wish: dict[str, Any]
    ) -> Response:
        try:
            order = await self._broker.load_redrives().start(channel, source_channel, **wish)
        except OptionsError as error:
            return error_answer(409, "REDRIVE_RUNNING", reason=str(error))
        except LookupError as error:
            code = str(error.args[0])
            return error_answer(400 if code.startswith("MISSING") else 404, code)
        except OSError as error:
            return error_answer(500, "REDRIVE_NOT_KEPT", reason=os_error(error))
        return json_answer(asdict(order))

    async def _cancel(self, topic: str, channel: str) -> Response:
        try:
            order = await self._broker.load_redrives().cancel(topic, channel)
        except LookupError:
            return error_answer(404, "NO_REDRIVE")
        except OSError as error:
            return error_answer(500, "REDRIVE_NOT_KEPT", reason=os_error(error))
        return json_answer(asdict(order))


def _read_rate(values: dict[str, str]) -> float:
    text = values.get("rate", "0")
    if not _RATE.fullmatch(text) or float(text) > RATE_MAX:
        raise HttpError(400, "INVALID_ARG_RATE")
    return float(text)


def _read_limit(values: dict[str, str]) -> int:
    text = values.get("limit", "0")
    if not _NUMBER.fullmatch(text):
        raise HttpError(400, "INVALID_ARG_LIMIT")
    return int(text)
