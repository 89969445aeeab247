"""nsqlookupd's HTTP API. Parameters come only from the query; lists are sorted, so that answers can be compared.

Thousands of producers make megabytes of JSON. Each producer keeps its part encoded, and the rest is made in parts,
between which the loop serves others.
"""

import logging
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

import orjson

from nsqfast.net.browsers import BrowserRules
from nsqfast.net.http_message import JSON, Request, Response
from nsqfast.net.http_reply import (
    VERSION_HEADER,
    HttpError,
    json_answer,
    parameters,
    plain_answer,
    required,
    text_answer,
    topic_and_channel_name,
    topic_name,
)
from nsqfast.net.http_routes import Answer, MetricsPage, Parts, Routes
from nsqfast.nsqlookupd.lookupd import Lookupd
from nsqfast.nsqlookupd.peer import Peer
from nsqfast.nsqlookupd.registry import CeilingError, Registry
from nsqfast.version import NSQ_VERSION, __version__
from nsqfast.wire.gotext import quote
from nsqfast.wire.refusals import REFUSED

if TYPE_CHECKING:
    from nsqfast.nsqlookupd.metrics import Metrics

log = logging.getLogger("nsqlookupd")

EMPTY = text_answer("")
# Go's zero time in nanoseconds, as far as 64 bits hold it: it means never.
NEVER_NS = -6795364578871345152


@dataclass(frozen=True, slots=True)
class Route:
    """One endpoint."""

    path: str
    run: Callable[[Request], Answer]


class HttpApi:
    """A Handler (see nsqfast.net.http_server) for one nsqlookupd."""

    def __init__(self, lookupd: Lookupd, browsers: BrowserRules) -> None:
        self._browsers = browsers
        self._routes: Routes[Route] = Routes(log)
        metrics = MetricsPage(_load_metrics, lookupd)
        questions = Questions(lookupd.registry)
        changes = Changes(lookupd.registry)
        self._routes.router.add("GET", "/metrics", Route("/metrics", metrics.get))
        for path, get in questions.endpoints():
            self._routes.router.add("GET", path, Route(path, get))
        for path, post in changes.endpoints():
            self._routes.router.add("POST", path, Route(path, post))

    def limit(self, method: str, path: str) -> int:  # noqa: ARG002 - as Handler has it
        """Always 0: no endpoint uses a body."""
        return 0

    def __call__(self, request: Request) -> Answer:
        route = self._routes.find(request)
        if (refusal := self._browsers.refuse(request)) is not None:
            return refusal
        if route is None:
            return self._routes.answer_stray(request)
        begun_ns = time.perf_counter_ns()
        return self._routes.log_answer(request, self._routes.run(route, request), begun_ns)


class Questions:
    """Handlers that only read."""

    def __init__(self, registry: Registry) -> None:
        self._registry = registry
        self._parts = Parts()
        self._topics = (-1, EMPTY)  # the answer, and the generation it belongs to
        # The offset from the monotonic clock to the wall clock; fixed, so that an unchanged time looks the same twice.
        self._offset_ns = time.time_ns() - time.monotonic_ns()

    def endpoints(self) -> Iterator[tuple[str, Callable[[Request], Answer]]]:
        """By path."""
        for path in ("/ping", "/livez", "/readyz"):
            yield path, self.ping
        yield "/info", self.info
        yield "/topics", self.topics
        yield "/channels", self.channels
        yield "/lookup", self.lookup
        yield "/nodes", self.nodes
        yield "/debug", self.debug

    def ping(self, _request: Request) -> Response:
        """Always OK."""
        return plain_answer(200, "OK")

    def info(self, _request: Request) -> Response:
        """The version of NSQ, and our own."""
        return json_answer({"version": NSQ_VERSION, "nsqfast_version": __version__})

    def topics(self, _request: Request) -> Response:
        """The names of all topics."""
        generation = self._registry.generation
        if self._topics[0] != generation:
            self._topics = generation, json_answer({"topics": self._registry.topics()})
        return self._topics[1]

    def channels(self, request: Request) -> Response:
        """The names of a topic's channels; none if the topic is unknown."""
        topic = required(parameters(request), "topic")
        return json_answer({"channels": self._registry.channels(topic)})

    def lookup(self, request: Request) -> Response:
        """The producers of a topic."""
        topic = required(parameters(request), "topic")
        if not self._registry.has_topic(topic):
            raise HttpError(404, "TOPIC_NOT_FOUND")
        producers = self._registry.producers(topic, time.monotonic_ns())
        body = b'{"channels":%b,"producers":[%b]}' % (
            orjson.dumps(self._registry.channels(topic)),
            b",".join([peer.json for peer in producers]),
        )
        return Response(200, body, JSON, VERSION_HEADER)

    def nodes(self, _request: Request) -> Answer:
        """Every producer with its topics."""
        now_ns = time.monotonic_ns()
        lifetime_ns = self._registry.tombstone_lifetime_ns
        nodes = self._registry.nodes(now_ns)
        parts = (peer.node_json(now_ns, lifetime_ns) for peer in nodes)
        return self._parts.answer(_joined(b'{"producers":[', parts, b"]}"), _json_page)

    def debug(self, _request: Request) -> Answer:
        """The whole database, except for keys without producers."""
        offset_ns = self._offset_ns
        parts = (
            b"%b:[%b]"
            % (
                orjson.dumps(f"{category}:{key}:{subkey}"),
                b",".join([_debug_json(peer, category, key, offset_ns) for peer in peers]),
            )
            for category, key, subkey, peers in self._registry.entries()
            if peers
        )
        return self._parts.answer(_joined(b"{", parts, b"}"), _json_page)


