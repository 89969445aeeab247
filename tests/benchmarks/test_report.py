"""From pytest-benchmark's JSON to REPORT.md: an honest text, whatever is missing."""

import copy
import json

import pytest

from reporting import words
from reporting.document import NO_GO, NO_REDIS, NO_WRK, compose
from reporting.records import read_run
from server.implementation import NO_GO as NO_GO_HERE
from server.redis import NO_REDIS as NO_REDIS_HERE
from server.scenario import (
    DEVICE,
    DURABLE,
    LATENCY,
    OTHER,
    Row,
    Target,
    at_least,
    at_most,
    cpu_at_most,
)


def load(rate, cpu_us, own_us=0.1):
    return {
        "rate": rate,
        "broker_cpu_us": cpu_us,
        "generator_cpu_us": own_us,
        "peak_rss_bytes": 50 << 20,
    }


def server_row(name, generator, durability, *others, **samples):
    return Row(name, generator, durability, *others).as_json() | {"samples": samples}


ROWS = [
    server_row(
        *("MPUB 200 × 200 B, 2 connections", "nsqfast-bench", "memory", "throughput"),
        (
            *(at_least(2), cpu_at_most(0.25)),
            *(Target("rate", one, 4) for one in (">=", "<=", "<")),
        ),
        # The ratios of the rounds are 4, 10 and 3, and their median is not the ratio of the medians; the others
        # have no sample of one, or a figure of 0, which gives no ratio. They count in the spread.
        nsqfast=[
            *(load(4e6, 0.2), load(5e6, 0.3, 0.4), load(6e6, 0.3, 0.4)),
            *(None, load(8e6, 0.3), load(6e6, 0.3, 0.5)),
        ],
        go=[load(1e6, 0.8), load(0.5e6, 0.8), load(2e6, 0.8), load(1e6, 0.8), load(0, 0.8)],
        null=[load(9e6, 0.1)],
    ),
    server_row(
        *("5,000 msg/s, output buffer timeout 25 ms", "nsqfast-bench", "memory", LATENCY),
        (Target("p50_us", "<=", 0.15),),
        nsqfast=[{"p50_us": 60.0, "p99_us": 100.0, "p999_us": 200.0}],
        go=[{"p50_us": 6000.0, "p99_us": 9000.0, "p999_us": 9900.0}],
    ),
    server_row(
        *("MPUB 200 × 200 B, 10 channels, consumed", "nsqfast-bench", "fsync before OK"),
        *(DURABLE, (), 0, "redis-benchmark"),
        nsqfast=[load(300e3, 1.0), load(400e3, 1.0)],
        redis=[load(100e3, 4.0, 5.0), load(100e3, 4.0, 5.0)],
    ),
    server_row(
        *("append + fdatasync, 4 KiB", "none", "–", DEVICE),
        device=[{"commit_p50_us": 150.0, "commit_p99_us": 210.0}],
    ),
    server_row(
        *("start-up, empty", "none", "–", OTHER, (at_most("startup_seconds", 0.4),)),
        nsqfast=[{"startup_seconds": 0.2}],
        go=[{"startup_seconds": 0.01}],
    ),
]
MICRO = {
    "fullname": "benchmarks/micro/bench_ring.py::bench_push_and_pop[full]",
    "name": "bench_push_and_pop[full]",
    "stats": {"median": 2e-6, "q1": 1e-6, "q3": 4e-6},
    "extra_info": {"messages": 1000},
}
SERVER = {
    "fullname": "benchmarks/server/bench_x.py::bench_x",
    "extra_info": {"suite": "server", "rows": ROWS},
}
DOCUMENT = {
    "datetime": "2030-04-05T06:07:08+00:00",
    "machine_info": {"nsqfast": {"CPU": "Abacus 9000", "Go nsqd": "nsqd v1.3.0", "wrk": "4.1.0"}},
    "benchmarks": [SERVER, MICRO],
}


@pytest.fixture
def write(tmp_path):
    """Writes the report of this document."""

    def write(document=DOCUMENT):
        path = tmp_path / "bench.json"
        path.write_text(json.dumps(document))
        return compose(read_run(path), {"Throughput": "throughput.png"})

    return write


def line(text, *words):
    """The first line that has all those words."""
    return next(line for line in text.splitlines() if all(word in line for word in words))


@pytest.mark.parametrize(
    ("words", "shown"),
    [
        (["2030-04-05"], "Targets met: 5, missed: 2, not measured: 0."),
        (["CPU:"], "CPU: Abacus 9000"),
        (["![Throughput]"], "![Throughput](throughput.png)"),
        (["MPUB", "memory"], "6.00 M (4.00 M–8.00 M) | 1.00 M (0–2.00 M) | × 4.00 | 9.00 M"),
        (["output buffer timeout 25 ms", "memory", "p50"], "× 0.0100"),
        (["ring"], "| ring | push and pop [full] | 1,000 | 2.00 | 1.00–4.00 |"),
        (["consumed", "redis"], "350 k (300 k–400 k) | 100 k (100 k–100 k) | × 3.50 | 1.00 | 4.00"),
        (["consumed", "redis"], "| 0.100 | 5.00 † |"),
        (["append"], "| 150 (150–150) | 210 (210–210) |"),
        (["MPUB", "throughput, ratio"], "| ≥ 2 | 4.00 | met |"),
        (["MPUB", "≥ 4"], "| 4.00 | met |"),
        (["MPUB", "≤ 4"], "| 4.00 | met |"),
        (["MPUB", "< 4"], "| 4.00 | **missed by 0%** |"),
        # A loss is printed like a win.
        (["MPUB", "CPU per message, ratio"], "0.375 | **missed by 50%** |"),
        (["start-up, empty", "0.0100"], "× 20.0"),
        # A load that is dearer than the broker is marked.
        (["MPUB", "0.300 (0.200–0.300)"], " | 0.400 † | 0.100"),
    ],
)
def test_every_figure_has_its_place(write, words, shown):
    assert shown in line(write(), *words)


def test_without_go_its_columns_are_empty_and_one_line_says_what_to_do(write):
    document = copy.deepcopy(DOCUMENT)
    for row in document["benchmarks"][0]["extra_info"]["rows"]:
        row["samples"].pop("go", None)
    text = write(document)
    assert NO_GO in text
    assert NO_WRK not in text
    assert NO_REDIS not in text
    assert NO_GO_HERE.partition("run ")[2].rstrip(".") in NO_GO
    assert "6.00 M (4.00 M–8.00 M) | – | – | 9.00 M" in line(text, "MPUB", "memory")
    # A bound of its own does not ask for Go.
    assert "Targets met: 1, missed: 0, not measured: 6." in text
    assert line(text, "MPUB", "throughput, ratio").endswith("| – | not measured |")


def test_without_redis_one_line_says_what_to_do(write):
    document = copy.deepcopy(DOCUMENT)
    document["machine_info"]["nsqfast"]["Redis"] = "none"
    assert NO_REDIS in write(document)
    assert NO_REDIS_HERE.partition(": ")[2].rstrip(".") in NO_REDIS


def test_how_figures_are_written():
    numbers = [0, 0.00012345, 0.99999, 999.96, 45.678, 12345.6, -2.5]
    assert [*map(words.number, numbers)] == [
        *("0", "0.000123", "1.00", "1,000", "45.7", "12,346", "-2.50")
    ]
    rates = [0, 831.4, 12_000, 5.381e6]
    assert [*map(words.rate, rates)] == ["0", "831", "12.0 k", "5.38 M"]
