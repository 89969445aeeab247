"""The harness of the whole-server benchmarks: accounting, order of rounds, what it does with what is missing.

That each load runs, and that the broker has as many messages as its generator says, is what `make bench-smoke` shows.
"""

import json
import os
import time
from types import SimpleNamespace

import pytest

from server import broker as broker_module
from server.broker import Broker
from server.duel import Duel
from server.implementation import Implementation, implementations
from server.loads import combine
from server.scenario import FULL, MEMORY, Row
from server.usage import Meter, cpu_ns, peak_resident_bytes, reset_peak, resident_bytes
from support.wire import Client

ROW = Row("a scenario", "nsqfast-bench", MEMORY)


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


@pytest.mark.slow
def test_broker_counts(tmp_path, monkeypatch):
    with (
        Broker(implementations()[0], tmp_path / "data", ("--mem-queue-size=1000",)) as broker,
        Client(("127.0.0.1", int(broker.tcp.rpartition(":")[2]))) as client,
    ):
        broker.create("t", ("a", "b"))
        client.command("PUB", "t", body=b"one")
        assert client.read_response() == b"OK"
        broker.wait_queued("t", 1)
        broker.wait_left("t", 1, 2)
        assert broker.wait_taken("t") == 1
        monkeypatch.setattr(broker_module, "ARRIVAL_SECONDS_MAX", 0.0)
        with pytest.raises(AssertionError, match="messages are missing"):
            broker.wait_queued("t", 2)
        for wrong in ((1, 1), (2, 2)):
            with pytest.raises(AssertionError, match="messages are missing"):
                broker.wait_left("t", *wrong)
        with pytest.raises(AssertionError, match="messages are missing"):
            broker.wait_finished("t")
        broker.delete("t")
        with pytest.raises(RuntimeError, match="TOPIC_NOT_FOUND"):
            broker.delete("t")
    assert broker.mem_queue_size == 1000
    assert 0 < broker.startup_seconds < broker_module.START_SECONDS_MAX
