"""The content of a page, defined once: its template renders a View, and `/ui/live` sends the same View to the open
page.

A page is `Page(name, route, build, template)`; `build(request: PageRequest) -> View` shows the cluster of one tick,
`request.cluster`, so all viewers of one address share one View per tick. Three things may be of another moment:
problems are of the last tick that was judged, which lags only in a large cluster; the audit is of now; and a channel's
page asks the nodes for its clients and latencies after the poll, and names those whose answers are older. Texts come
from web.texts. Everything is plain text: templates escape it, scripts set it as textContent. A text with times is a
texts.Timed, and a list of its pieces in JSON.

    View.texts    {key: text}     `<span data-text="KEY">` has it, or `<... data-text>` by macro `live(view, key)`
    View.states   {key: State}    macro `chip(view.states[key], key)`: `<span class="chip" data-state="KEY" data-kind>`
    View.shown    {key: bool}     an element with `data-shown="KEY"` is `hidden` where this is false
    View.tables   {name: Table}   `{% set table = view.tables.NAME %}{% include "table.html" %}`
    View.data     {key: JSON}     for a page's own script; it comes with the event `nsqadmin:view`
    View.facts    {key: anything} for the template alone; never sent, must not change while a page is open

Keys must be in the View each time, or the open page keeps the old text. The JSON of `/ui/live`:

    {"tick": 7, "at": 1700000000.1, "next_ms": 1900, "title": "orders",
     "texts": {"depth": "184,201"}, "states": {"topic": {"kind": "warn", "word": "paused on 1 of 2", "title": ""}},
     "shown": {"has-problems": true}, "data": {...},
     "tables": {"channels": {"rows": [
         {"key": "billing", "data": {"channel": "billing"}, "kind": "", "cells": [CELL, ...]}]}}}

CELL is a text, or an object with `text` and whichever of `href`, `title`, `chips` (list of states) and `points` (the
path of a sparkline in a box of 60 x 16) it has, in the order of the table's columns. Rows that the page does not have
are cloned from `<template data-row="TABLE">`; rows are known by `data-key`.
"""

import asyncio
import hashlib
import re
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import unquote

import msgspec

from nsqfast.nsqadmin.access.users import Role
from nsqfast.nsqadmin.cluster.model import Cluster, NodeState
from nsqfast.nsqadmin.context import Context
from nsqfast.nsqadmin.problems.cases import Severity
from nsqfast.nsqadmin.problems.node_rules import LOOKUPD_DOWN, NODE_DOWN
from nsqfast.nsqadmin.problems.report import Problem
from nsqfast.nsqadmin.web import texts
from nsqfast.nsqadmin.web.request import FactsOfTick, PageRequest, Query
from nsqfast.nsqadmin.web.tables import Table
from nsqfast.nsqadmin.web.texts import Link, State, pieces_of

SIMILAR_MAX = 8  # names
SCORE_MIN = 0.3
BANNER_LINES_MAX = 5
SILENT = (NODE_DOWN, LOOKUPD_DOWN)
ERROR_SIZE_MAX = 200
VIEWS_MAX = 256

Key = tuple[str, tuple[tuple[str, str], ...], str, Role]


@dataclass(slots=True)
class View:
    title: str
    crumbs: list[Link] = field(default_factory=list)
    texts: dict[str, str] = field(default_factory=dict)
    states: dict[str, State] = field(default_factory=dict)
    shown: dict[str, bool] = field(default_factory=dict)
    tables: dict[str, Table[Any]] = field(default_factory=dict)
    data: dict[str, Any] = field(default_factory=dict)
    facts: Mapping[str, Any] = field(default_factory=dict)

    def set_state(self, key: str, state: State | None) -> None:
        """A chip that appears and disappears: the templates give it `data-shown`, too."""
        self.states[key] = state or State("off", "")
        self.shown[f"{key}-shown"] = state is not None

    def set_text(self, key: str, text: str) -> None:
        """A paragraph that is there while it says something."""
        self.texts[key] = text
        self.shown[f"{key}-shown"] = bool(text)

    def to_json(self) -> dict[str, Any]:
        """The JSON of `/ui/live`, except for tick, at and next_ms."""
        texts = {key: pieces_of(text) for key, text in self.texts.items()}
        shown = dict(self.shown)
        tables = {}
        for name, table in self.tables.items():
            tables[name] = {"rows": [row.to_json() for row in table.rows]}
            texts[f"{name}.total"] = table.total_text
            shown[f"{name}.empty"] = not table.rows
        return {
            "title": self.title,
            "texts": texts,
            "states": {key: state.to_json() for key, state in self.states.items()},
            "shown": shown,
            "tables": tables,
            "data": self.data,
        }


def _letter_pairs(name: str) -> set[str]:
    folded = f" {name.lower()} "
    return {folded[index : index + 2] for index in range(len(folded) - 1)}


def rank_similar_names(wanted: str, names: Iterable[str]) -> list[str]:
    """The best first, by the pairs of letters that they share (Dice's coefficient)."""
    pairs = _letter_pairs(wanted)
    scored = []
    for name in names:
        others = _letter_pairs(name)
        score = 2 * len(pairs & others) / (len(pairs) + len(others))
        if score >= SCORE_MIN:
            scored.append((-score, name))
    return [name for _, name in sorted(scored)[:SIMILAR_MAX]]


async def find_similar_names(wanted: str, names: Iterable[str]) -> list[str]:
    """In a thread: it takes milliseconds with thousands of names."""
    return await asyncio.to_thread(rank_similar_names, wanted[:256], list(names))


