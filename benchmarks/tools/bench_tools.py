"""The utilities beside Go's: the same messages, the same broker, in turn."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Any

import pytest

from server.broker import Broker
from server.duel import fresh_folder
from server.implementation import implementations
from tools.scenario import SCENARIOS, Scenario
from tools.trial import GO, OURS, HttpSink, Place, Sample, command, run

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from server.scenario import Scale

pytestmark = pytest.mark.timeout(900)

TOPICS = itertools.count(1)
# More than any scenario puts into a topic and its copy.
FLAGS = ("--mem-queue-size=5000000",)


@pytest.fixture
def place(data_folder: Path) -> Iterator[Place]:
    """Provide nsqfast-nsqd, which is not measured, and a folder on the disk."""
    with HttpSink() as sink, Broker(implementations()[0], data_folder / "nsqd", FLAGS) as broker:
        yield Place(broker, fresh_folder(data_folder / "tools"), sink)


@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda scenario: scenario.key)
def bench_tools(benchmark: Any, scale: Scale, place: Place, scenario: Scenario) -> None:
    """Rounds of A B, B A, A B."""
    counts = {OURS: scale.count(scenario.count, 1000), GO: scale.count(scenario.go_count, 1000)}
    racers = [(name, words) for name in (OURS, GO) if (words := command(scenario, name))]
    samples: dict[str, list[Sample]] = {name: [] for name, _ in racers}

    def one_round() -> None:
        for name, words in racers:
            topic = f"tools-{next(TOPICS)}"
            samples[name].append(run(scenario, words, topic, counts[name], place))
        racers.reverse()

    benchmark.pedantic(one_round, rounds=scale.rounds, iterations=1)
    benchmark.extra_info.update(
        {"suite": "tools", "scenario": scenario.key, "samples": samples, "counts": counts}
    )
