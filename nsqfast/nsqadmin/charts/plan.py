"""The charts of each page, declared on the server: keys of history, lines with their column, colour and dash.

The page carries the plan as JSON (templates/charts.html); `static/js/charts.js` draws it from `/ui/series`:

    {"query": "key=&columns=in_s%2Cout_s&range=1h", "charts": [
        {"id": "rates", "title": "In and out per second", "unit": "/s", "lines": [
            {"label": "In", "series": 0, "columns": ["in_s"], "colour": 1, "dash": []}]}]}

`series` counts the keys of the query. A line with several columns is their sum.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import quote, unquote, urlencode

from nsqfast.nsqadmin.live.series import NODE_COLUMNS, Key
from nsqfast.nsqadmin.web.elements import Link
from nsqfast.nsqadmin.web.query import Query

RANGES = {"15m": 900, "1h": 3600, "6h": 6 * 3600, "24h": 24 * 3600}
RANGE_NAMES = {"15m": "15 min", "1h": "1 h", "6h": "6 h", "24h": "24 h"}
RANGE_DEFAULT = "1h"
KEY_SIZES = {
    "topic": 2,
    "channel": 3,
    "node": 2,
}  # first part, and the number of parts
COLUMNS = NODE_COLUMNS  # all columns
POINT_S = 10.0  # an open page asks for points at least this often, even if no number changes
DEPTH = ("memory_depth", "backend_depth")
LINES_MAX = 5  # colours that can be told apart
# One for each colour, so that lines also differ without colour.
DASHES = ("", "6 4", "2 3", "10 3 2 3", "12 5")


@dataclass(frozen=True, slots=True)
class Line:
    """`colour` is 1 to LINES_MAX; its dash belongs to it."""

    label: str
    columns: Sequence[str]
    colour: int
    key: Key = ()

    @property
    def dash(self) -> str:
        """In the form of SVG's stroke-dasharray."""
        return DASHES[self.colour - 1]


@dataclass(frozen=True, slots=True)
class Chart:
    """`unit` follows each number: "/s", "B" for sizes, or nothing."""

    id: str
    title: str
    lines: Sequence[Line]
    unit: str = ""


@dataclass(frozen=True, slots=True)
class Plan:
    """All charts of a page for one range; they share one request to the server."""

    charts: Sequence[Chart]
    range: str
    links: list[Link] = field(default_factory=list)

    @property
    def keys(self) -> list[Key]:
        """Each once, in the order of the lines."""
        return list(dict.fromkeys(line.key for chart in self.charts for line in chart.lines))

    @property
    def query(self) -> str:
        """The query after `/ui/series?`."""
        used = {column for chart in self.charts for line in chart.lines for column in line.columns}
        columns = ",".join(column for column in COLUMNS if column in used)
        keys = [("key", format_key(key)) for key in self.keys]
        return urlencode([*keys, ("columns", columns), ("range", self.range)])

    @property
    def range_text(self) -> str:
        """The range in a summary's words."""
        return RANGE_NAMES[self.range]

    def to_json(self) -> dict[str, Any]:
        """See the module."""
        places = {key: place for place, key in enumerate(self.keys)}
        return {
            "query": self.query,
            "range": self.range_text,
            "charts": [
                {
                    "id": chart.id,
                    "title": chart.title,
                    "unit": chart.unit,
                    "lines": [
                        {
                            "label": line.label,
                            "series": places[line.key],
                            "columns": list(line.columns),
                            "colour": line.colour,
                            "dash": [int(part) for part in line.dash.split()],
                        }
                        for line in chart.lines
                    ],
                }
                for chart in self.charts
            ],
        }


def make_plan(query: Query, history_s: float, charts: Sequence[Chart]) -> Plan:
    """For the range in the page's address; ranges that history cannot fill are left out, except the first two."""
    known = [name for name, range_s in RANGES.items() if range_s <= max(history_s, 3600)]
    chosen = query.get("range", RANGE_DEFAULT)
    if chosen not in known:
        chosen = RANGE_DEFAULT
    links = [
        Link(
            RANGE_NAMES[name],
            query.with_({"range": "" if name == RANGE_DEFAULT else name}),
            name == chosen,
        )
        for name in known
    ]
    return Plan(charts, chosen, links)


def format_key(key: Key) -> str:
    """`topic/orders`: each part is quoted, because names may contain anything."""
    return "/".join(quote(part, safe="") for part in key)


def parse_key(text: str) -> Key:
    """The inverse of format_key; ValueError says what is wrong."""
    parts = tuple(unquote(part) for part in text.split("/")) if text else ()
    if parts and len(parts) != KEY_SIZES.get(parts[0]):
        raise ValueError("key is empty, topic/T, channel/T/C or node/HOST:PORT")
    return parts
