"""Topics and channels over HTTP, /ping, /livez, /readyz and /info."""

import asyncio
import socket
from collections.abc import Awaitable, Callable

from nsqfast._ext.broker.channel import Channel
from nsqfast._ext.broker.topic import Topic
from nsqfast.net.addresses import port_number
from nsqfast.net.http_message import Request, Response
from nsqfast.net.http_reply import (
    HttpError,
    json_answer,
    parameters,
    plain_answer,
    required,
    text_answer,
    topic_and_channel_name,
)
from nsqfast.net.http_routes import INTERNAL_ERROR
from nsqfast.nsqd.broker import Broker
from nsqfast.nsqd.http_publish import admit
from nsqfast.version import NSQ_VERSION, __version__
from nsqfast.wire.names import is_valid_name

EMPTY = text_answer("")


class Admin:
    """Handlers that create, delete, pause and empty."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._registry = broker.registry

    def ping(self, _request: Request, unhealthy: int = 500) -> Response:
        """OK; 500 while the last disk write failed, 503 while new messages are refused."""
        health = self._broker.health()
        if health != "OK":
            return plain_answer(unhealthy, health)
        if self._broker.drain.is_on:
            return plain_answer(503, "NOK - draining")
        return plain_answer(200, health)

    def livez(self, _request: Request) -> Response:
        """OK as long as it answers: a restart mends neither a disk nor a drain, and loses what is only in memory."""
        return plain_answer(200, "OK")

    def readyz(self, request: Request) -> Response:
        """OK while it takes new messages; else 503."""
        return self.ping(request, 503)

    def info(self, _request: Request) -> Response:
        """The broker's identity, and the features that clients may request."""
        options = self._broker.options
        return json_answer(
            {
                "version": NSQ_VERSION,
                "broadcast_address": options.broadcast_address,
                "hostname": socket.gethostname(),
                "http_port": port_number(self._broker.http_address),
                "tcp_port": port_number(self._broker.tcp_address),
                "start_time": int(self._broker.start_time),
                "max_heartbeat_interval": options.max_heartbeat_interval_ns,
                "max_output_buffer_size": options.max_output_buffer_size,
                "max_output_buffer_timeout": options.max_output_buffer_timeout_ns,
                "max_deflate_level": options.max_deflate_level,
                "topology_zone": options.topology_zone,
                "topology_region": options.topology_region,
                "nsqfast_version": __version__,
                "draining": self._broker.drain.is_on,
            }
        )

    def acknowledge(self, _request: Request) -> Response:
        """Somebody knows that the run before was killed, and what it lost."""
        self._broker.run_file.acknowledge()
        return EMPTY

    def disconnect_client(self, request: Request) -> Response:
        """End the connection from this address; what was in flight to it is queued again."""
        address = required(parameters(request), "address")
        found = [
            client for client in self._registry.turn.clients() if client.remote_address == address
        ]
        if not found:
            raise HttpError(404, "CLIENT_NOT_FOUND")
        if len(found) > 1:  # at a socket in a folder, where clients have no address of their own
            raise HttpError(409, "CLIENT_NOT_UNIQUE")
        found[0].abort()
        return EMPTY

    def create_topic(self, request: Request) -> Response:
        """Create a topic; also succeeds if it exists."""
        name = _valid_topic_name(request)
        if self._registry.topics.find(name) is None and self._registry.durability.closing:
            raise HttpError(503, "EXITING")
        admit(self._registry, name)
        self._registry.topics.ensure(name)
        return EMPTY

    def delete_topic(self, request: Request) -> Response | Awaitable[Response]:
        """Delete a topic with its channels."""
        name = required(parameters(request), "topic")
        try:
            self._registry.topics.delete(name)
        except KeyError:
            raise HttpError(404, "TOPIC_NOT_FOUND") from None
        return self._when_removed()

    def empty_topic(self, request: Request) -> Response | Awaitable[Response]:
        """Empty the topic's own queue, not its channels'."""
        self._find_topic(_valid_topic_name(request)).empty()
        return self._when_removed()

    def pause_topic(self, request: Request) -> Awaitable[Response]:
        """Pause a topic: it passes nothing on to its channels."""
        return self._change_topic(request, Topic.pause)

    def unpause_topic(self, request: Request) -> Awaitable[Response]:
        """Unpause a topic."""
        return self._change_topic(request, Topic.unpause)

    def create_channel(self, request: Request) -> Response:
        """Create a channel; the topic has to exist."""
        topic, name = self._topic_and_channel_name(request)
        if topic.find_channel(name) is None and self._registry.durability.closing:
            raise HttpError(503, "EXITING")
        admit(self._registry, topic.name, name)
        topic.channel(name)
        return EMPTY

    def delete_channel(self, request: Request) -> Response | Awaitable[Response]:
        """Delete a channel; its consumers are disconnected."""
        topic, name = self._topic_and_channel_name(request)
        try:
            topic.delete_channel(name)
        except KeyError:
            self._broker.lookup.forget_channel(topic.name, name)
            raise HttpError(404, "CHANNEL_NOT_FOUND") from None
        return self._when_removed()

    def empty_channel(self, request: Request) -> Response | Awaitable[Response]:
        """Drop waiting, in-flight and deferred messages."""
        self._find_channel(request).empty()
        return self._when_removed()

    def pause_channel(self, request: Request) -> Awaitable[Response]:
        """Pause a channel: its consumers get nothing."""
        return self._change_channel(request, Channel.pause)

    def unpause_channel(self, request: Request) -> Awaitable[Response]:
        """Unpause a channel."""
        return self._change_channel(request, Channel.unpause)

    def _change_topic(
        self, request: Request, change: Callable[[Topic], None]
    ) -> Awaitable[Response]:
        topic = self._find_topic(required(parameters(request), "topic"))
        change(topic)
        return self._when_persisted(topic.name)

    def _change_channel(
        self, request: Request, change: Callable[[Channel], None]
    ) -> Awaitable[Response]:
        channel = self._find_channel(request)
        change(channel)
        return self._when_persisted(channel.topic_name)

    def _when_removed(self) -> Response | Awaitable[Response]:
        """Answer when the files are removed, a part at a time; after that no kill -9 brings messages back."""
        answer: asyncio.Future[Response] = asyncio.get_running_loop().create_future()

        def give() -> None:
            if not answer.done():
                answer.set_result(EMPTY)

        self._registry.topics.when_removed(give)
        return EMPTY if answer.done() else answer

    async def _when_persisted(self, topic: str) -> Response:
        """Answer when the change is persisted. It takes effect in any case; an error says that a restart would not know
        of it.
        """
        try:
            await self._broker.persist_metadata(topic)
        except OSError:
            return INTERNAL_ERROR
        return EMPTY

    def _find_topic(self, name: str) -> Topic:
        topic = self._registry.topics.find(name)
        if topic is None:
            raise HttpError(404, "TOPIC_NOT_FOUND")
        return topic

    def _topic_and_channel_name(self, request: Request) -> tuple[Topic, str]:
        topic, channel = topic_and_channel_name(parameters(request))
        return self._find_topic(topic), channel

    def _find_channel(self, request: Request) -> Channel:
        topic, name = self._topic_and_channel_name(request)
        channel = topic.find_channel(name)
        if channel is None:
            raise HttpError(404, "CHANNEL_NOT_FOUND")
        return channel


def _valid_topic_name(request: Request) -> str:
    name = required(parameters(request), "topic")
    if not is_valid_name(name):
        raise HttpError(400, "INVALID_TOPIC")
    return name
