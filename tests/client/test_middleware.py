"""Code around publishes and handlers, in asyncio and in threads; and OpenTelemetry's, within one trace."""

import contextvars
import threading
from contextlib import contextmanager

import pytest
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from nsqfast.client import Config, Consumer, Middleware, Producer, PublishRefusedError
from nsqfast.client import sync as threaded
from nsqfast.client.opentelemetry import Tracing, extract_from_json, inject_into_json

CONFIG = Config(max_in_flight=10, default_requeue_delay_s=0, max_backoff_duration_s=0)
CURRENT = contextvars.ContextVar("CURRENT", default="")


class Noting(Middleware):
    """Notes what it sees, and marks bodies."""

    def __init__(self, name):
        self.name = name
        self.seen = []

    @contextmanager
    def publish(self, topic, bodies):
        token = CURRENT.set(CURRENT.get() + self.name)
        try:
            yield [self.name.encode() + body for body in bodies]
            self.seen.append(("published", topic, list(bodies)))
        except Exception as error:
            self.seen.append(("failed", type(error).__name__))
            raise
        finally:
            CURRENT.reset(token)

    @contextmanager
    def handle(self, topic, channel, message):
        token = CURRENT.set(CURRENT.get() + self.name)
        try:
            yield
            self.seen.append(("handled", topic, channel, message.body))
        except Exception as error:
            self.seen.append(("failed", type(error).__name__))
            raise
        finally:
            CURRENT.reset(token)


async def test_publishing(address, topic):
    """Every way; the first one is the outermost."""
    outer, inner = Noting("a"), Noting("b")
    async with (
        Producer(address, middleware=[outer, inner]) as producer,
        Consumer(topic, "c", nsqd=address, config=CONFIG) as consumer,
    ):
        await producer.publish(topic, b"1")
        await producer.publish_many(topic, [b"2", b"3"])
        await producer.publish_later(topic, b"4", 0.0)
        await producer.send(topic, b"5")
        await producer.send_many(topic, [b"6", b"7"])
        await producer.send_later(topic, b"8", 0.0)
        with pytest.raises(PublishRefusedError):
            await producer.publish("a b", b"x")
        with pytest.raises(PublishRefusedError):
            producer.send("a b", b"x")
        bodies = sorted([(await anext(aiter(consumer))).body for _ in range(8)])
    assert bodies == [b"ba%d" % number for number in range(1, 9)]
    assert outer.seen[:2] == [("published", topic, [b"1"]), ("published", topic, [b"2", b"3"])]
    assert inner.seen[:2] == [("published", topic, [b"a1"]), ("published", topic, [b"a2", b"a3"])]
    assert len(inner.seen) == 8
    assert inner.seen[6:] == [("failed", "InvalidNameError")] * 2


async def test_one_that_loses_messages_is_refused(address, topic):
    class Losing(Middleware):
        @contextmanager
        def publish(self, topic, bodies):
            yield bodies[1:]

    async with Producer(address, middleware=[Losing()]) as producer:
        with pytest.raises(ValueError, match="made 1 messages of 2"):
            await producer.publish_many(topic, [b"1", b"2"])


async def test_handling(address, topic):
    """A failure of the handler passes through, and what was around is the handler's context."""
    outer, inner = Noting("a"), Noting("b")
    contexts = []

    async def handler(message):
        contexts.append(CURRENT.get())
        if message.attempts == 1:
            raise KeyError
        consumer.request_stop()

    consumer = Consumer(topic, "c", nsqd=address, config=CONFIG, middleware=[outer, inner])
    async with Producer(address) as producer:
        await producer.publish(topic, b"x")
    await consumer.run(handler)
    assert consumer.stats().requeued == 1
    assert contexts == ["ab", "ab"]
    assert outer.seen == inner.seen == [("failed", "KeyError"), ("handled", topic, "c", b"x")]


@pytest.mark.parametrize("concurrency", [1, 2])
def test_in_threads(address, topic, concurrency):
    """Around the publish in the thread that publishes, around the handler in the thread that handles."""
    threads = set()

    class Where(Noting):
        @contextmanager
        def handle(self, topic, channel, message):
            threads.add(threading.current_thread())
            with super().handle(topic, channel, message):
                yield

    noting = Where("m")
    bodies = []

    def handler(message):
        assert CURRENT.get() == "m"
        assert threading.current_thread() in threads
        bodies.append(message.body)
        if len(bodies) == 4:
            consumer.request_stop()

    with threaded.Producer(address, middleware=[noting]) as producer:
        producer.publish(topic, b"1")
        producer.publish_many(topic, [b"2", b"3"])
        producer.send(topic, b"4")
    with threaded.Consumer(
        topic, "c", nsqd=address, config=CONFIG, middleware=[noting]
    ) as consumer:
        consumer.run(handler, concurrency=concurrency)
    assert sorted(bodies) == [b"m1", b"m2", b"m3", b"m4"]
    assert [kind for kind, *_ in noting.seen] == ["published"] * 3 + ["handled"] * 4


@pytest.fixture
def spans():
    exporter = InMemorySpanExporter()
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    return provider, exporter


async def test_one_trace(address, topic, spans):
    provider, exporter = spans
    tracing = Tracing(inject=inject_into_json, extract=extract_from_json, tracer_provider=provider)

    async def handler(message):
        if message.attempts == 1:
            raise ValueError("not now")
        consumer.request_stop()

    consumer = Consumer(topic, "c", nsqd=address, config=CONFIG, middleware=[tracing])
    async with Producer(address, middleware=[tracing]) as producer:
        await producer.publish(topic, b'{"order":7}')
    await consumer.run(handler)
    published, failed, handled = exporter.get_finished_spans()
    assert published.name == f"publish {topic}"
    assert published.kind.name == "PRODUCER"
    assert published.attributes["messaging.system"] == "nsq"
    assert published.attributes["messaging.destination.name"] == topic
    assert published.attributes["messaging.message.body.size"] == len(b'{"order":7}')
    for span, status in ((failed, "ERROR"), (handled, "UNSET")):
        assert span.name == f"handle {topic}"
        assert span.kind.name == "CONSUMER"
        assert span.status.status_code.name == status
        assert span.attributes["messaging.destination.subscription.name"] == "c"
        assert span.context.trace_id == published.context.trace_id
        assert span.parent.span_id == published.context.span_id
    assert [event.name for event in failed.events] == ["exception"]
    assert handled.attributes["nsq.attempts"] == 2


async def test_without_a_place_for_the_trace(address, topic, spans):
    """Bodies stay as they are; the spans are of two traces. An MPUB is one span."""
    provider, exporter = spans
    tracing = Tracing(tracer_provider=provider)
    async with (
        Producer(address, middleware=[tracing]) as producer,
        Consumer(topic, "c", nsqd=address, config=CONFIG) as consumer,
    ):
        await producer.publish_many(topic, [b"\x00", b"\xff"])
        assert (await anext(aiter(consumer))).body == b"\x00"
    (span,) = exporter.get_finished_spans()
    assert span.attributes["messaging.batch.message_count"] == 2


@pytest.mark.parametrize("body", [b"", b"no JSON", b"[1]", b"7", b"\xff", b'"text"'])
def test_bodies_that_are_no_json_objects(body):
    assert inject_into_json(body, {"traceparent": "x"}) == body
    assert extract_from_json(body) == {}


@pytest.mark.parametrize("found", [b"7", b"[]", b"null", b'{"traceparent":7}'])
def test_traces_that_are_none(found):
    assert extract_from_json(b'{"trace":' + found + b"}") == {}
