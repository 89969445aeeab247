"""Spans for publishes and for handlers: `pip install 'nsqfast[opentelemetry]'`.

    Producer("127.0.0.1:4150", middleware=[Tracing()])
    Consumer("orders", "mail", nsqd="127.0.0.1:4150", middleware=[Tracing()])

Names and attributes are those of OpenTelemetry's conventions for messaging
(https://opentelemetry.io/docs/specs/semconv/messaging/messaging-spans/).

An NSQ message has a body and no headers, so a trace reaches the consumer only if the bodies have a place for it. For
bodies that are JSON objects:

    Tracing(inject=inject_into_json, extract=extract_from_json)
"""

from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import orjson

from nsqfast.client.middleware import Middleware
from nsqfast.program.extras import needs
from nsqfast.version import __version__

with needs("nsqfast.client.opentelemetry", "opentelemetry"):
    from opentelemetry import propagate, trace
    from opentelemetry.context import Context

Inject = Callable[[bytes, Mapping[str, str]], bytes]
Extract = Callable[[bytes], Mapping[str, str]]

TRACE_KEY = "trace"


class Tracing(Middleware):
    """`inject` returns a body that contains the trace's headers; `extract` finds them in a body, or returns none."""

    def __init__(
        self,
        *,
        inject: Inject | None = None,
        extract: Extract | None = None,
        tracer_provider: trace.TracerProvider | None = None,
    ) -> None:
        self._inject = inject
        self._extract = extract
        self._tracer = trace.get_tracer("nsqfast.client", __version__, tracer_provider)

    @contextmanager
    def publish(self, topic: str, bodies: Sequence[bytes]) -> Generator[Sequence[bytes]]:
        """A span of kind PRODUCER; one for an MPUB."""
        attributes: dict[str, str | int] = {
            "messaging.system": "nsq",
            "messaging.operation.type": "send",
            "messaging.operation.name": "publish",
            "messaging.destination.name": topic,
            "messaging.message.body.size": sum(map(len, bodies)),
        }
        if len(bodies) > 1:
            attributes["messaging.batch.message_count"] = len(bodies)
        with self._tracer.start_as_current_span(
            f"publish {topic}", kind=trace.SpanKind.PRODUCER, attributes=attributes
        ):
            if self._inject is None:
                yield bodies
                return
            headers: dict[str, str] = {}
            propagate.inject(headers)
            yield [self._inject(body, headers) for body in bodies]

    @contextmanager
    def handle(self, topic: str, channel: str, message: Any) -> Generator[None]:
        """A span of kind CONSUMER, within the publisher's trace if the body names it."""
        attributes: dict[str, str | int] = {
            "messaging.system": "nsq",
            "messaging.operation.type": "process",
            "messaging.operation.name": "handle",
            "messaging.destination.name": topic,
            "messaging.destination.subscription.name": channel,
            "messaging.message.id": message.id.decode("ascii", "backslashreplace"),
            "messaging.message.body.size": len(message.body),
            "nsq.attempts": message.attempts,
        }
        with self._tracer.start_as_current_span(
            f"handle {topic}",
            context=self._parent(message.body),
            kind=trace.SpanKind.CONSUMER,
            attributes=attributes,
        ):
            yield

    def _parent(self, body: bytes) -> Context | None:
        headers = self._extract(body) if self._extract is not None else None
        return propagate.extract(headers) if headers else None


def inject_into_json(body: bytes, headers: Mapping[str, str]) -> bytes:
    """Add the headers under the key "trace" of a JSON object; other bodies stay unchanged."""
    found = _object(body)
    return body if found is None else orjson.dumps({**found, TRACE_KEY: dict(headers)})


def extract_from_json(body: bytes) -> Mapping[str, str]:
    """Read the headers that `inject_into_json` added."""
    headers = (_object(body) or {}).get(TRACE_KEY)
    if not isinstance(headers, dict):
        return {}
    return {key: value for key, value in headers.items() if isinstance(value, str)}


def _object(body: bytes) -> dict[str, Any] | None:
    try:
        found = orjson.loads(body)
    except ValueError:
        return None
    return found if isinstance(found, dict) else None
