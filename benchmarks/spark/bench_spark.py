"""nsqfast with Spark in local[2], beside the way without it: the same messages, in turn."""

from __future__ import annotations

import importlib.util
import shutil
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if importlib.util.find_spec("pyspark") is None:
    pytest.skip("the benchmarks of Spark need PySpark (and Java 17)", allow_module_level=True)

from nsqfast.spark.runtime import JavaMissingError, find_java
from server.broker import Broker
from server.implementation import implementations
from spark.scenario import SCENARIOS, Scenario
from spark.session import open_session
from spark.trial import OURS, PLAIN, Place, run
from support.spark_home import use_spark_home

if TYPE_CHECKING:
    from collections.abc import Iterator

    from server.scenario import Scale
    from spark.sample import Sample

# Spark starts slowly, and leaves sockets to its own garbage collection.
pytestmark = [
    pytest.mark.timeout(1800),
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
]

FLAGS = ("--mem-queue-size=10000000",)
SECONDS_LEAST = 2


@pytest.fixture(scope="module")
def place(request: pytest.FixtureRequest) -> Iterator[Place]:
    """Provide nsqfast-nsqd, which is not measured, a session, and a folder on the disk."""
    try:
        find_java()
    except JavaMissingError as error:
        pytest.skip(str(error))
    parent = Path(request.config.getoption("--bench-data")).absolute()
    parent.mkdir(parents=True, exist_ok=True)
    folder = Path(tempfile.mkdtemp(prefix="bench-", dir=parent))
    if request.config.getoption("--smoke"):
        use_spark_home()
    session = open_session(folder)
    with Broker(implementations()[0], folder / "nsqd", FLAGS) as broker:
        yield Place(broker, session, folder)
    session.stop()
    shutil.rmtree(folder)


@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda scenario: scenario.key)
def bench_spark(benchmark: Any, scale: Scale, place: Place, scenario: Scenario) -> None:
    """One round to warm the JVM, then rounds of A B, B A, A B."""
    least = SECONDS_LEAST if scenario.count < 1000 else 10_000
    counts = {OURS: scale.count(scenario.count, least)}
    if scenario.plain:
        counts[PLAIN] = scale.count(scenario.plain_count, least)
    samples: dict[str, list[Sample]] = {name: [] for name in counts}
    names = list(counts)

    def one_round() -> None:
        for name in names:
            if sample := run(scenario, name, counts[name], place):
                samples[name].append(sample)
        names.reverse()

    if scale.rounds > 1:
        one_round()
        for taken in samples.values():
            taken.clear()
    benchmark.pedantic(one_round, rounds=scale.rounds, iterations=1)
    benchmark.extra_info.update(
        {"suite": "spark", "scenario": scenario.key, "samples": samples, "counts": counts}
    )
