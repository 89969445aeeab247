"""One trace from the publisher to the handler: publishes an order, handles it, and prints the four spans.

python examples/tracing.py [TOPIC [CHANNEL]] [--nsqd HOST:PORT] [--nsqlookupd HOST:PORT]

Needs `pip install 'nsqfast[opentelemetry]' opentelemetry-sdk`. A real program has an exporter in place of the printer.
"""

import asyncio

import orjson
from opentelemetry import trace
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import ConsoleSpanExporter, SimpleSpanProcessor

import arguments
from nsqfast.client import Consumer, Message, Producer
from nsqfast.client.opentelemetry import Tracing, extract_from_json, inject_into_json


def line(span: ReadableSpan) -> str:
    """A span on one line."""
    context = span.get_span_context()
    trace_id = trace.format_trace_id(context.trace_id) if context else "-"
    return f"{trace_id} {span.name} {span.status.status_code.name}\n"


async def main() -> None:
    given = arguments.Parser(__doc__, "traced", "tracing", publishes=True).parse()
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(ConsoleSpanExporter(formatter=line)))
    trace.set_tracer_provider(provider)
    tracing = Tracing(inject=inject_into_json, extract=extract_from_json)

    async with Producer(*given.nsqd, middleware=[tracing]) as producer:
        with trace.get_tracer("shop").start_as_current_span("checkout"):
            await producer.publish(given.topic, orjson.dumps({"order": 7}))

    consumer = Consumer(
        given.topic,
        given.channel,
        nsqd=given.nsqd,
        nsqlookupd=given.nsqlookupd,
        middleware=[tracing],
    )

    async def ship(message: Message) -> None:
        order = orjson.loads(message.body)["order"]
        with trace.get_tracer("shop").start_as_current_span(f"ship {order}"):
            await asyncio.sleep(0)
        consumer.request_stop()

    await consumer.run(ship)


if __name__ == "__main__":
    asyncio.run(main())
