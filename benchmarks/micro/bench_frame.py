"""Frames as a consumer gets them. A thousand messages a call: its microseconds are nanoseconds per message."""

import pytest
from nsqfast._ext.dev.loops import FrameLoop
from nsqfast._ext.protocol.v2 import FrameDecoder
from pytest_benchmark.fixture import BenchmarkFixture

MESSAGES = 1000
PER_TURN = 100  # messages per write
READ_SIZE = 65536
OVERHEAD_SIZE = 34  # of a frame and of a message's header


@pytest.mark.parametrize("size", [16, 200, 2000])
def bench_encode(benchmark: BenchmarkFixture, size: int) -> None:
    benchmark.extra_info["messages"] = MESSAGES
    loop = FrameLoop(MESSAGES, size)
    assert benchmark(loop.encode, PER_TURN) == MESSAGES * (OVERHEAD_SIZE + size)


@pytest.mark.parametrize("size", [16, 200, 2000])
def bench_decode(benchmark: BenchmarkFixture, size: int) -> None:
    """The client's side, a read of 64 KiB at a time; it yields pairs of Python objects."""
    benchmark.extra_info["messages"] = MESSAGES
    loop = FrameLoop(MESSAGES, size)
    loop.encode(MESSAGES)
    stream, decoder = loop.written, FrameDecoder()
    reads = [stream[start : start + READ_SIZE] for start in range(0, len(stream), READ_SIZE)]

    def decode() -> list[tuple[int, bytes]]:
        frames: list[tuple[int, bytes]] = []
        for data in reads:
            frames += decoder.feed(data)
        return frames

    frames = benchmark(decode)
    assert len(frames) == MESSAGES
    assert {(kind, len(data)) for kind, data in frames} == {(2, OVERHEAD_SIZE - 8 + size)}