class Changes:
    """Handlers that change the database. They refuse names that no topic or channel could have, in particular `*`."""

    def __init__(self, registry: Registry) -> None:
        self._registry = registry

    def endpoints(self) -> Iterator[tuple[str, Callable[[Request], Answer]]]:
        """By path."""
        yield "/topic/create", self.create_topic
        yield "/topic/delete", self.delete_topic
        yield "/topic/tombstone", self.tombstone
        yield "/channel/create", self.create_channel
        yield "/channel/delete", self.delete_channel

    def create_topic(self, request: Request) -> Response:
        """Create a topic; also succeeds if it exists."""
        topic = topic_name(parameters(request))
        with _answer_ceiling_error(request):
            self._registry.create_topic(topic)
        log.info("DB: adding topic(%s)", topic)
        return EMPTY

    def delete_topic(self, request: Request) -> Response:
        """Delete a topic with its channels; also succeeds if it does not exist."""
        topic = topic_name(parameters(request))
        log.info("DB: removing topic(%s)", topic)
        self._registry.delete_topic(topic)
        return EMPTY

    def tombstone(self, request: Request) -> Response:
        """Hide one producer of a topic for a while; also succeeds if there is none."""
        values = parameters(request)
        topic = topic_name(values)
        node = required(values, "node")
        log.info("DB: setting tombstone for producer@%s of topic(%s)", node, topic)
        self._registry.tombstone(topic, node, time.monotonic_ns())
        return EMPTY

    def create_channel(self, request: Request) -> Response:
        """Create a channel with its topic; also succeeds if it exists."""
        topic, channel = topic_and_channel_name(parameters(request))
        with _answer_ceiling_error(request):
            self._registry.create_channel(topic, channel)
        log.info("DB: adding channel(%s) in topic(%s)", channel, topic)
        return EMPTY

    def delete_channel(self, request: Request) -> Response:
        """Delete a channel; the topic stays."""
        topic, channel = topic_and_channel_name(parameters(request))
        if not self._registry.delete_channel(topic, channel):
            raise HttpError(404, "CHANNEL_NOT_FOUND")
        log.info("DB: removing channel(%s) from topic(%s)", channel, topic)
        return EMPTY


@contextmanager
def _answer_ceiling_error(request: Request) -> Iterator[None]:
    """403 for a name that is one too many."""
    try:
        yield
    except CeilingError as error:
        REFUSED[error.reason] += 1
        if (note := request.admit_line()) is not None:
            target = quote(request.target.decode("latin-1"))
            log.warning(
                "HTTP: client(%s) POST %s is %s%s", request.remote, target, error.detail, note
            )
        raise HttpError(403, error.reason.upper()) from None


def _load_metrics() -> "type[Metrics]":
    from nsqfast.nsqlookupd.metrics import Metrics

    return Metrics


def _debug_json(peer: Peer, category: str, topic: str, offset_ns: int) -> bytes:
    since_ns = peer.tombstones.get(topic) if category == "topic" else None
    return orjson.dumps(
        {
            "broadcast_address": peer.broadcast_address,
            "hostname": peer.hostname,
            "http_port": peer.http_port,
            "id": peer.remote_address,
            "last_update": peer.seen_ns + offset_ns,
            "tcp_port": peer.tcp_port,
            "tombstoned": since_ns is not None,
            "tombstoned_at": NEVER_NS if since_ns is None else since_ns + offset_ns,
            "topology_region": peer.topology_region,
            "topology_zone": peer.topology_zone,
            "version": peer.version,
        }
    )


def _joined(start: bytes, parts: Iterator[bytes], end: bytes) -> Iterator[bytes]:
    """Join the parts with commas."""
    for part in parts:
        yield start
        yield part
        start = b","
    yield end if start == b"," else start + end


def _json_page(pieces: list[bytes]) -> Response:
    return Response(200, pieces[0], JSON, VERSION_HEADER, pieces=pieces[1:])
