"""The queue on disk, without fsync. A thousand messages a call: its microseconds are nanoseconds per message."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from nsqfast._ext.dev.loops import append_records, read_records
from nsqfast._ext.storage.diskqueue.queue import DiskQueue
from nsqfast._ext.storage.diskqueue.syncer import Syncer
from pytest_benchmark.fixture import BenchmarkFixture

MESSAGES = 1000
ID_SUM = MESSAGES * (MESSAGES + 1) // 2
BODY = b"x" * 200
IN_FLIGHT = 100
ROUNDS = 100
FILE_SIZE_MAX = 100 << 20
SYNC_EVERY = 2500


@pytest.fixture
def queue(tmp_path: Path) -> Iterator[DiskQueue]:
    syncer = Syncer()
    queue = DiskQueue(str(tmp_path), "orders", syncer, FILE_SIZE_MAX, SYNC_EVERY)
    yield queue
    queue.delete_files()
    syncer.close()


@pytest.mark.parametrize("per_batch", [1, 200], ids=lambda count: f"batch={count}")
def bench_write(benchmark: BenchmarkFixture, queue: DiskQueue, per_batch: int) -> None:
    """As PUBs (1) and as MPUBs; reading what was written is not timed."""
    benchmark.extra_info["messages"] = MESSAGES

    def drain(*_: object) -> None:
        assert read_records(queue, MESSAGES, IN_FLIGHT) == (MESSAGES, ID_SUM)

    added = benchmark.pedantic(
        append_records,
        args=(queue, BODY, MESSAGES, per_batch),
        teardown=drain,
        rounds=ROUNDS,
        warmup_rounds=3,
    )
    assert added == MESSAGES


def bench_read_and_ack(benchmark: BenchmarkFixture, queue: DiskQueue) -> None:
    """A hundred at a time are read, then finished; writing them is not timed."""
    benchmark.extra_info["messages"] = MESSAGES

    def fill() -> None:
        assert append_records(queue, BODY, MESSAGES, 200) == MESSAGES

    read = benchmark.pedantic(
        read_records,
        args=(queue, MESSAGES, IN_FLIGHT),
        setup=fill,
        rounds=ROUNDS,
        warmup_rounds=3,
    )
    assert read == (MESSAGES, ID_SUM)
    assert (queue.depth, queue.unacked) == (0, 0)
