"""What one more costs when there are many, and what one client can do to the others. New brokers for each figure."""

from __future__ import annotations

import time
from contextlib import ExitStack
from typing import TYPE_CHECKING

import pytest

from growth.attacks import ATTACKS
from growth.nodes import leave_lookupd
from growth.probing import Probed
from growth.subjects import MEMORY, SUBJECTS, TOPIC, with_channel
from growth.wire import Line, pub
from server.broker import START_SECONDS_MAX, STOP_SECONDS_MAX
from server.scenario import GROWTH, NOTHING, Row, Target
from server.usage import cpu_ns, resident_bytes

if TYPE_CHECKING:
    from growth.attacks import Attack
    from growth.subjects import Subject
    from server.broker import Broker
    from server.duel import Duel, Samples, Start
    from server.loads import Sample

ADD_SECONDS_MAX = 90.0
MORE = 20  # this part of what exists is added
PROBE_WORST_US = 20_000
SIZES_SMALL, SIZES = (1000,), (10, 1000, 10_000, 100_000, 1_000_000)
MESSAGES_MAX, BYTES_MAX = 2000, 100_000_000
TARGETS = (Target("probe_worst_us", "<=", PROBE_WORST_US, is_ratio=False),)
START_TARGET = Target("start_seconds", "<=", 1.5)
STOP_TARGET = Target("stop_seconds", "<=", 1.0)
LOOKUPD_TOPICS = {True: 1000, False: 100_000}


def row_of(name: str, count: int, more: tuple[Target, ...] = ()) -> Row:
    """The number is in `size`, by which tables are sorted."""
    return Row(f"{count:,} {name}", name, NOTHING, GROWTH, TARGETS + more, count)


@pytest.mark.parametrize("subject", SUBJECTS, ids=lambda subject: subject.name)
def bench_growth(duel: Duel, subject: Subject, is_small: bool) -> None:
    """Measure each number with brokers of its own."""
    counts = subject.small if is_small else subject.full
    more = (START_TARGET, STOP_TARGET) if subject.name == "queues on disk" else ()
    rows = {count: row_of(subject.name, count, more) for count in counts}
    duel.run_fresh_each(
        {row: lambda start, count=count: grow(start, subject, count) for count, row in rows.items()}
    )


def grow(start: Start, subject: Subject, count: int) -> Sample:
    """Make so many, then some more; then stop the broker, and start it with what that left."""
    broker = start(*subject.flags)
    try:
        if subject.prepare:
            subject.prepare(broker)
        before_bytes = resident_bytes(broker.pid)
        with ExitStack() as stack:
            with Probed(broker.tcp) as probed:
                made = subject.add(broker, 0, count, stack, time.monotonic() + ADD_SECONDS_MAX)
                used_bytes = resident_bytes(broker.pid) - before_bytes
                cost = cost_of_more(broker, subject, made, stack)
            sample = probed.sample | cost | {"bytes_per_item": used_bytes / made, "made": made}
    except BaseException:
        broker.kill()
        raise
    sample["stop_seconds"] = stop_seconds(broker)
    sample["start_seconds"] = start_seconds(start, subject.flags)
    return sample


def cost_of_more(broker: Broker, subject: Subject, made: int, stack: ExitStack) -> Sample:
    """Return the broker's time and CPU for each additional one."""
    count = max(1, made // MORE)
    begun_s, begun_ns = time.monotonic(), cpu_ns(broker.pid)
    more = subject.add(broker, made, count, stack, begun_s + ADD_SECONDS_MAX)
    return {
        "one_more_us": (time.monotonic() - begun_s) * 1e6 / more,
        "one_more_cpu_us": (cpu_ns(broker.pid) - begun_ns) / 1000 / more,
    }


def stop_seconds(broker: Broker) -> float:
    """Return how long it takes to end; it is killed if that takes too long."""
    begun_s = time.monotonic()
    try:
        broker.stop()
    except RuntimeError:
        return STOP_SECONDS_MAX
    return time.monotonic() - begun_s


def start_seconds(start: Start, flags: tuple[str, ...]) -> float:
    """Return how long it takes until /ping is answered."""
    try:
        broker = start(*flags)
    except RuntimeError:
        return START_SECONDS_MAX
    broker.kill()
    return broker.startup_seconds


def bench_message_size(duel: Duel, is_small: bool) -> None:
    """Messages of so many bytes, one at a time: what one costs, in time and in memory."""
    sizes = SIZES_SMALL if is_small else SIZES
    rows = {size: row_of("bytes in a message", size) for size in sizes}
    duel.run_fresh_each(
        {row: lambda start, size=size: weigh(start, size) for size, row in rows.items()}
    )


def weigh(start: Start, size: int) -> Sample:
    """Publish at most a hundred million bytes of them."""
    count = min(MESSAGES_MAX, BYTES_MAX // size)
    with start(*MEMORY) as broker:
        with_channel(broker)
        before_bytes, begun_ns = resident_bytes(broker.pid), cpu_ns(broker.pid)
        with Probed(broker.tcp) as probed, Line(broker.tcp) as line:
            begun_s = time.monotonic()
            line.ask_all([pub(TOPIC, bytes(size))] * count, begun_s + ADD_SECONDS_MAX, in_air=1)
            taken_s = time.monotonic() - begun_s
        used_bytes = resident_bytes(broker.pid) - before_bytes
        used_ns = cpu_ns(broker.pid) - begun_ns
        broker.delete(TOPIC)
    return probed.sample | {
        "bytes_per_item": used_bytes / count,
        "one_more_us": taken_s * 1e6 / count,
        "one_more_cpu_us": used_ns / 1000 / count,
    }


@pytest.mark.parametrize("attack", ATTACKS, ids=lambda attack: attack.name)
def bench_attack(duel: Duel, attack: Attack, is_small: bool) -> None:
    """Run each size on a broker of its own."""
    counts = attack.small if is_small else attack.full
    if not counts:
        pytest.skip("takes longer than a smoke test may")
    rows = {count: row_of(attack.name, count) for count in counts}
    duel.run_fresh_each(
        {row: lambda start, count=count: bear(start, attack, count) for count, row in rows.items()},
        is_ours=attack.is_ours,
    )


def bear(start: Start, attack: Attack, count: int) -> Sample:
    """Time and probe only the attack, not its preparation."""
    broker = start(*attack.flags)
    try:
        with ExitStack() as stack:
            prepared = attack.prepare(broker, count, stack) if attack.prepare else None
            with Probed(broker.tcp) as probed:
                attack.do(broker, count, prepared)
    finally:
        broker.kill()
    return probed.sample


def bench_lookupd_peer_leaves(duel: Duel, is_small: bool) -> None:
    """An nsqd with many topics disconnects; others PING meanwhile."""
    count = LOOKUPD_TOPICS[is_small]
    row = row_of("topics of a node that leaves nsqlookupd", count)

    def measure(lookupd: Broker) -> Samples:
        return {row: leave_lookupd(lookupd, count)}

    duel.run_lookupd(measure)
