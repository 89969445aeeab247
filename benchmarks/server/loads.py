"""Loads for scenarios: each fills or empties one topic and returns what that took.

The broker's counters are compared with the generator's every time: a message that did not arrive is an error, not a
slower round.
"""

from __future__ import annotations

from dataclasses import dataclass
from statistics import fmean, harmonic_mean
from typing import TYPE_CHECKING, Any

from server import generators
from server.generators import Run, nsqfast_bench, read_report
from server.usage import Meter

if TYPE_CHECKING:
    from collections.abc import Callable

    from server.broker import Broker

TOPIC, CHANNEL = "bench", "ch"
SIZE = 200
BATCH_SIZE = 200
RDY = 2500
FRAME_BYTES = 40_000  # of an MPUB whose messages are larger or smaller than usual
# The last messages of a run wait for this; NSQ's default of 250 ms would be a good part of the run.
FLUSH = "--output-buffer-timeout=25"
# The clock must not end a run with a fixed number of messages.
PATIENCE_SECONDS = 60.0

Sample = dict[str, float]


@dataclass(frozen=True, slots=True)
class Publish:
    """How messages are published."""

    count: int
    size: int = SIZE
    batch_size: int = BATCH_SIZE
    in_air: int = 1
    connections: int = 2
    defer_ms: int = 0
    seconds: float = PATIENCE_SECONDS  # after which it ends although some are missing
    topics: int = 1  # that connections publish to in turn

    def flags(self) -> list[str]:
        """Return those for nsqfast-bench."""
        flags = [
            f"--topic={TOPIC}",
            f"--count={self.count}",
            f"--size={self.size}",
            f"--batch-size={self.batch_size}",
            f"--in-air={self.in_air}",
            f"--connections={self.connections}",
            f"--runfor={self.seconds}s",
        ]
        if self.defer_ms:
            flags.append(f"--defer-ms={self.defer_ms}")
        if self.topics > 1:
            flags.append(f"--topics={self.topics}")
        return flags

    def command_size(self) -> int:
        """Bytes of one PUB or MPUB on the wire."""
        if self.batch_size == 1:
            return len(f"PUB {TOPIC}\n") + 4 + self.size
        return len(f"MPUB {TOPIC}\n") + 8 + self.batch_size * (4 + self.size)


