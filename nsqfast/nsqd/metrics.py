"""The figures behind /metrics: read from the compiled core on request, and not counted a second time.

    gather   topics and channels, each at one moment ─► rows
    render   broker and process, then rows family by family ─► pieces of the answer

Both work in small steps, between which the loop serves others: ten thousand topics take a while.
"""

import asyncio
import math
import os
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator

from prometheus_client.metrics_core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    InfoMetricFamily,
    Metric,
    SummaryMetricFamily,
)
from prometheus_client.registry import Collector

from nsqfast._ext.broker.channel import Channel
from nsqfast._ext.broker.topic import Topic
from nsqfast._ext.server.http_shortcut import ok_counts
from nsqfast.net.http_message import ANSWERED, Response
from nsqfast.net.slices import Slices
from nsqfast.nsqd.broker import Broker
from nsqfast.nsqd.http_messages import CHANGED
from nsqfast.nsqd.stats import COMMIT_MOST_S
from nsqfast.stats.process import (
    BUILD_TEXT,
    connection_metrics,
    process_metrics,
    python_metrics,
    request_metrics,
)
from nsqfast.stats.prometheus import (
    Family,
    Format,
    HistogramRow,
    Row,
    histogram_metric,
    histogram_series,
)
from nsqfast.version import NSQ_VERSION, __version__
from nsqfast.wire.refusals import PUBLISH_REFUSED

LAG_LEAST_S, LAG_MOST_S = 0.001, 10.0

TOPIC_FAMILIES = (
    Family(
        "nsqd_topic_depth", "gauge", "This is the number of messages that wait in the topic itself."
    ),
    Family(
        "nsqd_topic_backend_depth",
        "gauge",
        "This is the number of messages that wait in the topic itself, on disk.",
    ),
    Family("nsqd_topic_messages", "counter", "This counts the messages that were published."),
    Family(
        "nsqd_topic_message_bytes",
        "counter",
        "This counts the bytes of the bodies that were published.",
    ),
    Family("nsqd_topic_paused", "gauge", "This is 1 while the topic is paused, else 0."),
    Family("nsqd_topic_channels", "gauge", "This is the number of channels of the topic."),
    Family(
        "nsqd_topic_oldest_message_age_seconds",
        "gauge",
        "This is the time in seconds since the oldest message that waits in the topic itself was published.",
    ),
)
CHANNEL_FAMILIES = (
    Family(
        "nsqd_channel_depth", "gauge", "This is the number of messages that wait in the channel."
    ),
    Family(
        "nsqd_channel_backend_depth",
        "gauge",
        "This is the number of messages that wait in the channel, on disk.",
    ),
    Family(
        "nsqd_channel_in_flight",
        "gauge",
        "This is the number of messages that were delivered and are not finished yet.",
    ),
    Family(
        "nsqd_channel_deferred",
        "gauge",
        "This is the number of messages that wait until they are due.",
    ),
    Family(
        "nsqd_channel_messages", "counter", "This counts the messages that came into the channel."
    ),
    Family(
        "nsqd_channel_delivered",
        "counter",
        "This counts the deliveries of messages to consumers, repeated ones too.",
    ),
    Family("nsqd_channel_finished", "counter", "This counts the messages that consumers finished."),
    Family(
        "nsqd_channel_requeues", "counter", "This counts the messages that consumers gave back."
    ),
    Family(
        "nsqd_channel_timeouts",
        "counter",
        "This counts the messages that were taken back from consumers which did not answer in time.",
    ),
    Family("nsqd_channel_clients", "gauge", "This is the number of consumers that are subscribed."),
    Family("nsqd_channel_paused", "gauge", "This is 1 while the channel is paused, else 0."),
    Family(
        "nsqd_channel_oldest_message_age_seconds",
        "gauge",
        "This is the time in seconds since the oldest message that waits or is in flight was published.",
    ),
    Family(
        "nsqd_channel_longest_held_seconds",
        "gauge",
        "This is the longest time in seconds since a consumer with messages in flight finished or requeued one.",
    ),
)
LATENCY = Family(
    "nsqd_channel_e2e_processing_latency_seconds",
    "histogram",
    "This is the time in seconds from the publishing of a message to its FIN.",
)

