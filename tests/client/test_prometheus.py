"""Figures for Prometheus: what publishes and handlers leave in them, in asyncio and in threads."""

import asyncio
import gc
import inspect
import re
import sys
import threading
import time
import weakref

import pytest
from prometheus_client import REGISTRY, CollectorRegistry

from nsqfast.client import Config, Consumer, Producer, PublishRefusedError
from nsqfast.client import prometheus as module
from nsqfast.client import sync as threaded
from nsqfast.client.prometheus import OTHER, Metrics
from nsqfast.nsqd.options import parse
from support.client_metrics import PREFIX, is_added, read_registry

NSQD_FLAGS = ("--max-msg-size=100",)
CONFIG = Config(max_in_flight=10, default_requeue_delay_s=0, max_backoff_duration_s=0)
THREAD_COUNT = 8

AGE = f"{PREFIX}message_age_seconds"
HANDLED = f"{PREFIX}handler_duration_seconds"
FAILURES = f"{PREFIX}handler_failures_total"
PUBLISHED = f"{PREFIX}published_messages_total"
NOT_PUBLISHED = f"{PREFIX}publish_failed_messages_total"
PUBLISHES = f"{PREFIX}publish_duration_seconds"


class Aged:
    """A message that was published so long ago."""

    def __init__(self, age_s=0.0):
        self.timestamp_ns = time.time_ns() - int(age_s * 1e9)


@pytest.fixture
def registry():
    return CollectorRegistry()


@pytest.fixture
def metrics(registry):
    return Metrics(registry=registry)


def handle(metrics, topic, channel="c", age_s=0.0):
    with metrics.handle(topic, channel, Aged(age_s)):
        pass


def publish(metrics, topic):
    with metrics.publish(topic, [b"x"]):
        pass


def names_in(registry, name):
    """Of each series, its topic and its channel, if it has one."""
    found = [labels for _, labels in read_registry(registry).samples(name)]
    return sorted((each["topic"], *filter(None, [each.get("channel")])) for each in found)


class Failing:
    """A handler that fails at the first sight of b"1", and has seen all when it handled so many messages."""

    def __init__(self, count, stop):
        self._left = {b"%d" % number for number in range(1, count + 1)}
        self._stop = stop

    def __call__(self, message):
        if message.attempts == 1 and message.body == b"1":
            raise KeyError
        self._left.discard(message.body)
        if not self._left:
            self._stop()


async def test_in_asyncio(address, topic, registry, metrics):
    """Each way to publish."""
    async with Producer(address, middleware=[metrics]) as producer:
        await producer.publish(topic, b"1")
        await producer.publish_many(topic, [b"2", b"3"])
        await producer.publish_later(topic, b"4", 0.0)
        producer.send(topic, b"5")
        await producer.flush()
    consumer = Consumer(topic, "c", nsqd=address, config=CONFIG, middleware=[metrics])
    await consumer.run(Failing(5, consumer.request_stop))
    found = read_registry(registry)
    assert found.value(PUBLISHED, topic=topic) == 5
    assert found.value(NOT_PUBLISHED, topic=topic) == 0
    assert found.value(f"{PUBLISHES}_count", topic=topic) == 4
    labels = {"topic": topic, "channel": "c"}
    assert found.value(f"{AGE}_count", **labels) == 6
    assert found.value(f"{HANDLED}_count", **labels) == 6
    assert found.value(FAILURES, **labels) == consumer.stats().requeued == 1


@pytest.mark.parametrize("concurrency", [1, 2])
def test_in_threads(address, topic, registry, metrics, concurrency):
    with threaded.Producer(address, middleware=[metrics]) as producer:
        producer.publish(topic, b"1")
        producer.publish_many(topic, [b"2", b"3"])
        producer.publish_later(topic, b"4", 0.0)
        producer.send(topic, b"5")
    with threaded.Consumer(
        topic, "c", nsqd=address, config=CONFIG, middleware=[metrics]
    ) as consumer:
        consumer.run(Failing(5, consumer.request_stop), concurrency=concurrency)
    found = read_registry(registry)
    assert found.value(PUBLISHED, topic=topic) == 5
    assert found.value(f"{PUBLISHES}_count", topic=topic) == 4
    labels = {"topic": topic, "channel": "c"}
    assert found.value(f"{AGE}_count", **labels) == 6
    assert found.value(f"{HANDLED}_count", **labels) == 6
    assert found.value(FAILURES, **labels) == 1


async def test_what_is_refused_counts_by_message(address, topic, registry, metrics):
    async with Producer(address, middleware=[metrics]) as producer:
        with pytest.raises(PublishRefusedError):
            await producer.publish_many(topic, [b"1", b"x" * 1000])
    found = read_registry(registry)
    assert found.value(PUBLISHED, topic=topic) == 0
    assert found.value(NOT_PUBLISHED, topic=topic) == 2
    assert found.value(f"{PUBLISHES}_count", topic=topic) == 1


async def test_the_age_is_that_of_the_beginning(address, topic, registry, metrics):
    """And the time of the handler is not in it."""
    async with Producer(address) as producer:
        await producer.publish(topic, b"x")
    began_s = time.time()
    ages = []

    async def handler(message):
        published_s = message.timestamp_ns / 1e9
        ages.extend([began_s - published_s, time.time() - published_s])
        consumer.request_stop()

    consumer = Consumer(topic, "c", nsqd=address, config=CONFIG, middleware=[metrics])
    await consumer.run(handler)
    least_s, most_s = ages
    found = read_registry(registry)
    assert least_s <= found.value(f"{AGE}_sum", topic=topic, channel="c") <= most_s


