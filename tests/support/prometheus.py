"""What /metrics says, read by the parsers of prometheus_client."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from prometheus_client.openmetrics.parser import (
    text_string_to_metric_families as parse_openmetrics,
)
from prometheus_client.parser import text_string_to_metric_families as parse_text

from support.web import request

if TYPE_CHECKING:
    from prometheus_client.metrics_core import Metric

TEXT = "text/plain; version=0.0.4; charset=utf-8"
OPENMETRICS = "application/openmetrics-text; version=1.0.0; charset=utf-8"


class Scrape(NamedTuple):
    families: dict[str, Metric]  # by name as parsed
    content_type: str
    text: str

    def value(self, name: str, **labels: str) -> float:
        """The one sample of that name and these labels."""
        [found] = [value for value, have in self.samples(name) if have == labels]
        return found

    def samples(self, name: str) -> list[tuple[float, dict[str, str]]]:
        return [
            (sample.value, sample.labels)
            for family in self.families.values()
            for sample in family.samples
            if sample.name == name
        ]

    def series(self) -> set[tuple[str, frozenset[tuple[str, str]]]]:
        """Every name with its labels."""
        found = [
            (sample.name, frozenset(sample.labels.items()))
            for family in self.families.values()
            for sample in family.samples
        ]
        assert len(found) == len(set(found)), "a series that is there twice"
        return set(found)


def scrape(address: tuple[str, int], accept: str = "", target: str = "/metrics") -> Scrape:
    answer = request(address, "GET", target, headers={"Accept": accept} if accept else {})
    assert answer.status == 200, answer
    content_type, text = answer.headers["Content-Type"], answer.body.decode()
    return read(content_type, text)


def read(content_type: str, text: str) -> Scrape:
    parse = parse_openmetrics if content_type.startswith("application/openmetrics") else parse_text
    families = list(parse(text))
    by_name = {family.name: family for family in families}
    assert len(by_name) == len(families), "a family that is there twice"
    return Scrape(by_name, content_type, text)
