"""Tables: declared once per page as columns; searched (docs/ADMIN.md), sorted and split into pages here, for display
and export.

A term of a search that looks like a qualifier but is none causes an error beside the box; the other terms still count.
"""

import operator
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from operator import itemgetter
from typing import Any, Generic, Literal, TypeVar

from nsqfast.nsqadmin.access.users import Role
from nsqfast.nsqadmin.context import Urls
from nsqfast.nsqadmin.web.request import PageRequest, Query, TableQuery
from nsqfast.nsqadmin.web.texts import Kind, Link, State, count, pieces_of

T = TypeVar("T")

Number = Callable[[T], Any]  # or None, if it is not known
_COMPARISON = re.compile(r"([a-z_]+)(>=|<=|>|<|=)(.*)", re.IGNORECASE | re.DOTALL)
_NUMBER = re.compile(r"(\d+(?:\.\d+)?)([kmg]?)", re.IGNORECASE)
_UNITS = {"": 1.0, "k": 1e3, "m": 1e6, "g": 1e9}
_COMPARE: dict[str, Callable[[float, float], bool]] = {
    ">": operator.gt,
    ">=": operator.ge,
    "<": operator.lt,
    "<=": operator.le,
    "=": operator.eq,
}
TERMS_MAX = 20
Value = str | int | float | bool | None
ROWS_PER_PAGE = 100
SPARK_WIDTH, SPARK_HEIGHT = 60, 16


@dataclass(slots=True)
class Search(Generic[T]):
    """The tests of a search, and what of it was not understood."""

    searchable: Callable[[T], str]  # the text in which plain words are searched
    flags: Mapping[str, Callable[[T], bool]]  # "is:paused"
    numbers: Mapping[str, Number[T]]  # "depth"
    tests: list[Callable[[T], bool]] = field(default_factory=list)
    errors: list[str] = field(default_factory=list)

    def filter(self, text: str, items: list[T]) -> list[T]:
        words = text.split()
        if len(words) > TERMS_MAX:
            self.errors.append(f"only the first {TERMS_MAX} terms count")
        for word in words[:TERMS_MAX]:
            self._add_term(word)
        for test in self.tests:
            items = [item for item in items if test(item)]
        return items

    def _add_term(self, word: str) -> None:
        name = word.lower()
        if flag := self.flags.get(name):
            self.tests.append(flag)
        elif name.startswith(("is:", "no:")):
            known = ", ".join(self.flags) or "none here"
            self.errors.append(f"{word} is not known; known: {known}")
        elif compared := _COMPARISON.fullmatch(word):
            self._add_comparison(compared)
        else:
            self.tests.append(lambda item: name in self.searchable(item).lower())

    def _add_comparison(self, found: re.Match[str]) -> None:
        get_number = self.numbers.get(found[1].lower())
        number = _NUMBER.fullmatch(found[3])
        if get_number is None:
            known = ", ".join(self.numbers) or "none here"
            self.errors.append(f"{found[1]} is not a number of this table; known: {known}")
        elif number is None:
            example = "such as 1000 or 2.5k"
            self.errors.append(f"{found[0]}: write a number behind {found[2]}, {example}")
        else:
            limit = float(number[1]) * _UNITS[number[2].lower()]
            compare = _COMPARE[found[2]]

            def holds(item: T) -> bool:
                value = get_number(item)
                return value is not None and compare(value, limit)

            self.tests.append(holds)


@dataclass(frozen=True, slots=True)
class Column(Generic[T]):
    """`value` is for sorting and export, `text` is shown; a State or a sparkline replaces the text.

    Columns of priority 1 are always shown. Those of 2, 3 and 4 leave the table as it gets narrower (first 4), and then
    appear by name in the second line of the row's head. The first column is the row's head.
    """

    key: str
    label: str
    value: Callable[[T], Value]
    text: Callable[[Any], str] = str
    kind: Literal["text", "number", "chips", "spark"] = "text"
    priority: int = 1
    href: Callable[[PageRequest, T], str] | None = None
    chips: Callable[[T], Sequence[State]] | None = None
    spark: Callable[[PageRequest, T], Sequence[float | None]] | None = None
    title: Callable[[T], str] | None = None
    help: str = ""  # for the column's head
    can_sort: bool = True
    is_named: bool = True  # by its label, in the second line


def number(
    key: str,
    label: str,
    value: Callable[[T], float | None],
    priority: int = 1,
    text: Callable[[Any], str] = count,
    *,
    title: Callable[[T], str] | None = None,
    hint: str = "",
) -> Column[T]:
    """A column of numbers, which are counts unless `text` says how to write them."""
    return Column(key, label, value, text, "number", priority, title=title, help=hint)


