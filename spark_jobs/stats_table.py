"""The figures of stats as a table on standard output."""

import sys
from collections.abc import Sequence

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from nsqfast.program.stdout import print_text
from nsqfast.spark_jobs.stats_figures import Hour
from nsqfast.spark_jobs.units import show_bytes, show_number, show_seconds

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