def test_old_messages_and_those_of_a_clock_that_is_ahead(registry, metrics):
    handle(metrics, "t", age_s=7200)
    handle(metrics, "t", age_s=-100)
    found = read_registry(registry)
    labels = {"topic": "t", "channel": "c"}
    bounds = ("0.01", "3600.0", "14400.0", "+Inf")
    counts = [found.value(f"{AGE}_bucket", **labels, le=bound) for bound in bounds]
    assert counts == [1, 1, 2, 2]
    assert found.value(f"{AGE}_sum", **labels) == pytest.approx(7200, abs=60)


def test_the_last_bounds(registry, metrics):
    """nsqd's default --msg-timeout, a producer's default timeout, and a day."""
    handle(metrics, "t")
    publish(metrics, "t")
    found = read_registry(registry)
    timeout_s = inspect.signature(Producer).parameters["timeout_s"].default
    for name, last_s in (
        (HANDLED, parse([]).msg_timeout_ns / 1e9),
        (PUBLISHES, timeout_s),
        (AGE, 86400),
    ):
        bounds = [float(labels["le"]) for _, labels in found.samples(f"{name}_bucket")]
        assert sorted(bounds)[-2:] == [last_s, float("inf")]


async def test_a_handler_that_is_cancelled_has_not_failed(address, topic, registry, metrics):
    async with Producer(address) as producer:
        await producer.publish(topic, b"x")
    begun = asyncio.Event()

    async def handler(_):
        begun.set()
        await asyncio.Event().wait()

    consumer = Consumer(topic, "c", nsqd=address, config=CONFIG, middleware=[metrics])
    running = asyncio.create_task(consumer.run(handler, grace_s=0))
    await begun.wait()
    consumer.request_stop()
    await running
    found = read_registry(registry)
    assert found.value(FAILURES, topic=topic, channel="c") == 0
    assert found.value(f"{HANDLED}_count", topic=topic, channel="c") == 1


async def test_a_publish_that_is_cancelled_has_not_failed(topic, registry, metrics, dead):
    async with Producer(dead, middleware=[metrics], close_timeout_s=0) as producer:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.01):
                await producer.publish(topic, b"x")
    found = read_registry(registry)
    assert found.value(PUBLISHED, topic=topic) == found.value(NOT_PUBLISHED, topic=topic) == 0


def test_all_of_a_registry_share_their_figures(registry):
    """Those of other registries have their own."""
    apart = CollectorRegistry()
    for each in (registry, registry, apart):
        handle(Metrics(registry=each), "t")
        publish(Metrics(registry=each), "t")
    for each, count in ((registry, 2), (apart, 1)):
        found = read_registry(each)
        assert found.value(f"{HANDLED}_count", topic="t", channel="c") == count
        assert found.value(PUBLISHED, topic="t") == count


def test_the_default_is_the_default_registry(topic):
    for _ in range(2):
        publish(Metrics(), topic)
    assert REGISTRY.get_sample_value(PUBLISHED, {"topic": topic}) == 2


@pytest.fixture
def _switching():
    """Threads take turns far more often than usual."""
    before_s = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before_s)


@pytest.mark.usefixtures("_switching")
@pytest.mark.parametrize("_round", range(5))
def test_threads_that_come_at_once_share_them_too(registry, _round):
    barrier = threading.Barrier(THREAD_COUNT)
    errors = []

    def work():
        try:
            barrier.wait()
            metrics = Metrics(registry=registry)
            for number in range(100):
                publish(metrics, f"t{number}")
        except Exception as error:
            errors.append(error)

    threads = [threading.Thread(target=work) for _ in range(THREAD_COUNT)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert errors == []
    found = read_registry(registry)
    counts = [found.value(PUBLISHED, topic=f"t{number}") for number in range(100)]
    assert counts == [THREAD_COUNT] * 100


def test_a_registry_that_is_gone_is_forgotten():
    registry = CollectorRegistry()
    publish(Metrics(registry=registry), "t")
    left = weakref.ref(registry)
    del registry
    gc.collect()
    assert left() is None


def test_names_without_end(registry, metrics, monkeypatch):
    """Those that came first go on to count by themselves; invalid ones take no place."""
    monkeypatch.setattr(module, "NAMES_MAX", 3)
    for topic in ("a b", "\udcff", "", "x" * 65, "t1", "t2", "t3", "t4", "t5", "t1"):
        publish(metrics, topic)
    for channel in ("c1", "c2#ephemeral", "#", "c3", "c4", "c2#ephemeral"):
        handle(metrics, "t", channel)
    assert names_in(registry, PUBLISHED) == [(OTHER,), ("t1",), ("t2",), ("t3",)]
    assert names_in(registry, FAILURES) == [
        (OTHER, OTHER),
        ("t", "c1"),
        ("t", "c2#ephemeral"),
        ("t", "c3"),
    ]
    found = read_registry(registry)
    assert [found.value(PUBLISHED, topic=name) for name in ("t1", "t2", OTHER)] == [2, 1, 6]
    assert found.value(f"{HANDLED}_count", topic="t", channel="c2#ephemeral") == 2
    assert found.value(f"{HANDLED}_count", topic=OTHER, channel=OTHER) == 2


def test_every_help_is_a_sentence(registry, metrics):
    handle(metrics, "t")
    publish(metrics, "t")
    found = read_registry(registry)
    helps = re.findall(r"^# HELP (\S+) (.*)$", found.text, re.MULTILINE)
    assert len([name for name, _ in helps if not is_added(name)]) == 6
    assert [each for each in helps if not re.fullmatch(r"[A-Z].* .* .*\.", each[1])] == []
