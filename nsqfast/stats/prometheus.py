"""Prometheus' two text formats. Nothing here knows about a broker.

The library chooses the format and writes the metrics that exist once. It takes 4 µs per series (8 in OpenMetrics), too
long for thousands of them. So this module writes their lines, in a tenth of that time, since names and labels like ours
need no escaping.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from prometheus_client import exposition
from prometheus_client.metrics_core import HistogramMetricFamily, Metric
from prometheus_client.registry import Collector

from nsqfast._ext.core.histogram import BOUNDS_S, Histogram

OPENMETRICS = "application/openmetrics-text"
# Lines written in one go: less than a millisecond.
LINE_COUNT = 1000
_BOUNDS = [*map(str, BOUNDS_S), "+Inf"]

# The labels of a series, between the braces, and its value in each family of a list.
Row = tuple[str, tuple[float | str, ...]]
HistogramRow = tuple[str, list[int], float]


@dataclass(frozen=True, slots=True)
class Family:
    """The properties shared by all series of one name; a counter's samples have the suffix `_total`."""

    name: str
    kind: str
    help: str

    @property
    def sample_name(self) -> str:
        """The name on each line."""
        return self.name + "_total" if self.kind == "counter" else self.name


class _Once(Collector):
    """The collector from which the library reads metrics."""

    def __init__(self, metrics: Iterable[Metric]) -> None:
        self._metrics = metrics

    def collect(self) -> Iterable[Metric]:
        return self._metrics


class Format:
    """The format that an Accept header asks for: OpenMetrics 1.0, or else the text format 0.0.4."""

    def __init__(self, accept: str) -> None:
        types = [item.partition(";")[0].strip().lower() for item in accept.split(",")]
        # Without its parameters: the library fails if a version is not a number.
        chosen = OPENMETRICS if OPENMETRICS in types else ""
        self._encode, self.content_type = exposition.choose_encoder(chosen)
        self.end = self._encode(_Once(()))

    def metrics(self, metrics: Iterable[Metric]) -> bytes:
        """All lines of these metrics."""
        return self._encode(_Once(metrics)).removesuffix(self.end)

    def table(self, families: Iterable[Family], rows: list[Row]) -> Iterator[bytes]:
        """Yield each family with its column of the rows, in pieces; nothing without rows."""
        for column, family in enumerate(families if rows else ()):
            yield self._head(family)
            for start in range(0, len(rows), LINE_COUNT):
                name = family.sample_name
                some = rows[start : start + LINE_COUNT]
                yield "".join(
                    [f"{name}{{{labels}}} {values[column]}\n" for labels, values in some]
                ).encode()

    def histograms(self, family: Family, rows: list[HistogramRow]) -> Iterator[bytes]:
        """Labels, cumulative counts by BOUNDS_S and beyond, and the sum in seconds."""
        if rows:
            yield self._head(family)
        step = LINE_COUNT // (len(_BOUNDS) + 2)
        for start in range(0, len(rows), step):
            some = rows[start : start + step]
            yield "".join([_histogram_lines(family.name, *row) for row in some]).encode()

    def _head(self, family: Family) -> bytes:
        return self.metrics([Metric(family.name, family.help, family.kind)])


def _histogram_lines(name: str, labels: str, counts: list[int], sum_s: float) -> str:
    start = f'{name}_bucket{{{labels},le="'
    buckets = [f'{start}{bound}"}} {count}\n' for bound, count in zip(_BOUNDS, counts, strict=True)]
    total = f"{name}_count{{{labels}}} {counts[-1]}\n{name}_sum{{{labels}}} {sum_s}\n"
    return "".join(buckets) + total


def histogram_series() -> int:
    """The number of lines of one histogram."""
    return len(_BOUNDS) + 2


def histogram_metric(
    name: str, text: str, seen: Histogram, least_s: float, most_s: float
) -> HistogramMetricFamily:
    """A histogram that exists once, with those of its bounds that matter."""
    counts = seen.cumulative()
    buckets = [
        (bound, count)
        for bound, bound_s, count in zip(_BOUNDS, BOUNDS_S, counts, strict=False)
        if least_s <= bound_s <= most_s
    ]
    buckets.append((_BOUNDS[-1], counts[-1]))
    return HistogramMetricFamily(name, text, buckets=buckets, sum_value=seen.sum_s)
