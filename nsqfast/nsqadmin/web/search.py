"""The syntax of search boxes: plain words, `is:paused`, `no:consumers`, `depth>1000`.

Words match parts of the name, in any case; all terms must match. A term that looks like a qualifier but is none causes
an error beside the box, and the other terms still count.
"""

import operator
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Generic, TypeVar

T = TypeVar("T")

Number = Callable[[T], float | None]
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


@dataclass(frozen=True, slots=True)
class Searchable(Generic[T]):
    """The search terms for one kind of object."""

    text: Callable[[T], str]  # the text in which plain words are searched
    flags: Mapping[str, Callable[[T], bool]] = field(default_factory=dict)  # "is:paused"
    numbers: Mapping[str, Number[T]] = field(default_factory=dict)  # "depth"


@dataclass(slots=True)
class Search(Generic[T]):
    """A parsed search."""

    tests: list[Callable[[T], bool]] = field(default_factory=list)
    errors: list[str] = field(default_factory=list)

    def filter(self, items: list[T]) -> list[T]:
        """The objects that match all terms."""
        for test in self.tests:
            items = [item for item in items if test(item)]
        return items


def parse_search(text: str, searchable: Searchable[T]) -> Search[T]:
    """Never fails: see Search.errors."""
    search: Search[T] = Search()
    words = text.split()
    if len(words) > TERMS_MAX:
        search.errors.append(f"only the first {TERMS_MAX} terms count")
    for word in words[:TERMS_MAX]:
        _add_term(word, searchable, search)
    return search


def _add_term(word: str, searchable: Searchable[T], search: Search[T]) -> None:
    name = word.lower()
    if flag := searchable.flags.get(name):
        search.tests.append(flag)
    elif name.startswith(("is:", "no:")):
        known = ", ".join(searchable.flags) or "none here"
        search.errors.append(f"{word} is not known; known: {known}")
    elif compared := _COMPARISON.fullmatch(word):
        _add_comparison(compared, searchable, search)
    else:
        get_text = searchable.text
        search.tests.append(lambda item: name in get_text(item).lower())


def _add_comparison(found: re.Match[str], searchable: Searchable[T], search: Search[T]) -> None:
    get_number = searchable.numbers.get(found[1].lower())
    if get_number is None:
        known = ", ".join(searchable.numbers) or "none here"
        search.errors.append(f"{found[1]} is not a number of this table; known: {known}")
        return
    number = _NUMBER.fullmatch(found[3])
    if number is None:
        search.errors.append(f"{found[0]}: write a number behind {found[2]}, such as 1000 or 2.5k")
        return
    limit = float(number[1]) * _UNITS[number[2].lower()]
    compare = _COMPARE[found[2]]

    def holds(item: T) -> bool:
        value = get_number(item)
        return value is not None and compare(value, limit)

    search.tests.append(holds)
