"""The figures of stats for people: a table on standard output, and a chart of each hour by topic as PNG or SVG."""

import io
import os
import sys
import tempfile
from collections import Counter
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from nsqfast.errors import OptionsError
from nsqfast.program.extras import needs
from nsqfast.program.stdout import print_text
from nsqfast.spark_jobs.stats_figures import Hour
from nsqfast.wire.gotext import os_error

NOTHING = "–"
KIB = 1024
UNITS = ("B", "KiB", "MiB", "GiB", "TiB", "PiB")
MINUTE_S, HOUR_S, DAY_S = 60, 3600, 86_400


def show_number(number: float | None) -> str:
    """With commas."""
    return NOTHING if number is None else f"{number:,.0f}"


def _show_decimal(number: float) -> str:
    """With one decimal place, if that is not zero."""
    return f"{number:.1f}".removesuffix(".0")


def show_bytes(size: float) -> str:
    """1536 is 1.5 KiB."""
    unit = 0
    while size >= KIB and unit < len(UNITS) - 1:
        size /= KIB
        unit += 1
    return f"{size:,.0f} B" if unit == 0 else f"{_show_decimal(size)} {UNITS[unit]}"


def show_seconds(time_s: float | None) -> str:
    """In a suitable unit; a negative time means that two clocks differ."""
    if time_s is None:
        return NOTHING
    size = abs(time_s)
    if size < 1:
        return f"{time_s * 1000:.0f} ms"
    if size < MINUTE_S:
        return f"{_show_decimal(time_s)} s"
    if size < HOUR_S:
        return f"{_show_decimal(time_s / MINUTE_S)} min"
    if size < DAY_S:
        return f"{_show_decimal(time_s / HOUR_S)} h"
    return f"{_show_decimal(time_s / DAY_S)} d"


# In a file or a pipe nothing is cut off.
WIDTH_MAX = 200
COLUMNS = (
    "topic", "hour (UTC)", "messages", "bytes", "duplicates", "redelivered", "attempts", "max",
    "delay p50", "p95", "p99", "max",
)  # fmt: skip


def print_table(hours: Sequence[Hour]) -> None:
    """Print a row for each topic and hour, and one for all."""
    table = Table(box=box.SIMPLE_HEAD, show_footer=True)
    for number, (name, footer) in enumerate(zip(COLUMNS, _total(hours), strict=True)):
        table.add_column(
            name, footer=footer, justify="left" if number < 2 else "right", no_wrap=True
        )
    for hour in hours:
        table.add_row(*_cells(hour))
    width = None if sys.stdout.isatty() else WIDTH_MAX
    console = Console(file=sys.stdout, width=width)
    with console.capture() as shown:
        console.print(table)
    print_text(shown.get().removesuffix("\n"))


def _cells(hour: Hour) -> list[Text]:
    return [
        Text(text)
        for text in (
            hour.topic,
            f"{hour.date} {hour.hour}",
            show_number(hour.messages),
            show_bytes(hour.bytes),
            show_number(hour.duplicates),
            show_number(hour.redelivered),
            "–" if hour.attempts_mean is None else f"{hour.attempts_mean:.2f}",
            show_number(hour.attempts_max),
            show_seconds(hour.delay_p50_s),
            show_seconds(hour.delay_p95_s),
            show_seconds(hour.delay_p99_s),
            show_seconds(hour.delay_max_s),
        )
    ]


def _total(hours: Sequence[Hour]) -> list[str]:
    """Return the last row; percentiles and means of all cannot be computed from those of the hours."""
    attempts = [hour.attempts_max for hour in hours if hour.attempts_max is not None]
    delays_s = [hour.delay_max_s for hour in hours if hour.delay_max_s is not None]
    return [
        "all",
        "",
        show_number(sum(hour.messages for hour in hours)),
        show_bytes(sum(hour.bytes for hour in hours)),
        show_number(sum(hour.duplicates for hour in hours)),
        show_number(sum(hour.redelivered for hour in hours)),
        "",
        show_number(max(attempts, default=None)),
        "",
        "",
        "",
        show_seconds(max(delays_s, default=None)),
    ]


