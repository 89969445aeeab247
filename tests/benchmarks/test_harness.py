"""The harness of the whole-server benchmarks: accounting, order of rounds, what it does with what is missing."""

import json
import os
import time

import pytest

from server import broker as broker_module
from server import generators, loads
from server.broker import Broker
from server.duel import Duel, Results
from server.generators import Ended
from server.idle import NO_HEARTBEATS, Crowd
from server.implementation import Implementation, implementations
from server.loads import Publish, combine
from server.scenario import FULL, MEMORY, Row
from server.usage import Meter, cpu_ns, peak_resident_bytes, reset_peak, resident_bytes
from support.wire import Client

ROW = Row("a scenario", "nsqfast-bench", MEMORY)
NSQFAST = implementations()[0]


@pytest.fixture
def broker(tmp_path):
    with Broker(NSQFAST, tmp_path / "data", ("--mem-queue-size=1000",)) as started:
        yield started


def connect(broker):
    host, port = broker.tcp.split(":")
    return Client((host, int(port)))


class Benchmark:
    """pytest-benchmark's fixture, as far as a duel goes."""

    def __init__(self):
        self.extra_info = {}

    def pedantic(self, target, rounds, iterations):
        assert iterations == 1
        for _ in range(rounds):
            target()


# ---- what the operating system says


def test_cpu_of_a_process():
    own_before_ns, before_ns = time.process_time_ns(), cpu_ns(os.getpid())
    while cpu_ns(os.getpid()) - before_ns < 20_000_000:
        pass
    used_ns = cpu_ns(os.getpid()) - before_ns
    own_ns = time.process_time_ns() - own_before_ns
    assert 20_000_000 <= used_ns <= own_ns


def test_peak_begins_anew():
    reset_peak(os.getpid())
    before_bytes = peak_resident_bytes(os.getpid())
    block = bytearray(os.urandom(1)) * (64 << 20)
    assert peak_resident_bytes(os.getpid()) - before_bytes > 60 << 20
    assert resident_bytes(os.getpid()) > 60 << 20
    del block
    reset_peak(os.getpid())
    assert peak_resident_bytes(os.getpid()) - before_bytes < 30 << 20


def test_meter_divides_by_messages():
    meter = Meter(os.getpid())
    while time.process_time_ns() % 10_000_000 > 1_000_000:
        pass
    one, thousand = meter.spent(1), meter.spent(1000)
    assert one["broker_cpu_us"] > 0
    assert thousand["broker_cpu_us"] < one["broker_cpu_us"]
    assert one["peak_rss_bytes"] > 1 << 20


# ---- rounds


def test_rounds_swap_their_order(tmp_path):
    seen = []

    def measure(contestant):
        seen.append(contestant.name)
        return {ROW: {"rate": float(len(seen))}}

    benchmark = Benchmark()
    contestants = [Implementation("nsqfast", ()), Implementation("go", ())]
    Duel(benchmark, FULL, tmp_path)._fight(contestants, measure)
    warm_up, rounds = ["nsqfast", "go"], ["nsqfast", "go", "go", "nsqfast", "nsqfast", "go"]
    assert seen == warm_up + rounds
    (row,) = benchmark.extra_info["rows"]
    # By round, not by order; the warm-up is not among them.
    assert row["samples"] == {
        "nsqfast": [{"rate": 3.0}, {"rate": 6.0}, {"rate": 7.0}],
        "go": [{"rate": 4.0}, {"rate": 5.0}, {"rate": 8.0}],
    }


def test_a_round_without_a_sample_keeps_its_place():
    results = Results()
    for rate in (None, 5.0):
        results.add("go", {ROW: rate and {"rate": rate}})
    document = json.loads(json.dumps(results.as_json()))
    assert document["suite"] == "server"
    assert document["rows"][0]["scenario"] == "a scenario"
    assert document["rows"][0]["samples"] == {"go": [None, {"rate": 5.0}]}


# ---- samples


