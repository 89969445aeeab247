"""nsqfast.client beside pynsq, ansq, asyncnsq and go-nsq: the same loads, the same broker, in turn."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Any

import pytest

from client.race import clients, run
from server.broker import Broker
from server.duel import MEMORY_FLAGS, fresh_folder
from server.implementation import implementations

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from server.scenario import Scale

pytestmark = pytest.mark.timeout(900)

# How many messages: a few tenths of a second for the fastest, seconds for the slowest.
SCENARIOS = {
    "pub_one": 20_000,
    "pub_100": 30_000,
    "pub_piped": 200_000,
    "mpub": 500_000,
    "consume": 50_000,
    "consume_arrays": 200_000,
    "round_trip": 20_000,
    "pub_one_sync": 20_000,
    "consume_sync": 50_000,
}
TOPICS = itertools.count(1)


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    """Provide nsqfast-nsqd, which is not measured."""
    folder: Path = fresh_folder(tmp_path_factory.mktemp("clients"))
    with Broker(implementations()[0], folder, MEMORY_FLAGS) as broker:
        yield broker


@pytest.mark.parametrize("scenario", SCENARIOS)
def bench_clients(benchmark: Any, scale: Scale, broker: Broker, scenario: str) -> None:
    """Rounds of A B C, C B A, A B C."""
    found, missing = clients()
    for line in missing:
        print(line)
    racers = [client for client in found if scenario not in client.cannot]
    count = scale.count(SCENARIOS[scenario], multiple=100)
    samples: dict[str, list[dict[str, float]]] = {client.name: [] for client in racers}

    def one_round() -> None:
        for client in racers:
            topic = f"clients-{next(TOPICS)}"
            samples[client.name].append(run(client, broker, scenario, topic, count))
        racers.reverse()

    benchmark.pedantic(one_round, rounds=scale.rounds, iterations=1)
    benchmark.extra_info.update(
        {
            "suite": "client",
            "scenario": scenario,
            "samples": samples,
            "versions": {client.name: client.version for client in found},
        }
    )
