"""--store: segments go to a bucket, and messages are finished once they are there."""

import random
import re
import signal

import pytest
from pyarrow import fs

from nsqfast.spark.spool.segments import PARQUET, Segment
from nsqfast.spark.spool.store import Store
from nsqfast.spark.spool.writer import SegmentWriter
from support.bucket import KEYS, NO_MINIO, Bucket, GoogleBucket, MinioBucket, find_minio
from support.drain import address_of
from support.seeds import seeds
from support.server import start_nsqd
from support.spool import (
    channel_state,
    is_empty,
    make_rows,
    metric,
    publish,
    receiver_flags,
    row_count,
    run_receiver,
    segments,
    start_killed_at,
    start_receiver,
)
from support.waiting import eventually

pytestmark = pytest.mark.slow

COUNT = 20_000
KILLS = 12
NATIVE = f"--segment-format={PARQUET}"
SOON = "--msg-timeout=1s"


@pytest.fixture(params=[Bucket, GoogleBucket], ids=["s3", "gs"])
def bucket(request):
    with request.param() as bucket:
        yield bucket


@pytest.fixture
def flags(ours, topic, folder, bucket):
    """Of a receiver that stores, and of nsqd, where COUNT messages wait for it."""
    address = address_of(ours)
    publish(address, topic, range(COUNT))
    return receiver_flags(folder, address, f"--store={bucket.url}", NATIVE, SOON, topic=topic)


def check_all(bucket, count=COUNT):
    """Each of them is there once, whole, under the name that says so."""
    found = sorted(map(int, bucket.read().column("body").to_pylist()))
    assert found == list(range(count))
    for name, size in bucket.files().items():
        assert int(re.search(r"-b(\d+)-", name)[1]) == size


def test_each_message_is_there_once_it_is_finished(ours, topic, folder, bucket, flags):
    bucket.make()
    with start_receiver(*flags, **KEYS) as tool:
        eventually(lambda: is_empty(ours, topic))
        check_all(bucket)
        assert tool.end() == 0, tool.text
    # Kept here to recognize what comes again; nothing waits for Spark.
    assert segments(folder, with_done=False) == []
    assert row_count(folder) == COUNT
    assert all(name.startswith("lake/orders/r0/") for name in bucket.files())


def test_a_bucket_that_is_not_there_is_waited_for(ours, topic, bucket, flags):
    """Messages come again meanwhile, and are recognized: none of them is finished for being on this disk."""
    with start_receiver(*flags, "--metrics-address=127.0.0.1:0", **KEYS) as tool:
        tool.wait_for(lambda tool: b"taking nothing more: a segment cannot be written" in tool.err)
        eventually(lambda: metric(tool, "requeued_total") > 0)
        state = channel_state(ours, topic)
        names = ("depth", "in_flight_count", "deferred_count")
        assert sum(state[name] for name in names) == COUNT
        bucket.make()
        eventually(lambda: is_empty(ours, topic))
        assert tool.end() == 0, tool.text
    assert "there is room again" in tool.text
    check_all(bucket)


def test_a_segment_that_is_gone_replaces_nothing(tmp_path):
    """What a killed receiver left is stored by two threads; one may have it moved before the other reads it."""
    segment = Segment(tmp_path / "spool", 1, 1, 5, "-00000000.parquet")
    segment.done_path.parent.mkdir(parents=True)
    segment.done_path.write_bytes(b"whole")
    lake = tmp_path / "lake"
    lake.mkdir()
    store = Store(fs.LocalFileSystem(), str(lake))
    store.put(segment)
    segment.done_path.unlink()
    with pytest.raises(FileNotFoundError):
        store.put(segment)
    assert (lake / segment.name).read_bytes() == b"whole"


@pytest.mark.soak
@pytest.mark.parametrize("bucket", [Bucket], indirect=True, ids=["s3"])
def test_a_bucket_that_stands_still_answers_twice(ours, topic, bucket, flags):
    """What was sent in vain, and again, arrives in the end as often as it was sent. Google's client waits longer."""
    bucket.make()
    with start_receiver(*flags, "--metrics-address=127.0.0.1:0", **KEYS) as tool:
        bucket.server.process.send_signal(signal.SIGSTOP)
        eventually(lambda: metric(tool, "seal_failures_total") > 0, 50)
        bucket.server.process.send_signal(signal.SIGCONT)
        eventually(lambda: is_empty(ours, topic), 50)
        assert tool.end() == 0, tool.text
    check_all(bucket)


