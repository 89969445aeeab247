"""What operators do over HTTP: topics and channels, settings, the drain, /debug; also /ping, /livez, /readyz, /info."""

import asyncio
import gc
import io
import logging
import re
import socket
import sys
import threading
import traceback
import tracemalloc
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import orjson

from nsqfast._ext.broker.channel import Channel
from nsqfast._ext.broker.topic import Topic
from nsqfast.net.addresses import mask_address, mask_command_line, port_number
from nsqfast.net.http_message import Request, Response, parse_query
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
from nsqfast.nsqd.drain import Drain
from nsqfast.nsqd.http_publish import admit
from nsqfast.nsqd.kept import when_kept
from nsqfast.nsqd.options import DURATION_NS_MAX, PROGRAM, Options
from nsqfast.program import logs
from nsqfast.program.options import by_key
from nsqfast.stats.memory import memory_stats, resident_bytes
from nsqfast.version import NSQ_VERSION, __version__
from nsqfast.wire.gotext import parse_duration_ns, quote
from nsqfast.wire.names import is_valid_name
from nsqfast.wire.refusals import REFUSED

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

    def free_memory(self, _request: Request) -> Response:
        """Collect garbage and return free memory to the system."""
        gc.collect()
        self._registry.memory.release_free()
        return plain_answer(200, "OK")

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

    def create_topic(self, request: Request) -> Response | Awaitable[Response]:
        """Create a topic; also succeeds if it exists."""
        name = _valid_topic_name(request)
        if self._registry.topics.find(name) is None and self._registry.durability.closing:
            raise HttpError(503, "EXITING")
        admit(self._registry, name)
        self._registry.topics.ensure(name)
        return when_kept(self._registry, EMPTY)

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

    def create_channel(self, request: Request) -> Response | Awaitable[Response]:
        """Create a channel; the topic has to exist."""
        topic, name = self._topic_and_channel_name(request)
        if topic.find_channel(name) is None and self._registry.durability.closing:
            raise HttpError(503, "EXITING")
        admit(self._registry, topic.name, name)
        topic.channel(name)
        return when_kept(self._registry, EMPTY)

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
        """Answer when the files are removed and the commit log says so; after that no messages come back."""
        return when_kept(self._registry, EMPTY, is_removal=True)

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


# Each costs a task, a connection, and a query for every new topic.
ADDRESSES_MAX = 100


class Config:
    """GET and PUT /config/NAME: one setting by its config key; changes last until the program ends.

    `on_lookupd` is called when the addresses of nsqlookupd changed.
    """

    def __init__(self, options: Options, on_lookupd: Callable[[], None]) -> None:
        self._options = options
        self._on_lookupd = on_lookupd
        self._known = by_key(Options)

    def get(self, request: Request) -> Response:
        """A string unchanged, anything else as JSON, durations in nanoseconds."""
        return self._answer(_name(request))

    def put(self, request: Request) -> Response:
        """Change a setting; only some can change while clients are connected."""
        body, name = bytes(request.body), _name(request)
        if request.oversize or not body or len(body) > self._options.max_msg_size:
            raise HttpError(413, "INVALID_VALUE")
        if name == "log_level":
            self._set_log_level(body)
        elif name == "nsqlookupd_tcp_addresses":
            self._options.nsqlookupd_tcp_addresses = _read_addresses(body)
            self._on_lookupd()
        else:
            raise HttpError(400, "INVALID_OPTION")
        return self._answer(name)

    def _answer(self, name: str) -> Response:
        option = self._known.get(name)
        if option is None:
            raise HttpError(400, "INVALID_OPTION")
        value = getattr(self._options, option.attribute)
        if isinstance(value, str):
            return text_answer(mask_address(value) if "address" in name else value)
        if isinstance(value, list):
            value = [_shown(item) for item in value]
        return json_answer(value)

    def _set_log_level(self, body: bytes) -> None:
        level = logs.LEVELS.get(body.decode("latin-1").lower())
        if level is None:
            raise HttpError(400, "INVALID_VALUE")
        self._options.log_level = level
        logs.set_level(PROGRAM, level)


def _name(request: Request) -> str:
    return request.path.rpartition("/")[2]


def _read_addresses(body: bytes) -> list[str] | None:
    try:
        value: Any = orjson.loads(body)
    except ValueError:
        raise HttpError(400, "INVALID_VALUE") from None
    if value is None:
        return None
    if isinstance(value, list) and all(isinstance(item, str) for item in value):
        if len(value) > ADDRESSES_MAX:
            raise HttpError(
                400, f"INVALID_VALUE: at most {ADDRESSES_MAX} addresses, not {len(value)}"
            )
        return value
    raise HttpError(400, "INVALID_VALUE")