class PageNotFoundError(LookupError):
    """No such topic, channel or node; `near` are links to similar names."""

    def __init__(self, kind: str, name: str, near: list[tuple[str, str]]) -> None:
        super().__init__(f"No {kind} {name}")
        self.kind = kind
        self.name = name
        self.near = near


Build = Callable[[PageRequest], Awaitable[View]]


@dataclass(frozen=True, slots=True)
class Page:
    """`route` is below --base-path: `/topics/{topic}`. `section` is its entry in the navigation."""

    name: str
    route: str
    build: Build
    template: str
    section: str = ""
    is_live: bool = True  # `/ui/live` supports it, and its Views are shared
    is_for_admins: bool = False  # others get 403 from the page, its updates and its exports

    def match(self, path: str) -> dict[str, str] | None:
        """The parts of a quoted path without --base-path; None if it is another page's."""
        pattern = re.sub(r"\{(\w+)\}", r"(?P<\1>[^/]+)", self.route)
        found = re.fullmatch(pattern, path)
        return {name: unquote(part) for name, part in found.groupdict().items()} if found else None


def add_banner(view: View, cluster: Cluster, problems: Iterable[Problem]) -> None:
    """The lines above every page while a node does not answer: which, why and since when.

    There are at most BANNER_LINES_MAX, the last of which says how many more there are; they have the colour of the
    worst problem. The View gets the texts `banner.0` to `banner.N` and says which of them are shown;
    templates/banner.html contains them.
    """
    lines = banner_lines(cluster)
    if len(lines) > BANNER_LINES_MAX:
        rest = len(lines) - BANNER_LINES_MAX + 1
        lines = [*lines[: BANNER_LINES_MAX - 1], f"{rest} more do not answer; see Nodes"]
    is_critical = any(
        each.rule in SILENT and each.severity is Severity.CRIT and not each.muted_until
        for each in problems
    )
    view.shown["banner"] = bool(lines)
    view.shown["banner-errors"] = is_critical
    view.shown["banner-warnings"] = not is_critical
    for number in range(BANNER_LINES_MAX):
        view.texts[f"banner.{number}"] = lines[number] if number < len(lines) else ""
        view.shown[f"banner.{number}"] = number < len(lines)


def banner_lines(cluster: Cluster) -> list[str]:
    """nsqlookupd first: without them the list of nodes may be old."""
    silent = [each for each in cluster.lookupds.values() if not each.is_up]
    lines = [
        silent_line(
            f"nsqlookupd {each.address} has not answered",
            each.answered_at or each.since,
            each.error,
        )
        for each in silent
    ]
    if silent and len(silent) == len(cluster.lookupds):
        lines.insert(0, "No nsqlookupd answers: the list of nodes is the last that was known")
    for node in cluster.nodes.values():
        if node.state is NodeState.DOWN and not node.is_planned(cluster.at):
            name = f"{node.hostname} ({node.key})" if node.hostname else node.key
            lines.append(silent_line(f"nsqd {name} has been down", node.since, node.error))
    return lines


def silent_line(what: str, since: float, error: str) -> str:
    """`nsqlookupd 127.0.0.1:4161 has not answered since 11:24:03: Connection refused`"""
    cause = f": {error[:ERROR_SIZE_MAX]}" if error else ""
    return texts.Timed(f"{what} since ", texts.clock(since), cause)


@dataclass(frozen=True, slots=True)
class MadeView:
    """A View of one tick; `changed` is the tick since which it has not changed."""

    view: View
    cluster: Cluster
    body: bytes  # its JSON
    digest: bytes
    changed: int


@dataclass(slots=True)
class _Entry:
    tick: int
    task: asyncio.Task[MadeView]
    last: MadeView | None = None


class Views:
    """The Views of the last VIEWS_MAX addresses, made once per tick for all viewers in the same role."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._entries: OrderedDict[Key, _Entry] = OrderedDict()
        self._facts = FactsOfTick()

    async def get(self, page: Page, match: Mapping[str, str], query: Query, role: Role) -> MadeView:
        """The View of the current tick; raises what `page.build` raises."""
        cluster = self._context.poller.cluster
        key: Key = (page.name, tuple(sorted(match.items())), query.text(), role)
        entry = self._entries.get(key)
        if entry is None or entry.tick != cluster.tick:
            request = PageRequest(self._context, cluster, role, match, query, self._facts)
            last = entry.last if entry is not None else None
            task = asyncio.get_running_loop().create_task(make_view(page, request, last))
            entry = self._entries[key] = _Entry(cluster.tick, task, last)
        self._entries.move_to_end(key)
        while len(self._entries) > VIEWS_MAX:
            self._entries.popitem(last=False)
        # Others wait for the same task, so it continues when this viewer leaves.
        entry.last = await asyncio.shield(entry.task)
        return entry.last


async def make_view(page: Page, request: PageRequest, last: MadeView | None) -> MadeView:
    """One View; if nothing has changed since `last`, it keeps its tick."""
    view = await page.build(request)
    await asyncio.sleep(0)  # the rows were made in the same slice
    add_banner(view, request.cluster, request.context.problems.found)
    body = msgspec.json.encode(view.to_json())
    digest = hashlib.blake2b(body, digest_size=16).digest()
    is_same = last is not None and last.digest == digest
    changed = last.changed if last is not None and is_same else request.cluster.tick
    return MadeView(view, request.cluster, body, digest, changed)