@pytest.mark.soak
@pytest.mark.parametrize("point", ["before it is stored", "after it is stored", "before FIN"])
def test_killed_at_a_point_of_storing(ours, topic, folder, bucket, flags, point):
    bucket.make()
    few = f"--max-in-flight={COUNT // 4}"  # two segments have at most half of the messages
    with start_killed_at(point, 2, *flags, few, **KEYS) as tool:
        assert tool.end(None) == -signal.SIGKILL, tool.text
    assert 0 < row_count(folder) < COUNT
    with start_receiver(*flags, **KEYS) as tool:
        # What the killed one left is stored, too.
        eventually(lambda: is_empty(ours, topic) and not segments(folder, with_done=False))
        assert tool.end() == 0, tool.text
    check_all(bucket)


@pytest.mark.soak
@pytest.mark.timeout(900)
@pytest.mark.parametrize("seed", seeds("killed around a bucket", 5))
@pytest.mark.skipif(find_minio() is None, reason=NO_MINIO)
def test_everything_is_killed_in_turn(topic, folder, tmp_path, seed):
    """Receiver, nsqd and bucket, each while messages are on their way."""
    lottery = random.Random(seed)
    durable = ("--mem-queue-size=0", "--sync-every=1")
    data = tmp_path / "nsqd"
    data.mkdir()
    broker = start_nsqd("nsqfast", data, *durable)
    address = address_of(broker)
    with MinioBucket(tmp_path / "minio") as bucket:
        bucket.make()
        more = f"--store={bucket.url}", NATIVE, SOON, "--seal-rows=1000"
        flags = receiver_flags(folder, address, *more, topic=topic)
        receiver = start_receiver(*flags, **KEYS)
        try:
            for part in range(KILLS):
                publish(address, topic, range(part * COUNT, (part + 1) * COUNT))
                goal = row_count(folder) + lottery.randrange(1, COUNT // 2)
                eventually(lambda goal=goal: row_count(folder) >= goal, 60)
                if part % 3 == 0:
                    receiver.kill()
                    receiver = start_receiver(*flags, **KEYS)
                elif part % 3 == 1:
                    broker.kill()
                    broker = start_nsqd("nsqfast", data, *durable, f"--tcp-address={address}")
                else:
                    bucket.server.kill()
                    bucket.start()
            eventually(lambda: is_empty(broker, topic), 120)
            assert receiver.end() == 0, receiver.text
            check_all(bucket, KILLS * COUNT)
        finally:
            receiver.kill()
            broker.kill()


def test_what_an_earlier_one_left_is_stored_without_a_message(spool, ours, topic, bucket):
    writer = SegmentWriter.open(spool, "r0", PARQUET)
    writer.seal([make_rows(range(100))])
    writer.close()
    bucket.make()
    more = f"--store={bucket.url}", NATIVE
    with start_receiver(*receiver_flags(spool, address_of(ours), *more), **KEYS) as tool:
        eventually(lambda: bucket.files() and not segments(spool, with_done=False))
        assert tool.end() == 0, tool.text
    assert bucket.read().num_rows == 100


@pytest.mark.parametrize(
    ("more", "said"),
    [
        (("--store=/mnt/lake", NATIVE), "is a bucket and a folder, s3://BUCKET/FOLDER"),
        (("--store=file:///mnt/lake", NATIVE), "--spool is enough"),
        (("--store=s3://", NATIVE), "is a bucket and a folder"),
        (("--store=https://key:word@lake/x", NATIVE), "is a bucket and a folder"),
        (("--store=s3://key:word@lake/x", NATIVE), "but no secrets"),
        (("--store=gs://anonymous:word@lake/x", NATIVE), "but no secrets"),
        (("--store=s3://anonymous@lake/x", NATIVE), "but no secrets"),
        (("--store=gs://lake/x?region=eu", NATIVE), "GOOGLE_APPLICATION_CREDENTIALS"),
        (("--store=s3://lake/x?secret_key=word", NATIVE), "but no secrets"),
        (("--store=s3://lake/x?region=a&scheme=ftp", NATIVE), "scheme"),
        (("--store=s3://lake/x",), "--store needs --segment-format=parquet"),
        (("--store=s3://lake/x", "--checkpoint=/x", NATIVE), "set Spark's cleanSource"),
    ],
)
def test_what_is_no_store_is_refused_in_one_line(folder, more, said):
    status, text = run_receiver(*receiver_flags(folder, "127.0.0.1:1", *more))
    assert status == 1
    assert said in text
    assert "word" not in text
    assert len(text.strip().splitlines()) <= 2
