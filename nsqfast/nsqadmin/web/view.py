"""The content of a page, defined once: its template renders a View, and `/ui/live` sends the same View to the open
page.

A page is `Page(name, route, build, template)` (web.pages); `build(request: PageRequest) -> View` reads
`request.cluster` (web.page_request) and nothing else that changes, so all viewers of one address share one View per
tick. Texts come from web.texts. Everything is plain text: templates escape it, scripts set it as textContent. A text
with times is a texts.Timed, and a list of its pieces in JSON.

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

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from nsqfast.nsqadmin.web.elements import Link, State
from nsqfast.nsqadmin.web.tables import Table
from nsqfast.nsqadmin.web.texts import pieces_of


@dataclass(slots=True)
class View:
    """See above."""

    title: str
    crumbs: list[Link] = field(default_factory=list)
    texts: dict[str, str] = field(default_factory=dict)
    states: dict[str, State] = field(default_factory=dict)
    shown: dict[str, bool] = field(default_factory=dict)
    tables: dict[str, Table[Any]] = field(default_factory=dict)
    data: dict[str, Any] = field(default_factory=dict)
    facts: Mapping[str, Any] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        """The JSON of `/ui/live`, except for tick, at and next_ms."""
        texts = {key: pieces_of(text) for key, text in self.texts.items()}
        shown = dict(self.shown)
        for name, table in self.tables.items():
            texts[f"{name}.total"] = table.total_text
            shown[f"{name}.empty"] = not table.rows
        return {
            "title": self.title,
            "texts": texts,
            "states": {key: state.to_json() for key, state in self.states.items()},
            "shown": shown,
            "tables": {name: table.to_json() for name, table in self.tables.items()},
            "data": self.data,
        }