with needs("--chart", "chart"):
    from matplotlib import rc_context
    from matplotlib.dates import AutoDateLocator, ConciseDateFormatter
    from matplotlib.figure import Figure

TOPICS_MAX = 9  # those with the most messages; with OTHER as many as matplotlib has colours
OTHER = "other"
# Whatever the user's matplotlibrc says: names are shown as they are, and stay texts in an SVG.
SETTINGS = {"svg.fonttype": "none", "text.parse_math": False, "text.usetex": False}


def write_chart(hours: Sequence[Hour], path: str) -> None:
    """Write it as the path's suffix says. OptionsError: it cannot be written."""
    _store(_render(hours, Path(path).suffix[1:].lower()), "--chart", Path(path))


def write_page(hours: Sequence[Hour], path: str) -> None:
    """Write a page with the chart. OptionsError as with `write_chart`."""
    chart = _render(hours, "svg")
    # A page has no place for what stands before it.
    chart = chart[chart.index(b"<svg") :]
    page = b"<!doctype html><meta charset=utf-8><title>NSQ messages per hour</title>\n"
    _store(page + chart, "--html", Path(path))


def _render(hours: Sequence[Hour], picture_format: str) -> bytes:
    sink = io.BytesIO()
    with rc_context(SETTINGS):
        draw_chart(hours).savefig(sink, format=picture_format, bbox_inches="tight")
    return sink.getvalue()


def _store(data: bytes, flag: str, path: Path) -> None:
    """Write the file atomically, for nobody else to read, like the other outputs."""
    try:
        fd, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
        try:
            with os.fdopen(fd, "wb") as file:
                file.write(data)
            Path(name).replace(path)
        except BaseException:  # Ctrl-C, too: no draft is left beside the file
            Path(name).unlink(missing_ok=True)
            raise
    except OSError as error:
        raise OptionsError(f"{flag}: {path}: {os_error(error)}") from None


def draw_chart(hours: Sequence[Hour]) -> Figure:
    """Return the figure, which has to be written with SETTINGS."""
    sums: Counter[str] = Counter()
    for hour in hours:
        sums[hour.topic] += hour.messages
    names = [name for name, _ in sums.most_common(TOPICS_MAX)]
    counts: list[Counter[datetime]] = [Counter() for _ in range(min(len(sums), TOPICS_MAX + 1))]
    for hour in hours:
        place = names.index(hour.topic) if hour.topic in names else TOPICS_MAX
        counts[place][datetime.fromisoformat(f"{hour.date}T{hour.hour}:00+00:00")] += hour.messages
    begins = {time for count in counts for time in count}
    # Each hour ends as well, so that one without messages is drawn as none.
    times = sorted(begins | {time + timedelta(hours=1) for time in begins})

    figure = Figure(figsize=(10, 5))
    axes = figure.add_subplot(title="NSQ messages per hour, by topic", xlabel="UTC")
    rows = [[count[time] for time in times] for count in counts]
    areas = axes.stackplot(times, rows, step="post")
    legend = axes.legend(areas, [OTHER] * len(areas), loc="upper left", bbox_to_anchor=(1, 1))
    # A name given to legend() is left out if it begins with an underscore.
    for text, name in zip(legend.get_texts(), names, strict=False):
        text.set_text(name)
    locator = AutoDateLocator(tz=UTC)
    axes.xaxis.set_major_locator(locator)
    axes.xaxis.set_major_formatter(ConciseDateFormatter(locator, tz=UTC))
    axes.yaxis.get_major_locator().set_params(integer=True)
    axes.yaxis.set_major_formatter("{x:,.0f}")
    axes.margins(x=0)
    return figure
