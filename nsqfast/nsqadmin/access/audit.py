"""What was done by whom: a line in a file, the last thousand in memory, and a webhook."""

import collections
import datetime as dt
import itertools
from typing import Final, Literal

import msgspec
from aiohttp import web

from nsqfast.nsqadmin.access.roles import user_of
from nsqfast.nsqadmin.options import Options

Outcome = Literal["ok", "failed", "partial", "refused"]

ENTRIES_KEPT: Final = 1000
TEXT_LENGTH_MAX: Final = 512  # of each text in an entry: names and errors come from others
REQUEST_ID_KEY: Final = "nsqadmin.request_id"


class Result(msgspec.Struct, frozen=True):
    """What became of an action on one node; `text` is the error if it is not `ok`."""

    node: str
    ok: bool
    text: str = ""


class Entry(msgspec.Struct, frozen=True):
    """One attempt, as it is written to --audit-file, with these names."""

    time: str  # RFC 3339, UTC
    user: str
    role: str
    ip: str
    action: str
    target: dict[str, str]
    effect: dict[str, object]
    results: list[Result]
    outcome: Outcome
    request_id: str


class Audit:
    """One of each nsqadmin."""

    def __init__(self, options: Options) -> None:
        self._options = options
        self._entries: collections.deque[Entry] = collections.deque(maxlen=ENTRIES_KEPT)

    async def note(
        self,
        request: web.Request,
        action: str,
        target: dict[str, str],
        *,
        effect: dict[str, object] | None = None,
        results: list[Result] | None = None,
        outcome: Outcome,
    ) -> None:
        """Call it once for each attempt, when its outcome is known. It neither waits for the disk nor fails.

        `action` is NSQ's word where it has one (create_topic, empty_channel...): only these go to the webhook.
        `target` has some of the keys topic, channel, node; `effect` is what the action was to touch.
        """
        user = user_of(request)
        self._entries.append(
            Entry(
                time=dt.datetime.now(dt.UTC).isoformat(timespec="milliseconds"),
                user=_cut(user.name),
                role=user.role.value,
                ip=request.remote or "",
                action=_cut(action),
                target={name: _cut(value) for name, value in target.items()},
                effect=effect or {},
                results=[Result(r.node, r.ok, _cut(r.text)) for r in results or ()],
                outcome=outcome,
                request_id=request.get(REQUEST_ID_KEY, ""),
            )
        )

    def last(self, count: int = ENTRIES_KEPT) -> list[Entry]:
        """The newest first, at most ENTRIES_KEPT."""
        return list(itertools.islice(reversed(self._entries), count))


def _cut(text: str) -> str:
    return text if len(text) <= TEXT_LENGTH_MAX else text[: TEXT_LENGTH_MAX - 1] + "…"
