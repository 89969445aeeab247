"""Figures of handlers and publishes for Prometheus: `pip install 'nsqfast[prometheus]'`.

    Consumer("orders", "mail", nsqd="127.0.0.1:4150", middleware=[Metrics()])
    Producer("127.0.0.1:4150", middleware=[Metrics()])

    prometheus_client.start_http_server(9102)  # once in a program that has no page for them yet

docs/METRICS.md says what each figure means.
"""

import threading
import time
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple, TypeVar
from weakref import WeakKeyDictionary

from nsqfast.client.middleware import Middleware
from nsqfast.program.extras import needs
from nsqfast.wire.names import is_valid_name

with needs("nsqfast.client.prometheus", "prometheus"):
    from prometheus_client import REGISTRY, CollectorRegistry, Counter, Histogram

T = TypeVar("T")

# Each name has dozens of series, which stay for as long as the program runs. One that makes up names without end, such
# as a channel for each browser that is connected, has no more than this.
NAMES_MAX = 1000
OTHER = "(other)"  # in the place of further ones, and of invalid ones; nothing in NSQ can have this name

# The last but one is half of the time after which nsqd takes a message back, the last is all of it (--msg-timeout).
HANDLER_BOUNDS_S = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60)
AGE_BOUNDS_S = (0.01, 0.05, 0.1, 0.5, 1, 5, 15, 60, 300, 900, 3600, 14_400, 86_400)
# The last one is a producer's `timeout_s`.
PUBLISH_BOUNDS_S = (0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.05, 0.1, 0.5, 1, 5, 30)


class Metrics(Middleware):
    """All of one registry share their figures, so each consumer and producer can have its own."""

    def __init__(self, *, registry: CollectorRegistry = REGISTRY) -> None:
        self._figures = _share_figures(registry)

    @contextmanager
    def publish(self, topic: str, bodies: Sequence[bytes]) -> Generator[Sequence[bytes]]:
        """Count the messages, as published or as failed, and take the time."""
        figures = self._figures.publishes[(topic,)]
        began_s = time.perf_counter()
        try:
            yield bodies
        except Exception:
            figures.failed.inc(len(bodies))
            raise
        else:
            figures.published.inc(len(bodies))
        finally:
            figures.duration.observe(time.perf_counter() - began_s)

    @contextmanager
    def handle(self, topic: str, channel: str, message: Any) -> Generator[None]:
        """Take the message's age and the handler's time, and count a failure, which being cancelled is not."""
        figures = self._figures.handlers[topic, channel]
        # The clock of the machine where it was published may be ahead of ours.
        figures.age.observe(max(0.0, time.time() - message.timestamp_ns / 1e9))
        began_s = time.perf_counter()
        try:
            yield
        except Exception:
            figures.failures.inc()
            raise
        finally:
            figures.duration.observe(time.perf_counter() - began_s)


class HandlerFigures(NamedTuple):
    """Those of one channel."""

    age: Histogram
    duration: Histogram
    failures: Counter


class PublishFigures(NamedTuple):
    """Those of one topic."""

    published: Counter
    failed: Counter
    duration: Histogram


class ByName(dict[tuple[str, ...], T]):
    """Figures by topic, or by topic and channel. They are resolved once, which costs more than counting."""

    def __init__(self, resolve: Callable[..., T]) -> None:
        super().__init__()
        self._resolve = resolve

    def __missing__(self, names: tuple[str, ...]) -> T:
        # No lock: threads that bring new names at the same moment may exceed the maximum by as many as they are.
        if len(self) >= NAMES_MAX or not all(map(is_valid_name, names)):
            return self._resolve(*[OTHER for _ in names])
        found = self[names] = self._resolve(*names)
        return found


class Figures:
    """All of one registry."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self.handlers = ByName(_make_handler_figures(registry))
        self.publishes = ByName(_make_publish_figures(registry))


def _make_handler_figures(registry: CollectorRegistry) -> Callable[[str, str], HandlerFigures]:
    labels = ("topic", "channel")
    age = Histogram(
        "nsqfast_client_message_age_seconds",
        "This is the time from the publishing of a message to the start of its handler.",
        labels,
        registry=registry,
        buckets=AGE_BOUNDS_S,
    )
    duration = Histogram(
        "nsqfast_client_handler_duration_seconds",
        "This is the time that handlers took, however they ended.",
        labels,
        registry=registry,
        buckets=HANDLER_BOUNDS_S,
    )
    failures = Counter(
        "nsqfast_client_handler_failures",
        "This counts the calls of handlers that ended with an exception.",
        labels,
        registry=registry,
    )

    def resolve(*names: str) -> HandlerFigures:
        return HandlerFigures(age.labels(*names), duration.labels(*names), failures.labels(*names))

    return resolve


def _make_publish_figures(registry: CollectorRegistry) -> Callable[[str], PublishFigures]:
    labels = ("topic",)
    published = Counter(
        "nsqfast_client_published_messages",
        "This counts the messages that were published, of a send those that are on their way.",
        labels,
        registry=registry,
    )
    failed = Counter(
        "nsqfast_client_publish_failed_messages",
        "This counts the messages whose publishing ended with an exception.",
        labels,
        registry=registry,
    )
    duration = Histogram(
        "nsqfast_client_publish_duration_seconds",
        "This is the time that publishes took, however they ended.",
        labels,
        registry=registry,
        buckets=PUBLISH_BOUNDS_S,
    )

    def resolve(*names: str) -> PublishFigures:
        return PublishFigures(
            published.labels(*names), failed.labels(*names), duration.labels(*names)
        )

    return resolve


_SHARED: WeakKeyDictionary[CollectorRegistry, Figures] = WeakKeyDictionary()
_SHARED_LOCK = threading.Lock()


def _share_figures(registry: CollectorRegistry) -> Figures:
    """Return the figures of a registry, which takes each name once."""
    with _SHARED_LOCK:
        found = _SHARED.get(registry)
        if found is None:
            found = _SHARED[registry] = Figures(registry)
        return found
