"""nsqfast inside other frameworks, and as a service: real processes that get real requests and signals."""

import json
import signal
import time

import pytest

from nsqfast.client.sync import Consumer
from support.fake_nsqd import eventually
from support.programs import Program, command, left, publish

pytestmark = pytest.mark.slow

BOTH_SIGNALS = pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
WORKER_CONCURRENCY = 16  # as the example has it


def take_bodies(address, topic, count):
    with Consumer(topic, "reader", nsqd=address) as consumer:
        return [take_body(consumer) for _ in range(count)]


def take_body(consumer):
    message = consumer.get(10)
    message.finish()
    return message.body


# -- services


def job(name, seconds=0.0):
    return json.dumps({"name": name, "seconds": seconds}).encode()


@BOTH_SIGNALS
def test_worker_ends_in_order(broker, address, topic, number):
    """worker.py: what runs when the signal comes is done, what waits stays at nsqd."""
    waiting = 4
    names = {f"job-{n}" for n in range(WORKER_CONCURRENCY + waiting)}
    publish(address, topic, *[job(name, 1.0) for name in names])
    with Program(*command("worker.py", topic, "c", address)) as worker:
        begun = {worker.read_until(r"begun: (\S+)")[1] for _ in range(WORKER_CONCURRENCY)}
        assert "done" not in worker.text
        assert worker.end(number) == 0, worker.text
        done = {line.removeprefix("done: ") for line in worker.lines if line.startswith("done: ")}
    assert done == begun
    eventually(lambda: left(broker, topic) == waiting)
    with Program(*command("worker.py", topic, "c", address)) as worker:
        rest = {worker.read_until(r"done: (\S+)")[1] for _ in range(waiting)}
        assert worker.end(number) == 0, worker.text
    assert rest == names - done


def test_worker_tries_again_and_gives_up(broker, address, topic):
    """worker.py: each delay is longer than the one before, and the dead message is kept elsewhere."""
    delay_s, attempts = 0.1, 3
    settings = [f"max_attempts,{attempts}", "default_requeue_delay,100ms", "backoff_multiplier,1ms"]
    begun_s = time.monotonic()
    publish(address, topic, b"no JSON", job("good"))
    with Program(*command("worker.py", topic, "c", address, *settings)) as worker:
        worker.read_until("dead: no JSON")
        took_s = time.monotonic() - begun_s
        assert worker.end() == 0, worker.text
    assert took_s > delay_s * sum(range(1, attempts + 1))
    assert worker.text.count("the handler failed\nTraceback") == attempts
    assert worker.lines.count("done: good") == 1
    assert take_bodies(address, f"{topic}-dead", 1) == [b"no JSON"]
    eventually(lambda: left(broker, topic) == 0)
