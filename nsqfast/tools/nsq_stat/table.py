"""All channels on a terminal: as many lines as fit, sorted, with their sum."""

import time
from collections.abc import Callable, Mapping, Sequence
from itertools import islice

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.table import Table as Grid
from rich.text import Text

from nsqfast.errors import ConnectError
from nsqfast.program.logs import escape_controls
from nsqfast.tools.nsq_stat.options import Options
from nsqfast.tools.nsq_stat.rates import NAMES, NUMBERS, Key, Row, sort_rows, total
from nsqfast.wire.gotext import format_duration

FIXED_HEIGHT = 4  # title, empty line, column headers, sum
ERRORS_SHOWN_MAX = 3
UNKNOWN = "-"
GAP = 1
NAME_WIDTH_MIN = 12
RATES = frozenset(("ingress", "egress"))
# In the order in which a narrow terminal drops them.
DISPENSABLE = (
    "t-o",
    "mem",
    "disk",
    "req",
    "msgs",
    "clients",
    "def",
    "inflt",
    "egress",
    "ingress",
    "total",
)


class LiveTable:
    """Redrawn with each sample, until `close`, which leaves the last one on the screen."""

    def __init__(self, options: Options) -> None:
        self._options = options
        self._console = Console(highlight=False)
        self._live = Live(
            console=self._console, screen=True, auto_refresh=False, redirect_stderr=False
        )
        self._last: RenderableType | None = None

    async def show(
        self, rows: dict[Key, Row], node_count: int, errors: Mapping[str, ConnectError]
    ) -> None:
        """See reports.Report."""
        if not self._live.is_started:
            self._live.start()
        self._last = draw(rows, node_count, errors, self._options, self._console.size)
        self._live.update(self._last, refresh=True)

    def close(self) -> None:
        """Release the terminal."""
        if self._live.is_started:
            self._live.stop()
        if self._last is not None:
            self._console.print(self._last)


def draw(
    rows: dict[Key, Row],
    node_count: int,
    errors: Mapping[str, ConnectError],
    options: Options,
    size: tuple[int, int],
) -> RenderableType:
    """A screenful of this many columns and lines."""
    width, height = size
    notes = [
        Text(escape_controls(str(error)), style="red")
        for error in islice(errors.values(), ERRORS_SHOWN_MAX)
    ]
    if len(errors) > ERRORS_SHOWN_MAX:
        notes.append(Text(f"and {len(errors) - ERRORS_SHOWN_MAX} more", style="red"))
    items = sort_rows(rows, options.sort)
    room = max(1, height - FIXED_HEIGHT - len(notes))
    # The line that says how many are left out replaces one of them.
    shown = items if len(items) <= room else items[: max(1, room - 1)]
    more = [Text(f"and {len(items) - len(shown):,} more", style="dim")] * (len(items) > len(shown))
    for note in notes:
        note.no_wrap, note.overflow = True, "ellipsis"
    grid = _grid(shown, _sum([row for _, row in items]), options.sort, width)
    return Group(_title(rows, node_count, errors, options), *notes, Text(), grid, *more)


def _title(
    rows: dict[Key, Row], node_count: int, errors: Mapping[str, ConnectError], options: Options
) -> Text:
    topics, channels = {topic for topic, _ in rows}, sum(1 for _, channel in rows if channel)
    text = (
        f"{time.strftime('%H:%M:%S')}  every {format_duration(options.interval_ns)}  {node_count} nsqd, "
        f"{_count(len(topics), 'topic')}, {_count(channels, 'channel')}, by {options.sort}"
    )
    missing = f"  {len(errors)} did not answer" if errors else ""
    return Text.assemble((text, "bold"), (missing, "bold red"), no_wrap=True, overflow="ellipsis")


def _count(number: int, noun: str) -> str:
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def _grid(shown: Sequence[tuple[Key, Row]], everything: Row, sort: str, width: int) -> Grid:
    cells = {name: [_cell(name, value, row) for _, row in shown] for name, value in NUMBERS.items()}
    feet = {name: _cell(name, value, everything) for name, value in NUMBERS.items()}
    widths = {name: max(map(len, [name, feet[name], *cells[name]])) for name in NUMBERS}
    kept = choose_columns(widths, sort, width - 2 * (NAME_WIDTH_MIN + GAP))
    left = width - sum(widths[name] + GAP for name in kept)
    grid = Grid(box=None, padding=(0, GAP, 0, 0), pad_edge=False, show_footer=True)
    for name, foot, limit in zip(
        NAMES, ("sum", ""), _name_widths([key for key, _ in shown], left), strict=True
    ):
        grid.add_column(
            name,
            foot,
            no_wrap=True,
            overflow="ellipsis",
            width=limit,
            header_style=_style(name, sort),
        )
    for name in kept:
        grid.add_column(
            name,
            feet[name],
            justify="right",
            no_wrap=True,
            width=widths[name],
            header_style=_style(name, sort),
        )
    for number, ((topic, channel), _) in enumerate(shown):
        grid.add_row(
            _name(topic), _name(channel or UNKNOWN), *[cells[name][number] for name in kept]
        )
    return grid


def _name(name: str) -> Text:
    return Text(escape_controls(name))


def _name_widths(keys: Sequence[Key], room: int) -> tuple[int, int]:
    """Column widths of topics and channels; if there is little room, the longer of the two gives way."""
    topic = max(map(len, ["topic", *[topic for topic, _ in keys]]))
    channel = max(map(len, ["channel", *[channel for _, channel in keys]]))
    room -= 2 * GAP
    half = max(NAME_WIDTH_MIN, room // 2)
    topic = min(topic, max(half, room - channel))
    return topic, min(channel, max(NAME_WIDTH_MIN, room - topic))


def choose_columns(widths: Mapping[str, int], sort: str, room: int) -> list[str]:
    """The columns that fit on a narrow terminal, always including the one used for sorting."""
    kept = list(NUMBERS)
    for name in DISPENSABLE:
        if sum(widths[one] + GAP for one in kept) <= room:
            break
        if name != sort:
            kept.remove(name)
    return kept


def _cell(name: str, value: Callable[[Row], int], row: Row) -> str:
    is_known = name not in RATES or row.ingress is not None
    return str(value(row)) if is_known else UNKNOWN


def _style(name: str, sort: str) -> str:
    return "bold reverse" if name == sort else "bold"


def _sum(rows: Sequence[Row]) -> Row:
    ingress = [row.ingress for row in rows if row.ingress is not None]
    egress = [row.egress for row in rows if row.egress is not None]
    return Row(
        total([row.counters for row in rows]),
        sum(ingress) if ingress else None,
        sum(egress) if egress else None,
    )