# By the key that EventLog.figures() has for each.
LOG_FAMILIES = {
    "failed": Family(
        "nsqd_commit_log_failed",
        "gauge",
        "This is 1 if it cannot be written until a restart, else 0.",
    ),
    "size_bytes": Family(
        "nsqd_commit_log_size_bytes", "gauge", "This is the size in bytes of the files that work."
    ),
    "needed_bytes": Family(
        "nsqd_commit_log_needed_bytes",
        "gauge",
        "This is how many of these bytes a start would need; a checkpoint frees them.",
    ),
    "bad_quarters": Family(
        "nsqd_commit_log_bad_quarters",
        "gauge",
        "This is the number of its four files that are not used any more, because a write failed.",
    ),
    "commit_count": Family(
        "nsqd_commit_log_commits", "counter", "This counts the batches that were written."
    ),
    "commit_bytes": Family(
        "nsqd_commit_log_written_bytes", "counter", "This counts the bytes of these batches."
    ),
    "record_count": Family(
        "nsqd_commit_log_records", "counter", "This counts the events in these batches."
    ),
    "message_count": Family(
        "nsqd_commit_log_messages",
        "counter",
        "This counts the messages that were published into it.",
    ),
    "error_count": Family(
        "nsqd_commit_log_errors", "counter", "This counts the writes and syncs that failed."
    ),
    "missed_count": Family(
        "nsqd_commit_log_missed_records",
        "counter",
        "This counts the events that it did not take; a restart repeats what they ended.",
    ),
    "carried_bytes": Family(
        "nsqd_commit_log_carried_bytes",
        "gauge",
        "This is the size in bytes of what the last checkpoint found in memory alone.",
    ),
}