def link(
    key: str,
    label: str,
    value: Callable[[T], Value],
    address: Callable[[Urls, T], str],
    priority: int = 1,
) -> Column[T]:
    """A column of names that lead to the pages of what they name."""

    def href(request: PageRequest, item: T) -> str:
        return address(request.context.urls, item)

    return Column(key, label, value, priority=priority, href=href)


def chips(
    key: str,
    label: str,
    states: Callable[[T], Sequence[State]],
    priority: int = 2,
    value: Callable[[T], Value] | None = None,
) -> Column[T]:
    """A column of chips. Their words are exported, or the value, by which it can be sorted then."""

    def words(item: T) -> str:
        return ", ".join(state.word for state in states(item))

    return Column(
        key,
        label,
        value or words,
        kind="chips",
        priority=priority,
        chips=states,
        can_sort=value is not None,
    )


@dataclass(slots=True)
class Cell:
    text: str
    href: str = ""
    title: str = ""
    chips: Sequence[State] = ()
    points: str = ""

    def to_json(self) -> str | dict[str, Any]:
        text = pieces_of(self.text)
        if isinstance(text, str) and not (self.href or self.title or self.chips or self.points):
            return text
        chips = [chip.to_json() for chip in self.chips]
        given = {"href": self.href, "title": self.title, "chips": chips, "points": self.points}
        return {"text": text, **{name: value for name, value in given.items() if value}}


@dataclass(slots=True)
class Row:
    """`data` becomes data-NAME attributes, which tell actions their object."""

    key: str
    cells: list[Cell]
    data: dict[str, str]
    kind: Kind | Literal[""] = ""

    def to_json(self) -> dict[str, Any]:
        cells = [cell.to_json() for cell in self.cells]
        return {"key": self.key, "data": self.data, "kind": self.kind, "cells": cells}


@dataclass(frozen=True, slots=True)
class TableSpec(Generic[T]):
    """One kind of table, at module level of its page."""

    name: str
    caption: str
    columns: Sequence[Column[T]]
    key: Callable[[T], str]
    searchable: Callable[[T], str] | None = None  # the text in which plain words are searched
    flags: Mapping[str, Callable[[T], bool]] = field(default_factory=dict)  # "is:paused"
    # Columns that a search compares; "rate=in" is the column "in" under another name.
    numbers: Sequence[str] = ()
    filters: Sequence[tuple[str, str]] = ()  # (label, term) of the chips above the table
    data: Callable[[T], dict[str, str]] | None = None
    kind: Callable[[T], Kind | Literal[""]] | None = None
    can_select: bool = False  # admins get a checkbox per row
    has_actions: bool = False  # admins get a cell `[data-actions]` per row
    # In that cell; js/actions.js fills it from data-topic, data-channel and data-node.
    has_menu: bool = True
    is_main: bool = True  # its parameters have no prefix
    empty: str = "Nothing here."
    rows_per_page: int = ROWS_PER_PAGE
    search_label: str = "Search"
    whole: str = ""  # path of the page with the whole table, if this is a part of it


def pick_columns(spec: TableSpec[T], *keys: str) -> list[Column[T]]:
    """Some of them, in this order, for a smaller version of the table."""
    known = {column.key: column for column in spec.columns}
    return [known[key] for key in keys]


def part_of(spec: TableSpec[T], *keys: str, **changes: Any) -> TableSpec[T]:
    """A smaller version of the table beside others: these columns, and no search."""
    plain: dict[str, Any] = {"searchable": None, "filters": (), "is_main": False, **changes}
    return replace(spec, columns=pick_columns(spec, *keys), **plain)


def replace_state_column(
    spec: TableSpec[T], states: Callable[[T], Sequence[State]]
) -> TableSpec[T]:
    """The same table with other chips in its column `state`."""
    state = chips("state", "State", states)
    return replace(spec, columns=[state if each.key == "state" else each for each in spec.columns])


