"""What an nsqfast-nsqd knows of dead letters, for those who consume them (docs/FAILURES.md)."""

from collections.abc import Sequence
from typing import Any, TypedDict

import orjson

from nsqfast._ext.client.consume_connection import ConsumeConnection
from nsqfast.errors import NsqfastError, ProtocolError

IDS_MAX = 500  # of a question


class Death(TypedDict):
    """Why, where and when a message died; times are Unix time in ns."""

    reason: str  # failed, rejected, expired or over_limit
    topic: str
    channel: str
    failures: int
    attempts: int
    client: str  # the last one that had it, as it calls itself
    error: str  # what that said of the last failure
    first_id: str  # the message's id there
    published: int
    died: int


Deaths = Sequence[Death | None]  # of as many messages
_SIZES = {"failures": 32, "attempts": 32, "published": 64, "died": 64}  # bits, with a sign


async def ask_deaths(connection: ConsumeConnection, ids: Sequence[bytes]) -> dict[str, Death]:
    """Those of the messages that it delivered of which it knows something, by id. If the connection ends meanwhile,
    the messages come again."""
    found: dict[str, Death] = {}
    if not connection.may_reject:
        return found
    try:
        for first in range(0, len(ids), IDS_MAX):
            body = b"".join(ids[first : first + IDS_MAX])
            command = b"DEATHS\n" + len(body).to_bytes(4, "big") + body
            found |= read_deaths(await connection.ask(command))
    except ProtocolError as error:
        connection.fail(error)
    except NsqfastError:
        pass  # it says so itself
    return found


def read_deaths(answer: bytes) -> dict[str, Death]:
    """Read an answer to DEATHS; ProtocolError if it is none."""
    try:
        found = orjson.loads(answer)
        return {each: _read_death(death) for each, death in found.items()}
    except (ValueError, TypeError, KeyError, AttributeError):
        raise ProtocolError("E_BAD_FRAME", f"no deaths: {answer[:60]!r}") from None


def _read_death(found: Any) -> Death:
    death: Any = {name: found[name] for name in Death.__annotations__}
    for name, value in death.items():
        size = _SIZES.get(name)
        if size is None:
            is_right = type(value) is str
        else:
            is_right = type(value) is int and -(1 << size - 1) <= value < 1 << size - 1
        if not is_right:
            raise ValueError(name)
    known: Death = death
    return known
