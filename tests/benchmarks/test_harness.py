"""The harness of the whole-server benchmarks: accounting, order of rounds, what it does with what is missing.

That each load runs and finds its messages is what `make bench-smoke` shows.
"""

import json
import os
import time
from types import SimpleNamespace

import pytest

from server import broker as broker_module
from server import generators
from server.broker import Broker
from server.duel import Duel
from server.generators import Ended
from server.idle import NO_HEARTBEATS, Crowd
from server.implementation import Implementation, implementations
from server.loads import combine
from server.scenario import FULL, MEMORY, Row
from server.usage import Meter, cpu_ns, peak_resident_bytes, reset_peak, resident_bytes
from support.wire import Client

ROW = Row("a scenario", "nsqfast-bench", MEMORY)


@pytest.fixture
def broker(tmp_path):
    with Broker(implementations()[0], tmp_path / "data", ("--mem-queue-size=1000",)) as started:
        yield started


def test_cpu_of_a_process_by_message():
    own_before_ns, meter = time.process_time_ns(), Meter(os.getpid())
    before_ns = cpu_ns(os.getpid())
    while cpu_ns(os.getpid()) - before_ns < 20_000_000:
        pass
    used = meter.spent(1000)
    own_ns = time.process_time_ns() - own_before_ns
    assert 20_000_000 <= used["broker_cpu_us"] * 1_000_000 <= own_ns
    assert used["peak_rss_bytes"] > 1 << 20


def test_peak_begins_anew():
    reset_peak(os.getpid())
    before_bytes = peak_resident_bytes(os.getpid())
    block = bytearray(os.urandom(1)) * (64 << 20)
    assert peak_resident_bytes(os.getpid()) - before_bytes > 60 << 20
    assert resident_bytes(os.getpid()) > 60 << 20
    del block
    reset_peak(os.getpid())
    assert peak_resident_bytes(os.getpid()) - before_bytes < 30 << 20


def test_rounds_swap_their_order_and_one_without_a_sample_keeps_its_place(tmp_path):
    seen, said = [], {}

    def measure(contestant):
        seen.append(contestant.name)
        return {ROW: None if len(seen) == 5 else {"rate": float(len(seen))}}

    def pedantic(target, rounds, iterations):
        assert iterations == 1
        for _ in range(rounds):
            target()

    benchmark = SimpleNamespace(pedantic=pedantic, extra_info=said)
    contestants = [Implementation("nsqfast", ()), Implementation("go", ())]
    Duel(benchmark, FULL, tmp_path)._fight(contestants, measure)
    warm_up, rounds = ["nsqfast", "go"], ["nsqfast", "go", "go", "nsqfast", "nsqfast", "go"]
    assert seen == warm_up + rounds
    assert said["suite"] == "server"
    (row,) = json.loads(json.dumps(said))["rows"]
    assert row["scenario"] == "a scenario"
    # By round, not by order; the warm-up is not among them.
    assert row["samples"] == {
        "nsqfast": [{"rate": 3.0}, {"rate": 6.0}, {"rate": 7.0}],
        "go": [{"rate": 4.0}, None, {"rate": 8.0}],
    }


def test_loads_of_a_round_count_as_one():
    # 100 messages in 1 s and 100 in 4 s are 200 in 5 s.
    first = {"rate": 100.0, "broker_cpu_us": 1.0, "peak_rss_bytes": 5.0}
    second = {"rate": 25.0, "broker_cpu_us": 3.0, "peak_rss_bytes": 4.0}
    assert combine([first, second]) == {
        "rate": pytest.approx(40.0),
        "broker_cpu_us": 2.0,
        "peak_rss_bytes": 5.0,
    }


GO = "[bench_writer] 2024/01/02 duration: 500ms - 190.735mb/s - 1000000.000ops/s - 1.0us/op\n"
WRK = """Running 1s test @ http://127.0.0.1:4151/pub?topic=t
    Req/Sec    40.00k     1.00k   42.00k    72.00%
  44000 requests in 1.10s, 7.11MB read
"""


def test_what_other_generators_say():
    run = generators.read_go_line(Ended("", GO, 250_000.0), 200)
    assert run.messages == 500_000
    assert run.sample == {"rate": 1e6, "megabytes_per_s": 200.0, "generator_cpu_us": 0.5}
    with pytest.raises(RuntimeError, match="no result in"):
        generators.read_go_line(Ended("", "panic: connection refused", 1.0), 200)
    run = generators.read_wrk(Ended(WRK, "", 880_000.0), 200, 10)
    assert run.messages == 440_000
    assert run.sample["rate"] == pytest.approx(400_000)
    assert run.sample["generator_cpu_us"] == pytest.approx(2.0)
    for failure in (
        "Non-2xx or 3xx responses: 7",
        "Socket errors: connect 0, read 9, write 0, timeout 0",
    ):
        with pytest.raises(RuntimeError, match=failure):
            generators.read_wrk(Ended(f"{WRK}  {failure}\n", "", 1.0), 200, 1)


@pytest.mark.slow
def test_broker_counts(broker, monkeypatch):
    broker.create("t", ("a", "b"))
    host, port = broker.tcp.split(":")
    with Client((host, int(port))) as client:
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
def test_crowd_notices_a_broker_that_leaves(broker):
    with Crowd(broker.tcp, 2, NO_HEARTBEATS) as crowd:
        broker.stop()
        with pytest.raises(AssertionError, match="not a heartbeat"):
            crowd.keep_alive(5.0)
    # Its end has been seen; the fixture stops it once more, and that does no harm.