@dataclass(slots=True)
class Table(Generic[T]):
    """One table of one View. `matched` are all results of the search, sorted; `rows` those of this page."""

    spec: TableSpec[T]
    query: TableQuery
    state: Query
    known: int  # without the search
    matched: list[T]
    rows: list[Row]
    page: int
    pages: int
    errors: list[str] = field(default_factory=list)
    is_admin: bool = False

    @property
    def has_boxes(self) -> bool:
        return self.spec.can_select and self.is_admin

    @property
    def has_actions(self) -> bool:
        return self.spec.has_actions and self.is_admin

    @property
    def total_text(self) -> str:
        if len(self.matched) == self.known:
            return f"{self.known:,}"
        return f"{len(self.matched):,} of {self.known:,}"

    def sort_of(self, column: Column[T]) -> str:
        if self.query.sort != column.key:
            return "none"
        return "descending" if self.query.is_descending else "ascending"

    def sort_link(self, column: Column[T]) -> str:
        """A link that sorts by the column; numbers the largest first, and reversed the second time."""
        first_down = column.kind in ("number", "spark", "chips")
        is_down = not self.query.is_descending if self.query.sort == column.key else first_down
        prefix = self.query.prefix
        order = ("-" if is_down else "") + column.key
        return self.state.with_({prefix + "sort": order, prefix + "page": ""})

    def page_link(self, page: int) -> str:
        return self.state.with_({self.query.prefix + "page": page if page > 1 else ""})

    def filter_links(self) -> list[Link]:
        """The chips above the table: each adds its term to the search, or removes it."""
        links = []
        terms = self.query.text.split()
        for label, term in self.spec.filters:
            is_set = term in terms
            left = [word for word in terms if word != term] if is_set else [*terms, term]
            prefix = self.query.prefix
            href = self.state.with_({prefix + "q": " ".join(left), prefix + "page": ""})
            links.append(Link(label, href, is_set))
        return links

    def blank_row(self) -> Row:
        """The template from which scripts make new rows."""
        return Row("", [Cell("") for _ in self.spec.columns], {})


def make_table(request: PageRequest, spec: TableSpec[T], items: Sequence[T]) -> Table[T]:
    """`items` in the order that decides between equal ones."""
    query = request.query.table("" if spec.is_main else spec.name)
    errors: list[str] = []
    matched = list(items)
    if spec.searchable is not None and query.text:
        columns = {column.key: column.value for column in spec.columns}
        pairs = [name.partition("=") for name in spec.numbers]
        numbers = {name: columns[key or name] for name, _, key in pairs}
        search = Search(spec.searchable, spec.flags, numbers, errors=errors)
        matched = search.filter(query.text, matched)
    matched = sort_items(spec, query, matched)
    size = spec.rows_per_page
    pages = max(1, -(-len(matched) // size))
    page = min(query.page, pages)
    shown = matched[(page - 1) * size : page * size]
    return Table(
        spec=spec,
        query=query,
        state=request.query,
        known=len(items),
        matched=matched,
        rows=[make_row(request, spec, item) for item in shown],
        page=page,
        pages=pages,
        errors=errors,
        is_admin=request.role is Role.ADMIN,
    )


def sort_items(spec: TableSpec[T], query: TableQuery, items: list[T]) -> list[T]:
    """Unknown values come last in either direction."""
    column = next((c for c in spec.columns if c.key == query.sort and c.can_sort), None)
    if column is None:
        return items
    values = list(map(column.value, items))
    known: list[tuple[Any, T]] = [
        pair for pair in zip(values, items, strict=True) if pair[0] is not None
    ]
    known.sort(key=itemgetter(0), reverse=query.is_descending)
    unknown = [item for value, item in zip(values, items, strict=True) if value is None]
    return [item for _, item in known] + unknown


def make_row(request: PageRequest, spec: TableSpec[T], item: T) -> Row:
    return Row(
        key=spec.key(item),
        cells=[make_cell(request, column, item) for column in spec.columns],
        data=spec.data(item) if spec.data else {},
        kind=spec.kind(item) if spec.kind else "",
    )


def make_cell(request: PageRequest, column: Column[T], item: T) -> Cell:
    title = column.title(item) if column.title else ""
    if column.chips is not None:
        chips = column.chips(item)
        return Cell(", ".join(chip.word for chip in chips), title=title, chips=chips)
    if column.spark is not None:
        return Cell("", title=title, points=spark_points(column.spark(request, item)))
    href = column.href(request, item) if column.href else ""
    value = column.value(item)
    return Cell(column.text(value), href, title)


def spark_points(values: Sequence[float | None]) -> str:
    """The path of a line from zero at the bottom to the largest, with gaps for None; '' for fewer than two."""
    known = [value for value in values if value is not None]
    if len(known) < 2:
        return ""
    top = max(*known, 1e-9)
    step = SPARK_WIDTH / (len(values) - 1)
    height = SPARK_HEIGHT - 2
    parts, pen = [], "M"
    for index, value in enumerate(values):
        if value is not None:
            parts.append(f"{pen}{index * step:.1f} {1 + height * (1 - value / top):.1f}")
        pen = "M" if value is None else "L"
    return "".join(parts)