def batch_for(size: int) -> int:
    """Return the messages of an MPUB of the usual length."""
    return max(1, FRAME_BYTES // size)


def times(count: int, measure: Callable[[], Sample]) -> Sample:
    """Repeat the same load as if it were one: longer rounds with bounded memory."""
    return combine([measure() for _ in range(count)])


def combine(samples: list[Sample]) -> Sample:
    """Combine loads with the same number of messages: over the sum of their times; memory is the maximum."""
    how = {"rate": harmonic_mean, "megabytes_per_s": harmonic_mean, "peak_rss_bytes": max}
    return {name: how.get(name, fmean)([sample[name] for sample in samples]) for name in samples[0]}


def publish(broker: Broker, load: Publish, channels: int = 1) -> Sample:
    """Publish to channels without consumers; the broker's cost includes moving everything to its channels."""
    broker.create(TOPIC, numbered(CHANNEL, channels))
    meter = Meter(broker.pid)
    run = read_report(nsqfast_bench(broker.tcp, "pub", *load.flags()))
    return _filled(broker, meter, run, run.messages)


def publish_to_topics(broker: Broker, load: Publish) -> Sample:
    """The same, over many topics with a channel each."""
    topics = numbered(TOPIC, load.topics)
    for topic in topics:
        broker.create(topic, (CHANNEL,))
    meter = Meter(broker.pid)
    run = read_report(nsqfast_bench(broker.tcp, "pub", *load.flags()))
    arrived = sum(map(broker.wait_taken, topics))
    assert arrived == run.messages, (arrived, run)
    sample = run.sample | meter.spent(run.messages)
    for topic in topics:
        broker.delete(topic)
    return sample


def publish_go(broker: Broker, seconds: float, batch_size: int = BATCH_SIZE) -> Sample | None:
    """The same with bench_writer, which has only MPUB; None if it is missing.

    It is limited by time, not number. If it is so fast that a broker's memory queue overflows to disk, it measured
    something else, and the result is None as well.
    """
    broker.create(TOPIC, (CHANNEL,))
    meter = Meter(broker.pid)
    run = generators.bench_writer(broker.tcp, TOPIC, SIZE, batch_size, seconds)
    if run is None:
        broker.delete(TOPIC)
        return None
    sample = _filled(broker, meter, run, run.messages)
    return None if 0 < broker.mem_queue_size < run.messages else sample


def publish_http(
    broker: Broker, path: str, messages_per_request: int, seconds: float
) -> Sample | None:
    """POST with wrk, which is limited by time only, as bench_writer is: see `publish_go`.

    Requests in progress when it stopped are in the broker's count, but not in its own.
    """
    broker.create(TOPIC, (CHANNEL,))
    meter = Meter(broker.pid)
    url = f"http://{broker.http}/{path}?topic={TOPIC}"
    run = generators.wrk(url, SIZE, messages_per_request, seconds)
    arrived = broker.wait_taken(TOPIC)
    uncounted = arrived - run.messages
    assert 0 <= uncounted <= generators.WRK_CONNECTIONS * messages_per_request, (arrived, run)
    sample = run.sample | meter.spent(arrived)
    broker.delete(TOPIC)
    return None if 0 < broker.mem_queue_size < arrived else sample


def _filled(broker: Broker, meter: Meter, run: Run, messages: int) -> Sample:
    broker.wait_queued(TOPIC, messages)
    sample = run.sample | meter.spent(messages)
    broker.delete(TOPIC)
    return sample


def fill(broker: Broker, load: Publish) -> int:
    """Make a backlog, not timed; return how many messages it has."""
    broker.create(TOPIC, (CHANNEL,))
    messages = read_report(nsqfast_bench(broker.tcp, "pub", *load.flags())).messages
    broker.wait_queued(TOPIC, messages)
    return messages


def consume(broker: Broker, backlog: int, requeue_ms: int = -1, size: int = SIZE) -> Sample:
    """Consume and finish all that `fill` left, over two connections."""
    flags = [f"--topic={TOPIC}", f"--channel={CHANNEL}", f"--rdy={RDY}", f"--count={backlog}"]
    flags += [f"--size={size}", f"--runfor={PATIENCE_SECONDS}s", FLUSH]
    if requeue_ms >= 0:
        flags.append(f"--requeue-ms={requeue_ms}")
    meter = Meter(broker.pid)
    report = nsqfast_bench(broker.tcp, "sub", *flags)
    run = read_report(report)
    assert run.messages == backlog or broker.is_endless, report
    assert requeue_ms < 0 or report["requeued"] == backlog, report
    broker.wait_finished(TOPIC)
    sample = run.sample | meter.spent(run.messages)
    broker.delete(TOPIC)
    return sample


def consume_go(broker: Broker, backlog: int, size: int, seconds: float) -> Sample | None:
    """Let bench_reader consume for that time; None if it is missing, or got everything.

    It divides by the time it was given, so a backlog that ended earlier says nothing about the broker.
    """
    meter = Meter(broker.pid)
    run = generators.bench_reader(broker.tcp, TOPIC, CHANNEL, size, seconds)
    sample = run.sample | meter.spent(run.messages) if run else None
    broker.delete(TOPIC)
    if run is None or broker.is_endless:
        return sample
    # It can be more than there were: what one consumer leaves when it ends, the other gets.
    assert run.messages > 0, run
    return sample if run.messages < backlog else None


def exchange(broker: Broker, load: Publish, channels: int = 1) -> Sample:
    """Publish and consume at the same time; every channel has its own consumers."""
    broker.create(TOPIC, numbered(CHANNEL, channels))
    flags = [f"--channel={CHANNEL}", f"--channels={channels}", f"--rdy={RDY}", FLUSH]
    meter = Meter(broker.pid)
    report = nsqfast_bench(broker.tcp, "pubsub", *load.flags(), *flags)
    run = read_report(report)
    assert report["published"] * channels == run.messages, report
    broker.wait_finished(TOPIC)
    sample = run.sample | meter.spent(run.messages)
    broker.delete(TOPIC)
    return sample


def keep_up(broker: Broker, load: Publish, channels: int) -> Sample:
    """Publish and consume for a time; what all channels have finished counts."""
    flags = (f"--rdy={RDY}", f"--channels={channels}")
    report, meter = _exchange_for_a_time(broker, load, channels, *flags)
    return _flown(broker, report, meter, report["finished"] / channels)


def lag(broker: Broker, load: Publish, channels: int) -> Sample | None:
    """Publish for a time while one consumer of one channel takes one message at a time; what was published counts.

    None where more than half was consumed: that is no lag.
    """
    flags = ("--rdy=1", "--consumers=1", "--channels=1")
    report, meter = _exchange_for_a_time(broker, load, channels, *flags)
    sample = _flown(broker, report, meter, report["published"])
    return sample if 2 * report["finished"] < channels * report["published"] else None


def _exchange_for_a_time(
    broker: Broker, load: Publish, channels: int, *flags: str
) -> tuple[dict[str, Any], Meter]:
    broker.create(TOPIC, numbered(CHANNEL, channels))
    flags = (*flags, f"--channel={CHANNEL}", FLUSH)
    meter = Meter(broker.pid)
    report = nsqfast_bench(broker.tcp, "pubsub", *load.flags(), *flags)
    broker.wait_left(
        TOPIC, report["published"], report["published"] * channels - report["finished"]
    )
    return report, meter


def _flown(broker: Broker, report: dict[str, Any], meter: Meter, messages: float) -> Sample:
    own_us = (report["cpu_us_user"] + report["cpu_us_sys"]) / messages
    rate = messages / report["seconds"]
    sample = {"rate": rate, "generator_cpu_us": own_us} | meter.spent(messages)
    broker.delete(TOPIC)
    return sample


def latency(broker: Broker, rate: int, seconds: float, timeout_ms: int | None) -> Sample:
    """Publish at a fixed rate; time each message from when it was due until it was received, and until its OK.

    `timeout_ms` is the output buffer timeout that the consumer requests; None: NSQ's default.
    """
    broker.create(TOPIC, (CHANNEL,))
    flags = [
        f"--topic={TOPIC}",
        f"--channel={CHANNEL}",
        f"--rate={rate}",
        f"--runfor={seconds}s",
        f"--rdy={RDY}",
        "--connections=1",
        "--consumers=1",
    ]
    if timeout_ms is not None:
        flags.append(f"--output-buffer-timeout={timeout_ms}")
    meter = Meter(broker.pid)
    report = nsqfast_bench(broker.tcp, "latency", *flags)
    run = read_report(report)
    # Those behind the last that counts may still be in flight.
    assert report["latency_us"]["count"] == report["latency_us"]["intended"], report
    sample = run.sample | meter.spent(run.messages)
    sample |= {f"ok_{name}_us": report["ok_latency_us"][name] for name in ("p50", "p99", "p999")}
    broker.delete(TOPIC)
    return sample


def numbered(name: str, count: int) -> tuple[str, ...]:
    """Return the names that nsqfast-bench uses: ch, ch2, ch3."""
    return (name, *(f"{name}{number}" for number in range(2, count + 1)))
