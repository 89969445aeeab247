"""Headers in front of a body: the documented bytes, what has none, and a trace that crosses any body."""

import zlib

import pytest
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from nsqfast.client import Config, Consumer, Producer
from nsqfast.client.envelope import (
    LINE_SIZE_MAX,
    MARK,
    Headed,
    add_headers,
    encode_headed,
    read_headers,
    skip_headers,
    split_headers,
)
from nsqfast.client.opentelemetry import Tracing
from nsqfast.client.payload import decoder_of, encode_json


def test_the_bytes_are_the_documented_ones():
    assert add_headers(b"\xff\n\x00", {"a": "1"}) == b'NSQFAST-HEADERS/1 {"a":"1"}\n\xff\n\x00'
    assert add_headers(b"body", {}) == b"body"


@pytest.mark.parametrize("body", [b"", b"{}", b"\n", MARK, b"x" * 100_000])
def test_there_and_back(body):
    headers = {"trace": "00-1", "line\nend": "\u2028\n\x00", "": "ä"}
    headed = add_headers(body, headers)
    assert split_headers(headed) == (headers, body)
    assert read_headers(headed) == headers
    assert headed.partition(b"\n")[2] == body  # what a consumer has to skip


def test_headers_are_added_to_those_that_are_there():
    headed = add_headers(add_headers(b"body", {"a": "1", "b": "2"}), {"b": "3", "c": "4"})
    assert split_headers(headed) == ({"a": "1", "b": "3", "c": "4"}, b"body")


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{}",
        MARK,
        MARK + b"{}",  # no end of the line
        MARK + b"[]\nbody",
        MARK + b'{"a": 1}\nbody',
        MARK + b"{\nbody",
        MARK.lower() + b"{}\nbody",
        b" " + MARK + b"{}\nbody",
        MARK + b'{"a":"%b"}\nbody' % (b"x" * LINE_SIZE_MAX),
    ],
)
def test_anything_else_is_a_body_without_headers(body):
    assert split_headers(body) == ({}, body)


@pytest.mark.parametrize("headers", [{"a": 1}, {1: "a"}, {"a": None}, {"a": "x" * LINE_SIZE_MAX}])
def test_headers_that_are_none(headers):
    with pytest.raises(ValueError, match="headers"):
        add_headers(b"body", headers)


async def test_a_producer_and_a_consumer_of_it(address, topic):
    seen = []

    def handle(value, message):
        seen.append((value, read_headers(message.body)))
        if len(seen) == 2:
            consumer.request_stop()

    async with Producer(address, encoder=encode_headed(encode_json)) as producer:
        await producer.publish(topic, Headed({"a": 1}, {"tenant": "x"}))
        await producer.publish(topic, {"a": 2})
    decoder = skip_headers(decoder_of(dict))
    consumer = Consumer(topic, "c", nsqd=address, decoder=decoder, config=Config(max_in_flight=1))
    await consumer.run(handle)
    assert seen == [({"a": 1}, {"tenant": "x"}), ({"a": 2}, {})]


async def test_a_trace_crosses_a_body_that_is_no_json(address, topic):
    exporter = InMemorySpanExporter()
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    tracing = Tracing(inject=add_headers, extract=read_headers, tracer_provider=provider)
    bodies = []

    def handle(body):
        bodies.append(body)
        consumer.request_stop()

    async with Producer(address, middleware=[tracing], encoder=zlib.compress) as producer:
        await producer.publish(topic, b"text")
    decoder = skip_headers(zlib.decompress)
    consumer = Consumer(topic, "c", nsqd=address, middleware=[tracing], decoder=decoder)
    await consumer.run(handle)
    assert bodies == [b"text"]
    published, handled = exporter.get_finished_spans()
    assert handled.parent.span_id == published.context.span_id
    assert handled.context.trace_id == published.context.trace_id
