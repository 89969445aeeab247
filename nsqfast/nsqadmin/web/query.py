"""The state of a page in its address: `q`, `sort`, `page` of tables, and a page's own parameters."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from urllib.parse import parse_qsl, urlencode

VALUE_SIZE_MAX = 1024
PAGE_MAX = 10**6
PARAMETERS_MAX = 32


@dataclass(frozen=True, slots=True)
class TableQuery:
    """The parameters of one table. The main table of a page has plain names, others `NAME.sort`."""

    prefix: str
    text: str
    sort: str  # column; '' for the table's own order
    is_descending: bool
    page: int  # from 1


class Query:
    """The first value of each parameter; values too long or invalid count as missing."""

    def __init__(self, pairs: Iterable[tuple[str, str]]) -> None:
        self.values: dict[str, str] = {}
        for name, value in list(pairs)[:PARAMETERS_MAX]:
            if value and len(value) <= VALUE_SIZE_MAX:
                self.values.setdefault(name, value)

    @classmethod
    def parse(cls, text: str) -> "Query":
        """Parse the part after the `?`."""
        try:
            return cls(parse_qsl(text, max_num_fields=PARAMETERS_MAX))
        except ValueError:
            return cls(())

    def get(self, name: str, default: str = "") -> str:
        """One value."""
        return self.values.get(name, default)

    def choice(self, name: str, choices: Iterable[str]) -> str:
        """The value if it is one of these, else the first of them."""
        known = list(choices)
        value = self.get(name)
        return value if value in known else known[0]

    def table(self, name: str = "") -> TableQuery:
        """Of the main table, or of another by its name."""
        prefix = f"{name}." if name else ""
        sort = self.get(prefix + "sort")
        page = self.get(prefix + "page", "1")
        number = int(page) if page.isascii() and page.isdigit() and len(page) < 8 else 1
        return TableQuery(
            prefix=prefix,
            text=self.get(prefix + "q").strip(),
            sort=sort.removeprefix("-"),
            is_descending=sort.startswith("-"),
            page=min(max(number, 1), PAGE_MAX),
        )

    def with_(self, changes: Mapping[str, str | int]) -> str:
        """`?...` with these changes, '' removing one: a link to the same page in another state."""
        values: dict[str, str | int] = {**self.values, **changes}
        left = {name: value for name, value in values.items() if value != ""}
        return "?" + urlencode(left)

    def text(self) -> str:
        """In a fixed order, so that equal states have one address."""
        return urlencode(sorted(self.values.items()))
