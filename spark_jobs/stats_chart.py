"""The chart of stats: the messages of each hour by topic, as PNG or SVG."""

import io
import os
import tempfile
from collections import Counter
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path

from nsqfast.errors import OptionsError
from nsqfast.program.extras import needs
from nsqfast.spark_jobs.stats_figures import Hour
from nsqfast.wire.gotext import os_error

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
