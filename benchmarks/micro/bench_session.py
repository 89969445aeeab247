"""Whole sessions, bytes in and bytes out, without a socket. A thousand messages a call: its microseconds are
nanoseconds per message.
"""

from collections.abc import Iterator
from pathlib import Path

import pytest
from nsqfast._ext.broker.channel import Channel
from nsqfast._ext.broker.registry import Registry
from nsqfast._ext.dev.loops import answer, feed
from pytest_benchmark.fixture import BenchmarkFixture

from support.core import Peer, make_registry

MESSAGES = 1000
PER_TURN = 100  # commands in one buffer, if turns of the loop are simulated
ROUNDS = 200
BODY = b"x" * 200
PUB = b"PUB t\n" + len(BODY).to_bytes(4, "big") + BODY
BODIES = (len(BODY).to_bytes(4, "big") + BODY) * 200
MPUB = b"MPUB t\n%s%s%s" % (
    (4 + len(BODIES)).to_bytes(4, "big"),
    (200).to_bytes(4, "big"),
    BODIES,
)
DPUB_TOLD = b"DPUB t 3600000 id\n" + len(BODY).to_bytes(4, "big") + BODY
TELLS_IDS = b'{"feature_negotiation":true,"nsqfast_deferred_ids":true}'
TOLD_SIZE = 27
OK_SIZE = 10
FRAME_SIZE = 34 + len(BODY)
STRIDE = 617  # scatters; it has no divisor in common with MESSAGES


@pytest.fixture
def registry(tmp_path: Path) -> Iterator[Registry]:
    registry = make_registry(tmp_path)
    yield registry
    registry.topics.delete("t")
    registry.topics.close()


@pytest.fixture
def channel(registry: Registry) -> Channel:
    return registry.topics.ensure("t").channel("c")


def turn(peer: Peer, data: bytes) -> bytes:
    """Run one turn of the loop that brings `data` from that peer; return its answers."""
    feed(peer.connection, data)
    return written(peer)


def written(peer: Peer) -> bytes:
    peer.registry.turn.end()
    frames = b"".join(peer.transport.written)
    peer.transport.written.clear()
    return frames


@pytest.mark.parametrize(
    ("commands", "count"), [(PUB * MESSAGES, MESSAGES), (MPUB * 5, 5)], ids=["PUB", "MPUB"]
)
def bench_publish(
    benchmark: BenchmarkFixture, registry: Registry, channel: Channel, commands: bytes, count: int
) -> None:
    """All in one buffer, no consumer; emptying the channel is not timed."""
    benchmark.extra_info["messages"] = MESSAGES
    peer = Peer(registry)
    answers = benchmark.pedantic(
        turn, args=(peer, commands), setup=channel.empty, rounds=ROUNDS, warmup_rounds=3
    )
    assert len(answers) == count * OK_SIZE
    assert channel.depth == MESSAGES


def bench_deliver(benchmark: BenchmarkFixture, registry: Registry, channel: Channel) -> None:
    """A queue is sent to one consumer as soon as it is ready; nothing is finished."""
    benchmark.extra_info["messages"] = MESSAGES
    producer, consumer = Peer(registry), Peer(registry)
    turn(consumer, b"SUB t c\n")

    def fill() -> None:
        turn(consumer, b"RDY 0\n")
        channel.empty()
        turn(producer, PUB * MESSAGES)

    frames = benchmark.pedantic(
        turn, args=(consumer, b"RDY 2500\n"), setup=fill, rounds=ROUNDS, warmup_rounds=3
    )
    assert len(frames) == MESSAGES * FRAME_SIZE
    assert channel.in_flight_count == MESSAGES


@pytest.mark.parametrize("scattered", [False, True], ids=["in-order", "scattered"])
def bench_finish(
    benchmark: BenchmarkFixture, registry: Registry, channel: Channel, *, scattered: bool
) -> None:
    """A hundred FINs in a buffer, ten times; nothing else is queued."""
    benchmark.extra_info["messages"] = MESSAGES
    producer, consumer = Peer(registry), Peer(registry)
    turn(consumer, b"SUB t c\nRDY 2500\n")
    buffers: list[bytes] = []

    def fill() -> None:
        turn(producer, PUB * MESSAGES)
        lines = answer(written(consumer)).splitlines(keepends=True)
        if scattered:
            lines = [lines[n * STRIDE % MESSAGES] for n in range(MESSAGES)]
        buffers[:] = [
            b"".join(lines[start : start + PER_TURN]) for start in range(0, MESSAGES, PER_TURN)
        ]

    def finish() -> int:
        for buffer in buffers:
            feed(consumer.connection, buffer)
        return channel.in_flight_count

    left = benchmark.pedantic(finish, setup=fill, rounds=ROUNDS, warmup_rounds=3)
    assert left == 0
    assert consumer.session.finish_count == consumer.session.message_count >= MESSAGES


@pytest.mark.parametrize("standing", [10_000, 100_000], ids=lambda n: f"standing={n}")
def bench_cancel_deferred(
    benchmark: BenchmarkFixture, registry: Registry, channel: Channel, standing: int
) -> None:
    """A hundred in a buffer, ten times, scattered among so many other deferred messages."""
    benchmark.extra_info["messages"] = MESSAGES
    peer = Peer(registry)
    turn(peer, b"IDENTIFY\n" + len(TELLS_IDS).to_bytes(4, "big") + TELLS_IDS)

    def defer(count: int) -> list[bytes]:
        answers = turn(peer, DPUB_TOLD * count)
        return [answers[at : at + 16] for at in range(11, len(answers), TOLD_SIZE)]

    kept = [id for _ in range(standing // MESSAGES) for id in defer(MESSAGES)]
    buffers: list[bytes] = []

    def fill() -> None:
        written(peer)
        kept.extend(defer(MESSAGES))
        step = len(kept) // MESSAGES
        lines = [b"CANCEL_DEFERRED t %s\n" % id for id in kept[::step][:MESSAGES]]
        del kept[: step * MESSAGES : step]
        buffers[:] = [
            b"".join(lines[start : start + PER_TURN]) for start in range(0, MESSAGES, PER_TURN)
        ]

    def cancel() -> int:
        for buffer in buffers:
            feed(peer.connection, buffer)
        return channel.deferred_count

    left = benchmark.pedantic(cancel, setup=fill, rounds=ROUNDS, warmup_rounds=3)
    assert left == standing
    assert set(written(peer)[4:].split(b"\0\0\0\x08")) == {b"\0\0\0\0OK 1"}


def bench_circuit(benchmark: BenchmarkFixture, registry: Registry, channel: Channel) -> None:
    """PUB, delivery and FIN, a hundred messages a turn."""
    benchmark.extra_info["messages"] = MESSAGES
    producer, consumer = Peer(registry), Peer(registry)
    turn(consumer, b"SUB t c\nRDY 2500\n")
    commands = PUB * PER_TURN

    def circulate() -> int:
        before = consumer.session.finish_count
        for _ in range(MESSAGES // PER_TURN):
            turn(producer, commands)
            feed(consumer.connection, answer(written(consumer)))
        return consumer.session.finish_count - before

    assert benchmark(circulate) == MESSAGES
    assert (channel.depth, channel.in_flight_count) == (0, 0)
