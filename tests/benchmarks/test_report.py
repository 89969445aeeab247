"""From pytest-benchmark's JSON to REPORT.md: an honest text, whatever is missing."""

import copy
import json

import pytest

from reporting import charts, words
from reporting.document import NO_GO, NO_WRK, compose
from reporting.records import read_run
from server.implementation import NO_GO as NO_GO_HERE
from server.scenario import LATENCY, OTHER, SIZES, Row, Target, at_least, at_most, cpu_at_most
from support.server import ROOT


def load(rate, cpu_us, own_us=0.1):
    return {
        "rate": rate,
        "broker_cpu_us": cpu_us,
        "generator_cpu_us": own_us,
        "peak_rss_bytes": 50 << 20,
    }


def server_row(row, **samples):
    return row.as_json() | {"samples": samples}


def benchmark(rows):
    return {
        "fullname": "benchmarks/server/bench_x.py::bench_x",
        "name": "bench_x",
        "stats": {},
        "extra_info": {"suite": "server", "rows": rows},
    }


MPUB = server_row(
    Row(
        "MPUB 200 × 200 B, 2 connections",
        "nsqfast-bench",
        "memory",
        targets=(at_least(2), cpu_at_most(0.25)),
    ),
    nsqfast=[load(4e6, 0.2), load(5e6, 0.3, 0.4), load(6e6, 0.3, 0.4)],
    go=[load(1e6, 0.8), load(1e6, 0.8), load(1e6, 0.8)],
    null=[load(9e6, 0.1)],
)
IN, OUT = (
    server_row(
        Row(f"messages of 200 B, {way}", "nsqfast-bench", "memory", SIZES, size=200),
        nsqfast=[load(4e6, 0.2)],
        go=[load(1e6, 0.8)],
    )
    for way in ("in", "out")
)
SLOW = server_row(
    Row(
        "5,000 msg/s, output buffer timeout 25 ms",
        "nsqfast-bench",
        "memory",
        LATENCY,
        (Target("p50_us", "<=", 0.15),),
    ),
    nsqfast=[{"p50_us": 60.0, "p99_us": 100.0, "p999_us": 200.0}],
    go=[{"p50_us": 6000.0, "p99_us": 9000.0, "p999_us": 9900.0}],
)
EMPTY = server_row(
    Row("start-up, empty", "none", "–", OTHER, (at_most("startup_seconds", 0.4),)),
    nsqfast=[{"startup_seconds": 0.2}],
    go=[{"startup_seconds": 0.01}],
)
MICRO = {
    "fullname": "benchmarks/micro/bench_ring.py::bench_push_and_pop[full]",
    "name": "bench_push_and_pop[full]",
    "stats": {"median": 2e-6, "q1": 1e-6, "q3": 4e-6},
    "extra_info": {"messages": 1000},
}
DOCUMENT = {
    "datetime": "2030-04-05T06:07:08+00:00",
    "machine_info": {"nsqfast": {"CPU": "Abacus 9000", "Go nsqd": "nsqd v1.3.0", "wrk": "4.1.0"}},
    "benchmarks": [benchmark([MPUB, IN, OUT, SLOW, EMPTY]), MICRO],
}


@pytest.fixture
def write(tmp_path):
    """Writes a changed document, and reads it as a run."""

    def write(change=lambda document: None):
        document = copy.deepcopy(DOCUMENT)
        change(document)
        path = tmp_path / "bench.json"
        path.write_text(json.dumps(document))
        return read_run(path)

    return write


def line(text, *words):
    """The first line that has all those words."""
    return next(line for line in text.splitlines() if all(word in line for word in words))


def test_every_figure_has_its_place(write):
    text = compose(write(), {"Throughput": "throughput.png"})
    assert "2030-04-05" in text
    assert "CPU: Abacus 9000" in text
    assert "![Throughput](throughput.png)" in text
    assert "Targets met: 3, missed: 1, not measured: 0." in text
    throughput = line(text, "MPUB", "memory")
    assert "5.00 M (4.00 M–6.00 M) | 1.00 M (1.00 M–1.00 M) | × 5.00 | 9.00 M" in throughput
    assert "× 0.0100" in line(text, "output buffer timeout 25 ms", "memory", "p50")
    assert "| ring | push and pop [full] | 1,000 | 2.00 | 1.00–4.00 |" in text


def test_a_loss_is_printed_like_a_win(write):
    text = compose(write(), {})
    assert line(text, "MPUB", "throughput, ratio").endswith("| ≥ 2 | 5.00 | met |")
    assert line(text, "MPUB", "CPU per message, ratio").endswith("0.375 | **missed by 50%** |")
    assert "× 20.0" in line(text, "start-up, empty", "0.0100")


def test_a_load_dearer_than_the_broker_is_marked(write):
    cells = line(compose(write(), {}), "MPUB", "0.300 (0.200–0.300)").split(" | ")
    assert cells[5:7] == ["0.400 †", "0.100"]


def test_without_go_its_columns_are_empty_and_one_line_says_what_to_do(write):
    def remove_go(document):
        document["machine_info"]["nsqfast"]["Go nsqd"] = "none"
        for row in document["benchmarks"][0]["extra_info"]["rows"]:
            del row["samples"]["go"]

    text = compose(write(remove_go), {})
    assert NO_GO in text
    assert NO_WRK not in text
    assert NO_GO_HERE.partition("run ")[2].rstrip(".") in NO_GO
    assert "5.00 M (4.00 M–6.00 M) | – | – | 9.00 M" in line(text, "MPUB", "memory")
    assert "not measured: 3." in text


def test_a_row_without_any_sample(write):
    def empty(document):
        row = document["benchmarks"][0]["extra_info"]["rows"][0]
        row["samples"] = {"nsqfast": [None], "go": [None]}

    text = compose(write(empty), {})
    assert line(text, "MPUB", "throughput, ratio").endswith("| – | not measured |")


def test_the_summary_is_of_rows_that_there_are():
    text = (ROOT / "benchmarks" / "results" / "REPORT.md").read_text(encoding="utf-8")
    rows = {
        (cells[0], cells[2])
        for cells in (line.strip("| ").split(" | ") for line in text.splitlines())
        if len(cells) > 2
    }
    assert charts.SUMMARY.keys() <= rows


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0, "0"),
        (0.00012345, "0.000123"),
        (0.5, "0.500"),
        (0.99999, "1.00"),
        (999.96, "1,000"),
        (4.5678, "4.57"),
        (45.678, "45.7"),
        (830.9, "831"),
        (12345.6, "12,346"),
        (-2.5, "-2.50"),
    ],
)
def test_number(value, text):
    assert words.number(value) == text


@pytest.mark.parametrize(
    ("value", "text"), [(831.4, "831"), (12_000, "12.0 k"), (5.381e6, "5.38 M"), (0, "0")]
)
def test_rate(value, text):
    assert words.rate(value) == text
