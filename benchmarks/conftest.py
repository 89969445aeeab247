"""Options and fixtures of the benchmarks."""

from __future__ import annotations

import resource
import shutil
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from server.duel import Duel
from server.generators import NO_WRK, has_wrk
from server.implementation import NO_GO, go_nsqd
from server.machine import describe
from server.redis import NO_REDIS, has_redis
from server.scenario import FULL, SMOKE, Scale

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).resolve().parents[1]
SERVER = Path(__file__).resolve().parent / "server"
GROWTH = Path(__file__).resolve().parent / "growth"
SECONDS_MAX = 600
GROWTH_SECONDS_MAX = 3600
# The order of the report.
ORDER = (
    "publish consume sizes disk durable deferred http latency peek idle startup memory lookupd admin_api "
    "admin_live"
).split()


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--smoke",
        action="store_true",
        help="one short round of every whole-server scenario, to see that it works",
    )
    parser.addoption(
        "--rounds",
        type=int,
        default=FULL.rounds,
        help="rounds of every whole-server scenario (default %(default)s)",
    )
    parser.addoption(
        "--growth-scale",
        choices=("small", "full"),
        help="how many of each benchmarks/growth makes: small for CI (with --smoke), full for the report",
    )
    parser.addoption(
        "--bench-data",
        default=str(ROOT / "build"),
        help="folder on the disk that brokers write to; their data is deleted afterwards",
    )


def pytest_configure() -> None:
    # Thousands of connections, at both ends.
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def pytest_report_header() -> list[str]:
    said = [] if go_nsqd() else [NO_GO]
    return said if has_redis() else [*said, NO_REDIS]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if SERVER in item.path.parents:
            item.add_marker(pytest.mark.timeout(SECONDS_MAX))
        if GROWTH in item.path.parents:
            item.add_marker(pytest.mark.timeout(GROWTH_SECONDS_MAX))
    items.sort(key=_place)


def _place(item: pytest.Item) -> int:
    """Return the rank: the canonical scenario first; a stable sort leaves the others in place behind it."""
    name = item.path.stem.removeprefix("bench_")
    return ORDER.index(name) if SERVER in item.path.parents and name in ORDER else len(ORDER)


def pytest_benchmark_update_machine_info(config: Any, machine_info: dict[str, Any]) -> None:
    machine_info["nsqfast"] = describe(Path(config.getoption("--bench-data")))


@pytest.fixture
def scale(request: pytest.FixtureRequest) -> Scale:
    """How much of each scenario is run."""
    if request.config.getoption("--smoke"):
        return SMOKE
    return replace(FULL, rounds=request.config.getoption("--rounds"))


@pytest.fixture
def is_small(request: pytest.FixtureRequest) -> bool:
    """Whether benchmarks/growth makes few of each."""
    asked: str | None = request.config.getoption("--growth-scale")
    return asked == "small" if asked else bool(request.config.getoption("--smoke"))


@pytest.fixture
def data_folder(request: pytest.FixtureRequest) -> Iterator[Path]:
    """Provide a folder for brokers' data: on a real disk, not in a /tmp that may be memory."""
    parent = Path(request.config.getoption("--bench-data"))
    parent.mkdir(parents=True, exist_ok=True)
    folder = Path(tempfile.mkdtemp(prefix="bench-", dir=parent))
    yield folder
    shutil.rmtree(folder)


@pytest.fixture
def duel(benchmark: Any, scale: Scale, data_folder: Path) -> Duel:
    """Run a scenario on every available broker."""
    return Duel(benchmark, scale, data_folder)


@pytest.fixture
def needs_wrk() -> None:
    """Skip if wrk is not installed, and say how to install it."""
    if not has_wrk():
        pytest.skip(NO_WRK)
