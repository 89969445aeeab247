"""The commit ring on a real disk, and its sums. Disks change from minute to minute: compare within one run."""

import mmap
import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from nsqfast._ext.dev.commit_rings import OpenRing, sum_many
from pytest_benchmark.fixture import BenchmarkFixture

SIZE = 64 << 20
PAYLOAD = b"x" * 230
ROUNDS = 2000


@pytest.fixture
def ring(data_folder: Path) -> Iterator[OpenRing]:
    ring = OpenRing(str(data_folder / "log"), SIZE)
    yield ring
    ring.close()


def commit(ring: OpenRing, count: int) -> int:
    filling = ring.append_many(PAYLOAD, count)
    assert ring.wait(filling)
    ring.checkpoint(filling)
    return filling


@pytest.mark.parametrize("count", [1, 100, 10_000], ids=lambda count: f"records={count}")
def bench_commit(benchmark: BenchmarkFixture, ring: OpenRing, count: int) -> None:
    """Append so many records and wait until they are on disk."""
    benchmark.extra_info["messages"] = count
    rounds = ROUNDS if count < 1000 else 100
    last = benchmark.pedantic(commit, args=(ring, count), rounds=rounds, warmup_rounds=100)
    assert ring.committed == last


def bench_bare_write(benchmark: BenchmarkFixture, data_folder: Path) -> None:
    """4 KiB by O_DIRECT and O_DSYNC, one page after the other: what a commit of one record is measured against."""
    path = data_folder / "bare"
    path.write_bytes(bytes(SIZE // 4))
    os.sync()
    page = mmap.mmap(-1, 4096)
    fd = os.open(path, os.O_RDWR | os.O_DIRECT | os.O_DSYNC)
    places = iter(range(0, SIZE // 4, 4096))
    written = benchmark.pedantic(
        lambda: os.pwrite(fd, page, next(places)), rounds=ROUNDS, warmup_rounds=100
    )
    os.close(fd)
    assert written == 4096


def bench_append(benchmark: BenchmarkFixture, data_folder: Path) -> None:
    """A thousand a call, into memory: its microseconds are nanoseconds per record."""
    benchmark.extra_info["messages"] = 1000
    ring = OpenRing(str(data_folder / "log"), 1 << 30, is_stepped=True)
    assert (
        benchmark.pedantic(ring.append_many, args=(PAYLOAD, 1000), rounds=500, warmup_rounds=10)
        == 1
    )
    ring.close()


@pytest.mark.parametrize("size", [230, 1 << 20])
def bench_crc32c(benchmark: BenchmarkFixture, size: int) -> None:
    """A thousand sums a call of 230 bytes, each from the one before; one of a MiB."""
    count = 1000 if size < 1000 else 1
    data = b"x" * size
    assert benchmark(sum_many, data, count) == sum_many(data, count)
