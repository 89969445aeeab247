"""Reads pytest-benchmark's JSON file into records."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

SERVER_SUITE = "server"
MICRO_FOLDER = "/micro/"

Sample = dict[str, float]


class UnreadableError(Exception):
    """These benchmarks did not write the file; the text is for a person to read."""


@dataclass(frozen=True, slots=True)
class Target:
    """A figure to reach; see server.scenario."""

    metric: str
    relation: str
    value: float
    is_ratio: bool


@dataclass(frozen=True, slots=True)
class Row:
    """One scenario as one generator drove it, with the samples of each implementation by round."""

    scenario: str
    generator: str
    durability: str
    group: str
    size: int
    targets: tuple[Target, ...]
    redis_generator: str
    samples: dict[str, list[Sample | None]]


@dataclass(frozen=True, slots=True)
class Micro:
    """One timed call that handles many messages."""

    structure: str
    name: str
    messages: int
    call_seconds: float  # median
    middle_seconds: tuple[float, float]  # half of the calls took between these


@dataclass(frozen=True, slots=True)
class Run:
    """One run of the benchmarks."""

    date: str
    machine: dict[str, str]
    rows: list[Row]
    micro: list[Micro]

    def group(self, name: str) -> list[Row]:
        """The rows of one table."""
        return [row for row in self.rows if row.group == name]


def read_run(path: Path) -> Run:
    """Read the file that `pytest benchmarks --benchmark-json=PATH` wrote."""
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
        benchmarks = document["benchmarks"]
        return Run(
            date=document["datetime"][:10],
            machine=document["machine_info"].get("nsqfast", {}),
            rows=list(_rows(benchmarks)),
            micro=list(_micro(benchmarks)),
        )
    except OSError as error:
        raise UnreadableError(f"{path}: {error.strerror}: run `make bench` first") from None
    except (ValueError, KeyError, TypeError) as error:
        raise UnreadableError(f"{path} is no file of these benchmarks: {error!r}") from None


def _rows(benchmarks: list[dict[str, Any]]) -> Iterator[Row]:
    for benchmark in benchmarks:
        extra = benchmark["extra_info"]
        if extra.get("suite") == SERVER_SUITE:
            for row in extra["rows"]:
                targets = tuple(Target(**target) for target in row["targets"])
                yield Row(**row | {"targets": targets})


def _micro(benchmarks: list[dict[str, Any]]) -> Iterator[Micro]:
    for benchmark in benchmarks:
        if MICRO_FOLDER not in benchmark["fullname"]:
            continue
        stats, messages = benchmark["stats"], benchmark["extra_info"].get("messages", 1)
        structure = benchmark["fullname"].partition("::")[0].rpartition("bench_")[2]
        yield Micro(
            structure=structure.removesuffix(".py"),
            name=benchmark["name"].removeprefix("bench_").replace("_", " ").replace("[", " ["),
            messages=messages,
            call_seconds=stats["median"],
            middle_seconds=(stats["q1"], stats["q3"]),
        )
