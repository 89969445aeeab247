"""One run of one scenario: ours, or the plain way."""

from __future__ import annotations

import itertools
import shutil
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from spark import archiving, flowing, intake, reading, sinking

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from server.broker import Broker
    from spark.sample import Sample
    from spark.scenario import Scenario

OURS, PLAIN = "nsqfast", "plain"


@dataclass(slots=True)
class Place:
    """Where trials have their broker, their session and their files."""

    broker: Broker
    session: Any
    folder: Path
    numbers: Iterator[int] = field(default_factory=lambda: itertools.count(1))


def run(scenario: Scenario, name: str, count: int, place: Place) -> Sample | None:
    """None if the plain way is not available. The output is removed."""
    number = next(place.numbers)
    trial = place.folder / f"trial-{number}"
    trial.mkdir()
    try:
        return RUNS[scenario.key](name == OURS, f"spark-{number}", count, trial, place)
    finally:
        shutil.rmtree(trial)


def run_intake(is_ours: bool, topic: str, count: int, trial: Path, place: Place) -> Sample | None:
    consume = intake.receive if is_ours else intake.receive_plainly
    return consume(place.broker, topic, trial, count)


def run_bucket(is_ours: bool, topic: str, count: int, trial: Path, place: Place) -> Sample:
    consume = intake.receive_into_bucket if is_ours else intake.receive_parquet
    return consume(place.broker, topic, trial, count)


def run_reading(sink: str) -> Any:
    def run_it(is_ours: bool, _topic: str, count: int, trial: Path, place: Place) -> Sample:
        if is_ours:
            spool = reading.make_spool(place.folder, count)
            return reading.read_spool(place.session, spool, trial, sink)
        lines = reading.make_lines(place.folder, count)
        return reading.read_text(place.session, lines, trial, sink)

    return run_it


def run_native(sink: str) -> Any:
    def run_it(is_ours: bool, _topic: str, count: int, trial: Path, place: Place) -> Sample:
        measure = reading.read_natively if is_ours else reading.read_parquet
        return measure(place.session, place.folder, count, trial, sink)

    return run_it


def run_sink(is_ours: bool, topic: str, count: int, _trial: Path, place: Place) -> Sample:
    publish = sinking.publish if is_ours else sinking.publish_plainly
    return publish(place.session, place.broker, topic, count)


def run_archives(is_packed: bool) -> Any:
    def run_it(is_ours: bool, _topic: str, count: int, trial: Path, place: Place) -> Sample:
        archives = archiving.make_archives(place.folder, count, is_packed=is_packed)
        load = archiving.load if is_ours else archiving.load_plainly
        return load(place.session, archives, trial, count)

    return run_it


def run_flow(rate: int, interval: str) -> Any:
    def run_it(_is_ours: bool, topic: str, seconds: int, trial: Path, place: Place) -> Sample:
        return flowing.flow(place.broker, topic, trial, rate, interval, seconds)

    return run_it


RUNS: dict[str, Any] = {
    "intake": run_intake,
    "intake_bucket": run_bucket,
    "spool_noop": run_reading("noop"),
    "spool_parquet": run_reading("parquet"),
    "native_noop": run_native("noop"),
    "native_parquet": run_native("parquet"),
    "end_to_end": run_flow(flowing.RATE_MAX, "1s"),
    "latency": run_flow(flowing.RATE_CALM, "0s"),
    "sink": run_sink,
    "archives": run_archives(is_packed=False),
    "archives_gzip": run_archives(is_packed=True),
}
