"""The figures behind /metrics: read from the compiled core on request, and not counted a second time.

    gather   topics and channels, each at one moment ─► rows
    render   broker and process, then rows family by family ─► pieces of the answer

Both work in small steps, between which the loop serves others: ten thousand topics take a while.
"""

import asyncio
import math
import os
import sys
import time
from collections.abc import Callable, Iterable, Iterator

from prometheus_client import GCCollector, PlatformCollector
from prometheus_client.metrics_core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    InfoMetricFamily,
    Metric,
    SummaryMetricFamily,
)
from prometheus_client.registry import Collector, CollectorRegistry

from nsqfast._ext.broker.channel import Channel
from nsqfast._ext.broker.topic import Topic
from nsqfast._ext.core.memory import used_bytes
from nsqfast.net.http_message import Response
from nsqfast.nsqd.broker import Broker
from nsqfast.refusals import PUBLISH_REFUSED
from nsqfast.stats.connections import connection_metrics
from nsqfast.stats.process import process_metrics
from nsqfast.stats.prometheus import (
    Family,
    Format,
    HistogramRow,
    Row,
    histogram_metric,
    histogram_series,
)
from nsqfast.version import NSQ_VERSION, __version__

# How long the loop may be blocked at a time.
SLICE_S = 0.001
LAG_LEAST_S, LAG_MOST_S = 0.001, 10.0

TOPIC_FAMILIES = (
    Family("nsqd_topic_depth", "gauge", "Messages that wait in the topic itself."),
    Family("nsqd_topic_backend_depth", "gauge", "Those of them that are on disk."),
    Family("nsqd_topic_messages", "counter", "Messages published."),
    Family("nsqd_topic_message_bytes", "counter", "Bytes of the bodies published."),
    Family("nsqd_topic_paused", "gauge", "1 while the topic is paused, else 0."),
    Family("nsqd_topic_channels", "gauge", "Channels of the topic."),
    Family(
        "nsqd_topic_oldest_message_age_seconds",
        "gauge",
        "Since the oldest message that waits in the topic itself was published.",
    ),
)
CHANNEL_FAMILIES = (
    Family("nsqd_channel_depth", "gauge", "Messages that wait in the channel."),
    Family("nsqd_channel_backend_depth", "gauge", "Those of them that are on disk."),
    Family("nsqd_channel_in_flight", "gauge", "Messages delivered and not finished yet."),
    Family("nsqd_channel_deferred", "gauge", "Messages that wait until they are due."),
    Family("nsqd_channel_messages", "counter", "Messages that came into the channel."),
    Family("nsqd_channel_delivered", "counter", "Deliveries to consumers, repeated ones too."),
    Family("nsqd_channel_finished", "counter", "Messages that consumers finished."),
    Family("nsqd_channel_requeues", "counter", "Messages that consumers gave back."),
    Family("nsqd_channel_timeouts", "counter", "Messages taken back from consumers."),
    Family("nsqd_channel_clients", "gauge", "Consumers that are subscribed."),
    Family("nsqd_channel_paused", "gauge", "1 while the channel is paused, else 0."),
    Family(
        "nsqd_channel_oldest_message_age_seconds",
        "gauge",
        "Since the oldest message that waits or is in flight was published.",
    ),
    Family(
        "nsqd_channel_longest_held_seconds",
        "gauge",
        "Since a consumer that has messages in flight last finished or requeued one; of all its consumers the longest.",
    ),
)
LATENCY = Family(
    "nsqd_channel_e2e_processing_latency_seconds", "histogram", "From publishing to FIN."
)


