"""Views, made once per tick for all viewers of the same address in the same role."""

import asyncio
import hashlib
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass

import msgspec

from nsqfast.nsqadmin.access.roles import Role
from nsqfast.nsqadmin.cluster.model import Cluster
from nsqfast.nsqadmin.context import Context
from nsqfast.nsqadmin.web.banner import add_banner
from nsqfast.nsqadmin.web.facts import FactsOfTick
from nsqfast.nsqadmin.web.page_request import PageRequest
from nsqfast.nsqadmin.web.pages import Page
from nsqfast.nsqadmin.web.query import Query
from nsqfast.nsqadmin.web.view import View

ENTRIES_MAX = 256

Key = tuple[str, tuple[tuple[str, str], ...], str, Role]


@dataclass(frozen=True, slots=True)
class Made:
    """A View of one tick; `changed` is the tick since which it has not changed."""

    view: View
    cluster: Cluster
    body: bytes  # its JSON
    digest: bytes
    changed: int


@dataclass(slots=True)
class _Entry:
    tick: int
    task: asyncio.Task[Made]
    last: Made | None = None


class Views:
    """The last ENTRIES_MAX addresses are kept."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._entries: OrderedDict[Key, _Entry] = OrderedDict()
        self._facts = FactsOfTick()

    async def get(self, page: Page, match: Mapping[str, str], query: Query, role: Role) -> Made:
        """The View of the current tick; raises what `page.build` raises."""
        cluster = self._context.poller.cluster
        key: Key = (page.name, tuple(sorted(match.items())), query.text(), role)
        entry = self._entries.get(key)
        if entry is None or entry.tick != cluster.tick:
            request = PageRequest(self._context, cluster, role, match, query, self._facts)
            last = entry.last if entry is not None else None
            task = asyncio.get_running_loop().create_task(make(page, request, last))
            entry = self._entries[key] = _Entry(cluster.tick, task, last)
        self._entries.move_to_end(key)
        while len(self._entries) > ENTRIES_MAX:
            self._entries.popitem(last=False)
        # Others wait for the same task, so it continues when this viewer leaves.
        entry.last = await asyncio.shield(entry.task)
        return entry.last


async def make(page: Page, request: PageRequest, last: Made | None) -> Made:
    """One View; if nothing has changed since `last`, it keeps its tick."""
    view = await page.build(request)
    await asyncio.sleep(0)  # the rows were made in the same slice
    add_banner(view, request.cluster, request.context.problems.found)
    body = msgspec.json.encode(view.to_json())
    digest = hashlib.blake2b(body, digest_size=16).digest()
    is_same = last is not None and last.digest == digest
    changed = last.changed if last is not None and is_same else request.cluster.tick
    return Made(view, request.cluster, body, digest, changed)
