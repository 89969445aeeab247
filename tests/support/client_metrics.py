"""What a program with the client library exposes, by its own page or as it stands in its registry."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

from prometheus_client import (
    CollectorRegistry,
    GCCollector,
    PlatformCollector,
    ProcessCollector,
    generate_latest,
    start_http_server,
)

from nsqfast.client import PublishRefusedError
from nsqfast.client.prometheus import Metrics
from nsqfast.client.sync import Consumer, Producer
from support.drain import address_of
from support.prometheus import TEXT, Scrape, read

if TYPE_CHECKING:
    from collections.abc import Iterator

    from support.server import Address, Server

PREFIX = "nsqfast_client_"


def read_registry(registry: CollectorRegistry) -> Scrape:
    """All of it, by prometheus_client's own writer and parser."""
    return read(TEXT, generate_latest(registry).decode())


def is_added(name: str) -> bool:
    """Whether prometheus_client adds this series to one of ours: it says when that one was made."""
    return name.endswith("_created")


@contextlib.contextmanager
def start_client(nsqd: Server) -> Iterator[Address]:
    """The address of the page of a client, which has published to t, also in vain, and handled it as the channel c."""
    registry = CollectorRegistry()
    for collector in (ProcessCollector, PlatformCollector, GCCollector):
        collector(registry=registry)
    _publish_and_handle(address_of(nsqd), Metrics(registry=registry))
    server, thread = start_http_server(0, "127.0.0.1", registry)
    try:
        yield ("127.0.0.1", server.server_port)
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def _publish_and_handle(nsqd: str, metrics: Metrics) -> None:
    with Producer(nsqd, middleware=[metrics]) as producer:
        producer.publish("t", b"x")
        with contextlib.suppress(PublishRefusedError):
            producer.publish("no name", b"x")
    with Consumer("t", "c", nsqd=nsqd, middleware=[metrics]) as consumer:
        consumer.run(lambda _: consumer.request_stop())