class Metrics:
    """The figures of one broker."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._figures = BrokerCollector(broker)
        # One at a time: each holds all its lines in memory.
        self._turn = asyncio.Lock()

    async def answer(self, accept: str) -> Response:
        """All figures, in the format that the Accept header asks for."""
        self._broker.watch_lag()
        async with self._turn:
            wanted = Format(accept)
            pieces = []
            slices = Slices()
            for piece in self._steps(wanted):
                pieces.append(piece)
                await slices.pause()
            return Response(200, b"".join(pieces), wanted.content_type)

    def _steps(self, wanted: Format) -> Iterator[bytes]:
        queues = Queues(self._broker)
        for _ in queues.gather():
            yield b""
        yield wanted.metrics([*self._figures.collect(), *queues.totals()])
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
        topics = self._registry.topics.sorted()
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
        yield GaugeMetricFamily(
            "nsqd_topics",
            "This is the number of topics, whether shown here or not.",
            self._topic_count,
        )
        yield GaugeMetricFamily(
            "nsqd_channels",
            "This is the number of channels, whether shown here or not.",
            self._channel_count,
        )
        yield GaugeMetricFamily(
            "nsqd_metrics_dropped_series",
            "This is the number of series of topics and channels that --metrics-max-series left out.",
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


def answered() -> Counter[tuple[str, int]]:
    """How often a request over HTTP was answered, by route and status."""
    found = ANSWERED.copy()
    for path, count in ok_counts().items():
        found[path, 200] += count
    return found


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
            self._commit_log,
            self._disk,
            self._refusals,
            lambda: request_metrics("nsqd", answered()),
            lambda: process_metrics(self._broker.start_time),
            python_metrics,
        )
        return [metric for part in parts for metric in part()]

    def _state(self) -> Iterator[Metric]:
        broker = self._broker
        versions = {"version": NSQ_VERSION, "nsqfast_version": __version__}
        yield InfoMetricFamily("nsqd_build", BUILD_TEXT, versions)
        yield GaugeMetricFamily(
            "nsqd_healthy",
            "This is 1, or 0 while data files cannot be written, synced or read, as /ping says.",
            broker.health() == "OK",
        )
        yield GaugeMetricFamily(
            "nsqd_draining",
            "This is 1 while POST /drain refuses new messages, else 0.",
            broker.drain.is_on,
        )
        run = broker.run_file
        yield CounterMetricFamily(
            "nsqd_unclean_starts",
            "This counts the starts after a kill or a power cut, since the last clean stop.",
            run.unclean_starts,
        )
        yield GaugeMetricFamily(
            "nsqd_unclean_start_lost_messages",
            "This is the number of messages that a kill has lost, at most; it is 0 once that is acknowledged.",
            math.nan if run.lost_count is None else run.lost_count,
        )
        yield CounterMetricFamily(
            "nsqd_client_faults",
            "This counts the clients that were dropped for a fault of nsqd's own; each has a line in the log.",
            broker.registry.turn.fault_count,
        )
        yield GaugeMetricFamily(
            "nsqd_memory_used_bytes",
            "This is the memory in bytes that --max-memory is a ceiling for.",
            broker.registry.memory.used_bytes(),
        )
        yield GaugeMetricFamily(
            "nsqd_memory_max_bytes",
            "This is the value of --max-memory in bytes, or 0 without it.",
            broker.options.max_memory,
        )
        yield histogram_metric(
            "nsqd_loop_lag_seconds",
            "This is the time in seconds by which timers of the event loop fire late.",
            broker.lag,
            LAG_LEAST_S,
            LAG_MOST_S,
        )

    def _syncs(self) -> Iterator[Metric]:
        count, failed_count, time_s = self._broker.registry.durability.store.figures()
        yield SummaryMetricFamily(
            "nsqd_fsync_duration_seconds",
            "This is the time in seconds that fsyncs of data and positions of queues took.",
            count_value=count,
            sum_value=time_s,
        )
        yield CounterMetricFamily(
            "nsqd_fsync_errors", "This counts the fsyncs that failed.", failed_count
        )

    def _commit_log(self) -> Iterator[Metric]:
        figures = self._broker.registry.durability.store.log_figures()
        if figures is None:
            return
        for key, family in LOG_FAMILIES.items():
            metric = Metric(family.name, family.help, family.kind)
            metric.add_sample(family.sample_name, {}, float(figures[key]))
            yield metric
        yield histogram_metric(
            "nsqd_commit_log_commit_duration_seconds",
            "This is the time in seconds until a batch was on disk; of syncs in interval mode.",
            figures["commit_times"],
            0.0,
            COMMIT_MOST_S,
        )
        yield SummaryMetricFamily(
            "nsqd_commit_log_checkpoint_duration_seconds",
            "This is the time in seconds that checkpoints took, those that failed left out.",
            count_value=figures["checkpoint_count"],
            sum_value=figures["checkpoint_s"],
        )

    def _refusals(self) -> Iterator[Metric]:
        store = self._broker.registry.durability.store
        for name, text, label, counts in (
            (
                "nsqd_publish_refused",
                "This counts the errors that answered a publish, by reason.",
                "reason",
                PUBLISH_REFUSED,
            ),
            (
                "nsq_dropped",
                "This counts the messages that policies dropped, by reason.",
                "reason",
                {"over_limit": store.dropped_count, "expired": store.expired_count},
            ),
            (
                "nsq_dead_letters",
                "This counts the messages that died, by reason.",
                "reason",
                self._broker.registry.topics.dead_counts,
            ),
            (
                "nsqd_operator_messages",
                "Operators requeued, dropped, copied or moved so many messages at /channel/messages.",
                "action",
                CHANGED,
            ),
        ):
            family = CounterMetricFamily(name, text, labels=[label])
            for value, count in counts.items():
                family.add_metric([value], count)
            yield family

    def _disk(self) -> Iterator[Metric]:
        health = self._broker.registry.durability.store.health
        yield CounterMetricFamily(
            "nsqd_disk_written_bytes",
            "This counts the bytes written to data files.",
            health.written_bytes,
        )
        yield CounterMetricFamily(
            "nsqd_disk_read_bytes", "This counts the bytes read from data files.", health.read_bytes
        )
        yield CounterMetricFamily(
            "nsqd_disk_unreadable_bytes",
            "This counts the bytes of data files that were given up because the disk did not return them.",
            health.unreadable_bytes,
        )
        try:
            found = os.statvfs(self._broker.options.data_path or ".")
            size = float(found.f_blocks * found.f_frsize)
            free = float(found.f_bavail * found.f_frsize)
        except OSError:
            size = free = math.nan
        yield GaugeMetricFamily(
            "nsqd_disk_size_bytes",
            "This is the size in bytes of the file system with the data path.",
            size,
        )
        yield GaugeMetricFamily(
            "nsqd_disk_free_bytes",
            "This is the number of bytes that nsqd may still write there.",
            free,
        )
