"""Answers that say that a change outlives the broker: they wait for its commit log."""

import asyncio
from collections.abc import Awaitable

from nsqfast._ext.broker.registry import Registry
from nsqfast.net.http_message import Response
from nsqfast.net.http_routes import INTERNAL_ERROR


def when_kept(
    registry: Registry, answer: Response, *, is_removal: bool = False
) -> Response | Awaitable[Response]:
    """The answer, when the commit log has all that happened until now; without a log at once.

    500 if the log cannot be written: the change took effect, but a restart may not know of it. `is_removal`: the files
    of everything emptied or deleted have to be gone before, a part in each turn.
    """
    given: asyncio.Future[Response] = asyncio.get_running_loop().create_future()

    def keep(error: str | None) -> None:
        if not given.done():
            given.set_result(answer if error is None else INTERNAL_ERROR)

    def commit() -> None:
        registry.durability.when_all_durable(keep)

    if is_removal:
        registry.topics.when_removed(commit)
    else:
        commit()
    return given.result() if given.done() else given
