"""Pushes a broker's figures to statsd, every --statsd-interval (spec nsqd-core §10).

The packets of a push are spread over the interval, except its last second. A broker with many topics handles some of
them at a time, so that nobody waits for the figures.
"""

import asyncio
import contextlib
import logging
import socket
from collections.abc import Iterable, Iterator
from typing import Any

from nsqfast._ext.broker.channel import Channel
from nsqfast._ext.broker.topic import Topic
from nsqfast._ext.broker.topics import Topics
from nsqfast.net.slices import Slices
from nsqfast.nsqd.options import Options
from nsqfast.nsqd.stats import latency_stats
from nsqfast.stats.memory import memory_stats
from nsqfast.wire.gotext import os_error


class Counters:
    """Turns growing counters into differences between pushes."""

    def __init__(self) -> None:
        self._last: dict[str, int] = {}
        self._next: dict[str, int] = {}

    def difference(self, key: str, count: int) -> int:
        """The difference since the last push; a smaller value belongs to a new object of the same name."""
        self._next[key] = count
        last = self._last.get(key, 0)
        return count - last if count >= last else count

    def end_push(self) -> None:
        """Forget the counters that this push did not ask for: they are gone."""
        self._last, self._next = self._next, {}


def packets(lines: Iterable[str], size_max: int) -> Iterator[bytes]:
    """Yield as many whole lines together as fit into `size_max` bytes; a longer line goes by itself."""
    gathered: list[bytes] = []
    size = 0
    for line in lines:
        data = line.encode("utf-8", "surrogateescape") + b"\n"
        if gathered and size + len(data) > size_max:
            yield b"".join(gathered)
            gathered, size = [], 0
        gathered.append(data)
        size += len(data)
    if gathered:
        yield b"".join(gathered)


log = logging.getLogger("nsqd")

NS = 1e9
SPREAD_MARGIN_S = 1.0


class Statsd:
    """Runs from `start` to `stop`."""

    def __init__(self, topics: Topics, options: Options) -> None:
        self._topics = topics
        self._options = options
        self._counters = Counters()
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """The first push is due after one interval."""
        self._task = asyncio.get_running_loop().create_task(self._run())

    async def stop(self) -> None:
        """Stop; the unsent part of a push stays unsent."""
        if self._task is not None:
            self._task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._task

    async def _run(self) -> None:
        loop = asyncio.get_running_loop()
        interval_s = self._options.statsd_interval_ns / NS
        due = loop.time()
        while True:
            # By the clock, not from the end of the last push.
            due = max(due + interval_s, loop.time())
            await asyncio.sleep(due - loop.time())
            try:
                await self._push(interval_s - SPREAD_MARGIN_S)
            except OSError as error:
                # The next push may succeed: statsd is restarted, or its name resolves again.
                address = self._options.statsd_address
                log.error("STATSD: failed to push to %s - %s", address, os_error(error))  # noqa: TRY400
            except Exception:
                log.exception("STATSD: failed to push")

    async def _push(self, spread_s: float) -> None:
        lines = await self._lines()
        ready = list(packets(lines, self._options.statsd_udp_packet_size))
        if not ready:
            return
        with await self._connect() as sender:
            for packet in ready:
                # A datagram for which the kernel has no room is lost, as any may be.
                with contextlib.suppress(BlockingIOError, ConnectionRefusedError):
                    sender.send(packet)
                await asyncio.sleep(spread_s / len(ready))

    async def _connect(self) -> socket.socket:
        host, _, port = self._options.statsd_address.rpartition(":")
        loop = asyncio.get_running_loop()
        found = await loop.getaddrinfo(host.strip("[]"), port or None, type=socket.SOCK_DGRAM)
        family, kind, protocol, _, address = found[0]
        sender = socket.socket(family, kind, protocol)
        try:
            sender.setblocking(False)
            sender.connect(address)
        except BaseException:
            sender.close()
            raise
        return sender

    # -- the figures

    async def _lines(self) -> list[str]:
        """All lines of one push, with the current figures."""
        lines: list[str] = []
        slices = Slices()
        for topic in self._topics.sorted():
            await slices.pause()
            if not self._is_left_out(topic):
                lines += self._topic_lines(topic)
        if self._options.statsd_mem_stats:
            lines += self._memory_lines()
        self._counters.end_push()
        return lines

    def _is_left_out(self, queue: Any) -> bool:
        return self._options.statsd_exclude_ephemeral and queue.ephemeral

    def _topic_lines(self, topic: Topic) -> Iterator[str]:
        key = f"topic.{topic.name}"
        yield self._count(f"{key}.message_count", topic.message_count)
        yield self._count(f"{key}.message_bytes", topic.message_bytes)
        yield self._gauge(f"{key}.depth", topic.depth)
        yield self._gauge(f"{key}.backend_depth", topic.backend_depth)
        yield from self._latency_lines(key, topic.channels())
        for channel in topic.channels():
            if not self._is_left_out(channel):
                yield from self._channel_lines(f"{key}.channel.{channel.name}", channel)

    def _channel_lines(self, key: str, channel: Channel) -> Iterator[str]:
        yield self._count(f"{key}.message_count", channel.message_count)
        yield self._gauge(f"{key}.depth", channel.depth)
        yield self._gauge(f"{key}.backend_depth", channel.backend_depth)
        yield self._gauge(f"{key}.in_flight_count", channel.in_flight_count)
        yield self._gauge(f"{key}.deferred_count", channel.deferred_count)
        yield self._count(f"{key}.requeue_count", channel.requeue_count)
        yield self._count(f"{key}.timeout_count", channel.timeout_count)
        yield self._gauge(f"{key}.clients", len(channel.consumers()))
        yield from self._latency_lines(key, [channel])

    def _latency_lines(self, key: str, channels: list[Channel]) -> Iterator[str]:
        quantiles = self._options.e2e_processing_latency_percentiles
        for item in latency_stats(channels, quantiles)["percentiles"] or ():
            percent = int(item["quantile"] * 100 + 0.5)
            yield self._gauge(f"{key}.e2e_processing_latency_{percent}", item["value"])

    def _memory_lines(self) -> Iterator[str]:
        figures = memory_stats()
        runs = figures.pop("gc_total_runs")
        for name, value in figures.items():
            yield self._gauge(f"mem.{name}", value)
        yield self._count("mem.gc_runs", runs)

    def _count(self, key: str, count: int) -> str:
        return f"{self._options.statsd_prefix}{key}:{self._counters.difference(key, count)}|c"

    def _gauge(self, key: str, value: int) -> str:
        return f"{self._options.statsd_prefix}{key}:{value}|g"