def test_loads_of_a_round_count_as_one():
    # 100 messages in 1 s and 100 in 4 s are 200 in 5 s.
    first = {"rate": 100.0, "broker_cpu_us": 1.0, "peak_rss_bytes": 5.0}
    second = {"rate": 25.0, "broker_cpu_us": 3.0, "peak_rss_bytes": 4.0}
    assert combine([first, second]) == {
        "rate": pytest.approx(40.0),
        "broker_cpu_us": 2.0,
        "peak_rss_bytes": 5.0,
    }


def test_go_line():
    said = "[bench_writer] 2024/01/02 duration: 500ms - 190.735mb/s - 1000000.000ops/s - 1.0us/op\n"
    run = generators.read_go_line(Ended("", said, 250_000.0), 200)
    assert run.messages == 500_000
    assert run.sample == {
        "rate": 1e6,
        "megabytes_per_s": 200.0,
        "generator_cpu_us": 0.5,
    }
    with pytest.raises(RuntimeError, match="no result in"):
        generators.read_go_line(Ended("", "panic: connection refused", 1.0), 200)


WRK = """Running 1s test @ http://127.0.0.1:4151/pub?topic=t
  1 threads and 32 connections
    Req/Sec    40.00k     1.00k   42.00k    72.00%
  44000 requests in 1.10s, 7.11MB read
Requests/sec:  40000.00
"""


def test_wrk_counts_messages():
    run = generators.read_wrk(Ended(WRK, "", 880_000.0), 200, 10)
    assert run.messages == 440_000
    assert run.sample["rate"] == pytest.approx(400_000)
    assert run.sample["generator_cpu_us"] == pytest.approx(2.0)


@pytest.mark.parametrize(
    "failure",
    ["  Non-2xx or 3xx responses: 7\n", "  Socket errors: connect 0, read 9, write 0, timeout 0\n"],
)
def test_wrk_that_met_errors_is_an_error(failure):
    with pytest.raises(RuntimeError, match=failure.strip()):
        generators.read_wrk(Ended(WRK + failure, "", 1.0), 200, 1)


# ---- brokers


@pytest.mark.slow
def test_broker_counts(broker, monkeypatch):
    broker.create("t", ("a", "b"))
    with connect(broker) as client:
        client.command("PUB", "t", body=b"one")
        assert client.read_response() == b"OK"
        broker.wait_queued("t", 1)
        assert broker.wait_taken("t") == 1
        monkeypatch.setattr(broker_module, "ARRIVAL_SECONDS_MAX", 0.0)
        with pytest.raises(AssertionError, match="messages are missing"):
            broker.wait_queued("t", 2)
        with pytest.raises(AssertionError, match="messages are missing"):
            broker.wait_finished("t")
    broker.delete("t")
    with pytest.raises(RuntimeError, match="TOPIC_NOT_FOUND"):
        broker.delete("t")
    assert broker.mem_queue_size == 1000
    assert 0 < broker.startup_seconds < broker_module.START_SECONDS_MAX


@pytest.mark.slow
def test_loads_account_for_every_message(broker):
    sample = loads.publish(broker, Publish(count=800))
    assert set(sample) == {
        "rate",
        "megabytes_per_s",
        "generator_cpu_us",
        "broker_cpu_us",
        "peak_rss_bytes",
    }
    assert all(value > 0 for value in sample.values())
    assert loads.fill(broker, Publish(count=800)) == 800
    assert loads.consume(broker, 800, requeue_ms=0)["rate"] > 0
    assert loads.exchange(broker, Publish(count=400), channels=3)["rate"] > 0
    assert loads.publish(broker, Publish(count=10, batch_size=1, defer_ms=60_000))["rate"] > 0
    assert loads.latency(broker, 1000, 0.1, 25)["p50_us"] > 0


# ---- idling


@pytest.mark.slow
def test_crowd_notices_a_broker_that_leaves(tmp_path):
    with (
        Broker(NSQFAST, tmp_path, ()) as broker,
        Crowd(broker.tcp, 2, NO_HEARTBEATS) as crowd,
    ):
        broker.stop()
        with pytest.raises(AssertionError, match="not a heartbeat"):
            crowd.keep_alive(5.0)
        # Its end has been seen; leaving the block stops it once more, and that does no harm.