class Metrics:
    """The figures of one broker."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._registry = CollectorRegistry()
        self._registry.register(BrokerCollector(broker))
        PlatformCollector(registry=self._registry)
        GCCollector(registry=self._registry)
        # One at a time: each holds all its lines in memory.
        self._turn = asyncio.Lock()

    async def answer(self, accept: str) -> Response:
        """All figures, in the format that the Accept header asks for."""
        self._broker.watch_lag()
        async with self._turn:
            wanted = Format(accept)
            pieces = []
            due_s = time.perf_counter() + SLICE_S
            for piece in self._steps(wanted):
                pieces.append(piece)
                if time.perf_counter() >= due_s:
                    await asyncio.sleep(0)
                    due_s = time.perf_counter() + SLICE_S
            return Response(200, b"".join(pieces), wanted.content_type)

    def _steps(self, wanted: Format) -> Iterator[bytes]:
        queues = Queues(self._broker)
        for _ in queues.gather():
            yield b""
        yield wanted.metrics([*self._registry.collect(), *queues.totals()])
        yield from wanted.table(TOPIC_FAMILIES, queues.topics)
        yield from wanted.table(CHANNEL_FAMILIES, queues.channels)
        yield from wanted.histograms(LATENCY, queues.latencies)
        yield wanted.end


class Queues:
    """Topics and channels as rows, up to the maximum number of series."""

    def __init__(self, broker: Broker) -> None:
        self._registry = broker.registry
        self._options = broker.options
        self._has_histogram = broker.options.metrics_latency_histogram
        self._channel_size = len(CHANNEL_FAMILIES) + histogram_series() * self._has_histogram
        self._dropped = 0
        self._channels_left = 0
        self._topic_count = self._channel_count = 0
        self.topics: list[Row] = []
        self.channels: list[Row] = []
        self.latencies: list[HistogramRow] = []

    def gather(self) -> Iterator[None]:
        """Gather one queue per step. Under the ceiling topics come first; channels get the rest, by name."""
        room = self._options.metrics_max_series or sys.maxsize
        topics = self._registry.topics()
        self._topic_count = len(topics)
        shown = sum(not self._is_left_out(topic) for topic in topics)
        topics_left = min(shown, room // len(TOPIC_FAMILIES))
        self._channels_left = (room - topics_left * len(TOPIC_FAMILIES)) // self._channel_size
        for topic in topics:
            channels = topic.channels()
            self._channel_count += len(channels)
            if self._is_left_out(topic):
                continue
            if topics_left:
                topics_left -= 1
                self.topics.append(_topic_row(topic, len(channels)))
            else:
                self._dropped += len(TOPIC_FAMILIES)
            yield
            if not self._options.metrics_exclude_channels:
                yield from self._gather_channels(channels)

    def _is_left_out(self, queue: Topic | Channel) -> bool:
        return self._options.metrics_exclude_ephemeral and queue.ephemeral

    def _gather_channels(self, channels: list[Channel]) -> Iterator[None]:
        for channel in channels:
            if self._is_left_out(channel):
                continue
            if not self._channels_left:
                self._dropped += self._channel_size
                continue
            self._channels_left -= 1
            labels = f'topic="{channel.topic_name}",channel="{channel.name}"'
            self.channels.append(_channel_row(labels, channel))
            if channel.histogram is not None:
                seen = channel.histogram
                self.latencies.append((labels, seen.cumulative(), seen.sum_s))
            yield

    def totals(self) -> Iterator[Metric]:
        """The numbers of topics and channels, shown or not."""
        yield GaugeMetricFamily("nsqd_topics", "Topics.", self._topic_count)
        yield GaugeMetricFamily("nsqd_channels", "Channels.", self._channel_count)
        yield GaugeMetricFamily(
            "nsqd_metrics_dropped_series",
            "Series of topics and channels left out because of --metrics-max-series.",
            self._dropped,
        )


def _topic_row(topic: Topic, channel_count: int) -> Row:
    return f'topic="{topic.name}"', (
        topic.depth,
        topic.backend_depth,
        topic.message_count,
        topic.message_bytes,
        int(topic.paused),
        channel_count,
        _age_s(topic),
    )


def _channel_row(labels: str, channel: Channel) -> Row:
    return labels, (
        channel.depth,
        channel.backend_depth,
        channel.in_flight_count,
        channel.deferred_count,
        channel.message_count,
        channel.delivery_count,
        channel.finish_count,
        channel.requeue_count,
        channel.timeout_count,
        channel.consumer_count,
        int(channel.paused),
        _age_s(channel),
        channel.held_ns() / 1e9,
    )


def _age_s(queue: Topic | Channel) -> float | str:
    age_ns = queue.age_ns()
    return age_ns / 1e9 if age_ns >= 0 else "NaN"


class BrokerCollector(Collector):
    """The figures that exist once, whatever topics there are."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker

    def collect(self) -> Iterable[Metric]:
        """Collect the current figures."""
        parts: tuple[Callable[[], Iterator[Metric]], ...] = (
            self._state,
            lambda: connection_metrics("nsqd", self._broker.listeners),
            self._syncs,
            self._disk,
            self._refusals,
            lambda: process_metrics(self._broker.start_time),
        )
        return [metric for part in parts for metric in part()]

    def _state(self) -> Iterator[Metric]:
        broker = self._broker
        versions = {"version": NSQ_VERSION, "nsqfast_version": __version__}
        yield InfoMetricFamily("nsqd_build", "NSQ's version and our own.", versions)
        yield GaugeMetricFamily(
            "nsqd_healthy",
            "1, or 0 when the last write or fsync failed, as /ping says.",
            broker.health() == "OK",
        )
        yield GaugeMetricFamily(
            "nsqd_draining",
            "1 while new messages are refused because of POST /drain, else 0.",
            broker.drain.is_on,
        )
        run = broker.run_file
        yield CounterMetricFamily(
            "nsqd_unclean_starts",
            "Starts after a kill or a power cut, since the last clean stop.",
            run.unclean_starts,
        )
        yield GaugeMetricFamily(
            "nsqd_unclean_start_lost_messages",
            "What was only in memory when the run before was killed, at most; 0 once somebody has acknowledged it.",
            math.nan if run.lost_count is None else run.lost_count,
        )
        yield CounterMetricFamily(
            "nsqd_client_faults",
            "Clients that were dropped for a fault of nsqd's own, a line in the log each.",
            broker.registry.fault_count,
        )
        yield GaugeMetricFamily(
            "nsqd_memory_used_bytes", "What --max-memory is a ceiling for.", used_bytes()
        )
        yield GaugeMetricFamily(
            "nsqd_memory_max_bytes", "--max-memory; 0 without it.", broker.options.max_memory
        )
        yield histogram_metric(
            "nsqd_loop_lag_seconds",
            "How late timers of the event loop fire.",
            broker.lag,
            LAG_LEAST_S,
            LAG_MOST_S,
        )

    def _syncs(self) -> Iterator[Metric]:
        count, failed_count, time_s = self._broker.registry.syncer.figures()
        yield SummaryMetricFamily(
            "nsqd_fsync_duration_seconds",
            "Data and positions of queues brought to disk.",
            count_value=count,
            sum_value=time_s,
        )
        yield CounterMetricFamily("nsqd_fsync_errors", "Those that failed.", failed_count)

    def _refusals(self) -> Iterator[Metric]:
        refused = CounterMetricFamily(
            "nsqd_publish_refused", "Errors that answered a publish, by reason.", labels=["reason"]
        )
        for reason, count in PUBLISH_REFUSED.items():
            refused.add_metric([reason], count)
        yield refused

    def _disk(self) -> Iterator[Metric]:
        health = self._broker.registry.syncer.health
        yield CounterMetricFamily(
            "nsqd_disk_written_bytes", "Written to data files.", health.written_bytes
        )
        yield CounterMetricFamily(
            "nsqd_disk_read_bytes", "Read from data files.", health.read_bytes
        )
        yield CounterMetricFamily(
            "nsqd_disk_unreadable_bytes",
            "Of data files, given up since the disk did not return them.",
            health.unreadable_bytes,
        )
        try:
            found = os.statvfs(self._broker.options.data_path or ".")
            size = float(found.f_blocks * found.f_frsize)
            free = float(found.f_bavail * found.f_frsize)
        except OSError:
            size = free = math.nan
        yield GaugeMetricFamily("nsqd_disk_size_bytes", "Of the data path's file system.", size)
        yield GaugeMetricFamily("nsqd_disk_free_bytes", "What nsqd may still write there.", free)