def _shown(value: object) -> object:
    """An element of a list: 1.0 as 1, as Go writes it, and addresses without their secrets."""
    if isinstance(value, str):
        return mask_address(value)
    return int(value) if isinstance(value, float) and value.is_integer() else value


log = logging.getLogger("nsqd")


class DrainPages:
    """/drain and /drain/cancel: all answer with the state, and with the messages that are still to be delivered."""

    def __init__(self, drain: Drain, is_allowed: bool) -> None:
        self._drain = drain
        self._is_allowed = is_allowed

    async def show(self, _request: Request) -> Response:
        """The current state."""
        drain = self._drain
        left = await drain.look()
        found = drain.figures() if drain.is_on else left.figures()
        return json_answer({"draining": drain.is_on, **found})

    def begin(self, request: Request) -> Awaitable[Response]:
        """Begin, or change the deadline: ?deadline=30m, or none."""
        self._check(request)
        values = parameters(request)
        self._drain.begin(_read_deadline(values["deadline"]) if "deadline" in values else None)
        return self.show(request)

    def cancel(self, request: Request) -> Awaitable[Response]:
        """Take messages again; nothing happens to a broker that does."""
        self._check(request)
        self._drain.cancel()
        return self.show(request)

    def _check(self, request: Request) -> None:
        if self._is_allowed:
            return
        REFUSED["drain"] += 1
        if (note := request.admit_line()) is not None:
            text = "DRAIN: refused over HTTP: --http-drain allows it, or --http-admin-address"
            log.warning("%s%s", text, note)
        raise HttpError(403, "DRAIN_NOT_ALLOWED")


def _read_deadline(text: str) -> int:
    try:
        after_ns = parse_duration_ns(text)
    except ValueError:
        after_ns = -1
    if not 0 <= after_ns <= DURATION_NS_MAX:
        raise HttpError(400, "INVALID_DEADLINE")
    return after_ns


# /debug: truthful information about a running Python program under the paths of Go's profiler.
#
# It offers an index, the stacks of all tasks and threads (goroutine), memory figures (heap) and the command line. There
# is no sampling profiler, block or thread-creation profile; those paths are not found.

DEBUG_INDEX = """/debug/pprof/

cmdline     the command line, words separated by NUL
goroutine   stacks of all tasks and threads
heap        memory figures, and the largest allocations while tracemalloc is on
"""
_INTEGER = re.compile(r"[+-]?[0-9]+")
_TRACED_LINES_MAX = 50


def debug_index(_request: Request) -> Response:
    """The list of pages."""
    return plain_answer(200, DEBUG_INDEX)


def debug_cmdline(_request: Request) -> Response:
    """The command line as the kernel knows it, without the secrets of addresses."""
    text = Path("/proc/self/cmdline").read_bytes().decode("utf-8", "replace").rstrip("\0")
    return plain_answer(200, "\0".join(mask_command_line(text.split("\0"))))


def debug_stacks(_request: Request) -> Response:
    """The stacks of all tasks and threads."""
    out = io.StringIO()
    tasks = asyncio.all_tasks()
    out.write(f"tasks: {len(tasks)}\n")
    for task in tasks:
        out.write("\n")
        task.print_stack(file=out)
    names = {thread.ident: thread.name for thread in threading.enumerate()}
    frames = sys._current_frames()  # noqa: SLF001 - its documented use is this one
    out.write(f"\nthreads: {len(frames)}\n")
    for ident, frame in frames.items():
        out.write(f"\nthread {names.get(ident, ident)}\n")
        out.write("".join(traceback.format_stack(frame)))
    return plain_answer(200, out.getvalue())


def debug_heap(_request: Request) -> Response:
    """The figures of /stats, and those of tracemalloc."""
    lines = [f"resident_bytes {resident_bytes()}"]
    lines += [f"{name} {value}" for name, value in memory_stats().items()]
    lines.append(f"gc_counts {gc.get_count()}")
    if tracemalloc.is_tracing():
        top = tracemalloc.take_snapshot().statistics("lineno")[:_TRACED_LINES_MAX]
        lines += ["", *(str(line) for line in top)]
    else:
        lines.append("tracemalloc off")
    return plain_answer(200, "\n".join(lines) + "\n")


def set_block_rate(request: Request) -> Response:
    """Checks its argument as nsqd does, and has no effect: there is no block profile."""
    rate = ""
    # A form's value takes precedence over the query's.
    for source in (bytes(request.body), request.query):
        try:
            rate = rate or parse_query(source).get("rate", "")
        except ValueError:
            continue
    if _INTEGER.fullmatch(rate):
        return plain_answer(200, "OK")
    return plain_answer(
        400, f"invalid block rate : strconv.Atoi: parsing {quote(rate)}: invalid syntax"
    )
