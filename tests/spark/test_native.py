"""Spark's own file source on spools of Parquet segments: each message once, and only what is processed is released."""

from __future__ import annotations

import shutil
import sys
from typing import TYPE_CHECKING

import pytest
from pyspark.errors import StreamingQueryException

import nsqfast.spark
from nsqfast.spark.receiver.releasing import Checkpoint, Releaser
from nsqfast.spark.spool.identity import SpoolError, open_spool
from nsqfast.spark.spool.release import release_names
from nsqfast.spark.spool.segments import ARROW, PARQUET, list_done, list_segments
from support.drain import address_of
from support.segments import CHANNEL, TOPIC, seal
from support.server import start_nsqd
from support.spool import is_empty, metric, publish, receiver_flags, row_count, start_receiver
from support.tools import Tool
from support.waiting import eventually

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession


class Native:
    """A query that writes the messages of a spool to Parquet, and the receiver's side of it."""

    def __init__(self, spark: SparkSession, folder: Path) -> None:
        self.spark = spark
        self.spool, self.output = folder / "spool", folder / "output"
        self.checkpoint = folder / "checkpoint"

    def run(self, **options: object) -> None:
        writer = nsqfast.spark.stream(self.spark, self.spool, **options).writeStream
        query = (
            writer.format("parquet")
            .option("path", str(self.output))
            .option("checkpointLocation", str(self.checkpoint))
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()

    def numbers(self) -> list[int]:
        return numbers_of(self.spark.read.parquet(str(self.output)))

    def processed(self) -> list[str]:
        """The names, as one tells them that has just started."""
        return list_names(Checkpoint(self.checkpoint))

    def release(self, receiver: str = "r0") -> None:
        Releaser(self.spool / receiver, self.checkpoint).run()


def list_names(checkpoint: Checkpoint) -> list[str]:
    return sorted(uri.rpartition("/")[2] for uri in checkpoint.list_new())


def numbers_of(messages: DataFrame) -> list[int]:
    """What `seal` made a message of."""
    rows = messages.selectExpr("CAST(CAST(body AS STRING) AS INT) AS number").collect()
    return sorted(row.number for row in rows)


@pytest.fixture
def native(spark: SparkSession, tmp_path: Path) -> Native:
    return Native(spark, tmp_path)


def test_each_message_once_and_what_is_processed_is_released(native: Native) -> None:
    """Over so many batches that Spark puts its notes together, and over a restart of both."""
    first = seal(native.spool, [10] * 13, segment_format=PARQUET)
    others = seal(native.spool, [5] * 2, "r1", first=130, segment_format=PARQUET)
    checkpoint = Checkpoint(native.checkpoint)
    assert list_names(checkpoint) == []
    native.run(maxFilesPerTrigger=1)
    assert native.numbers() == list(range(140))
    processed = list_names(checkpoint)
    assert processed == sorted(segment.name for segment in [*first, *others])
    assert native.processed() == processed
    native.release()
    assert (list_segments(native.spool / "r0"), list_done(native.spool / "r0")) == ([], first)
    assert list_segments(native.spool / "r1") == others
    more = seal(native.spool, [10] * 3, first=140, segment_format=PARQUET)
    native.run(maxFilesPerTrigger=2)
    assert native.numbers() == list(range(170))
    assert list_names(checkpoint) == [segment.name for segment in more]
    assert len(native.processed()) == 18
    assert list_names(checkpoint) == []


def test_a_store_is_named_by_its_address(spark: SparkSession, tmp_path: Path) -> None:
    """As Spark knows it, so without a look at it; s3a:// would need Hadoop's client."""
    seal(tmp_path / "store", [10, 5], "r0", segment_format=PARQUET)
    seal(tmp_path / "store", [5], "r1", first=15, segment_format=PARQUET)
    store = (tmp_path / "store").as_uri() + "/"
    assert numbers_of(nsqfast.spark.read(spark, store)) == list(range(20))


def test_another_query_in_the_place_of_a_removed_one(native: Native) -> None:
    """Its offsets begin again, and the receiver runs on."""
    releaser = Releaser(native.spool / "r0", native.checkpoint)
    for first in (0, 20):
        seal(native.spool, [10, 10], first=first, segment_format=PARQUET)
        native.run()
        releaser.run()
        assert list_segments(native.spool / "r0") == []
        shutil.rmtree(native.checkpoint)
        shutil.rmtree(native.output)


def test_the_checkpoint_of_another_spool_releases_nothing(
    native: Native, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    seal(native.spool, [10], segment_format=PARQUET)
    native.run()
    other = native.spool.with_name("other")
    shutil.copytree(native.spool, other)
    releaser = Releaser(other / "r0", native.checkpoint)
    for _ in range(2):
        releaser.run()
    assert len(list_segments(other / "r0")) == 1
    assert [one.getMessage() for one in caplog.records if "checkpoint" in one.getMessage()] == [
        f"checkpoint {native.checkpoint} is of a query that reads {native.spool}/r0, so nothing is released"
    ]
    link = tmp_path / "link"
    link.symlink_to(native.spool)
    Releaser(link / "r0", native.checkpoint).run()
    assert list_segments(native.spool / "r0") == []


def test_what_is_not_committed_is_not_released(native: Native) -> None:
    first, second = seal(native.spool, [10, 10], segment_format=PARQUET)
    seen = []

    def take(rows: DataFrame, batch: int) -> None:
        seen.append(batch)
        if len(seen) == 2:
            raise RuntimeError("no")
        rows.write.mode("append").parquet(str(native.output))

    def run() -> None:
        stream = nsqfast.spark.stream(native.spark, native.spool, maxFilesPerTrigger=1)
        writer = stream.writeStream.foreachBatch(take).trigger(availableNow=True)
        writer.option("checkpointLocation", str(native.checkpoint)).start().awaitTermination()

    with pytest.raises(StreamingQueryException):
        run()
    assert native.processed() == [first.name]
    run()
    assert seen == [0, 1, 1]
    assert native.processed() == [first.name, second.name]
    assert native.numbers() == list(range(20))


def test_a_new_spool_in_the_place_of_another(native: Native) -> None:
    """Spark knows files by their names: those of the new one are others, and none of them is taken for processed."""
    (old,) = seal(native.spool, [10], segment_format=PARQUET)
    native.run()
    native.spool.rename(native.spool.with_name("old"))
    (new,) = seal(native.spool, [10], first=10, segment_format=PARQUET)
    assert (old.number, old.row_count) == (new.number, new.row_count)
    assert native.processed() == [old.name]
    native.release()
    assert list_segments(native.spool / "r0") == [new]
    native.run()
    assert native.numbers() == list(range(20))


def test_a_batch_read_takes_what_waits(native: Native) -> None:
    segments = seal(native.spool, [10, 10, 10], segment_format=PARQUET)
    release_names(native.spool / "r0", [segments[1].name, "gone"])
    messages = nsqfast.spark.read(native.spark, native.spool)
    assert numbers_of(messages) == [*range(10), *range(20, 30)]
    row = messages.orderBy("timestamp_ns").first()
    assert row is not None
    assert (row.topic, row.channel, row.id, row.attempts) == (TOPIC, CHANNEL, "0" * 16, 1)
    assert (
        messages.selectExpr("max(unix_micros(timestamp) - timestamp_ns DIV 1000)").first()[0] == 0
    )


def test_the_source_of_python_reads_them_too(native: Native) -> None:
    seal(native.spool, [10, 10], segment_format=PARQUET)
    options = {
        "subscribe": TOPIC,
        "channel": CHANNEL,
        "spoolDir": str(native.spool),
        "receiver": "external",
    }
    messages = native.spark.read.format("nsq").options(**options).load()
    assert numbers_of(messages) == list(range(20))
    assert nsqfast.spark.release(native.spool) == 20
    assert numbers_of(nsqfast.spark.read(native.spark, native.spool)) == []


def test_a_damaged_segment_ends_the_query(native: Native) -> None:
    first, second = seal(native.spool, [10, 10], segment_format=PARQUET)
    data = bytearray(second.path.read_bytes())
    data[data.index(b"0" * 14 + b"0c")] ^= 1
    second.path.write_bytes(data)
    with pytest.raises(StreamingQueryException):
        native.run(maxFilesPerTrigger=1)
    assert native.processed() == [first.name]


def test_what_spark_cannot_read_is_refused(native: Native, tmp_path: Path) -> None:
    with pytest.raises(SpoolError, match=r"is no spool: start nsqfast-nsq-spool --spool=\S+ --seg"):
        nsqfast.spark.stream(native.spark, native.spool)
    seal(native.spool, [10], segment_format=ARROW)
    with pytest.raises(
        SpoolError, match=r'1 segments of \S+r0 are of Arrow, which only format\("n'
    ):
        nsqfast.spark.stream(native.spark, native.spool)
    open_spool(tmp_path / "a[b]", TOPIC, CHANNEL)
    with pytest.raises(SpoolError, match="more than once"):
        nsqfast.spark.read(native.spark, tmp_path / "a[b]")


# -- with a broker


def test_a_receiver_releases_what_the_query_has_processed(native: Native, tmp_path: Path) -> None:
    (tmp_path / "nsqd").mkdir()
    with start_nsqd("nsqfast", tmp_path / "nsqd") as broker:
        publish(address_of(broker), "t", range(1000))
        flags = receiver_flags(
            native.spool, address_of(broker), "--segment-format=parquet",
            f"--checkpoint={native.checkpoint}", "--metrics-address=127.0.0.1:0",
        )  # fmt: skip
        with start_receiver(*flags) as tool:
            eventually(lambda: row_count(native.spool) == 1000 and is_empty(broker))
            native.run()
            eventually(lambda: list_segments(native.spool / "r0") == [])
            eventually(lambda: metric(tool, "live_segments") == 0)
            (native.checkpoint / "commits" / "7").write_text("v1\n{}")
            tool.wait_for(lambda tool: b"cannot be read, so nothing is released" in tool.err)
            assert tool.end() == 0, tool.text
    assert native.numbers() == list(range(1000))


DRIVER = """
import sys
from pyspark.sql import SparkSession
import nsqfast.spark
spool, output, checkpoint = sys.argv[1:]
spark = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false").getOrCreate()
messages = nsqfast.spark.stream(spark, spool, maxFilesPerTrigger=20)
writer = messages.writeStream.format("parquet").option("path", output)
query = writer.option("checkpointLocation", checkpoint).trigger(processingTime="200 milliseconds").start()
query.awaitTermination()
"""
DURABLE = ("--mem-queue-size=0", "--sync-every=1")
PART = 20_000
ROUNDS = 3


@pytest.mark.soak
@pytest.mark.timeout(1500)
def test_everything_is_killed_in_turn(
    native: Native, tmp_path: Path, tell: Callable[[str], object]
) -> None:
    """Receiver, driver and nsqd, each while a part is on its way: every message is in the output once."""
    data = tmp_path / "nsqd"
    data.mkdir()
    broker = start_nsqd("nsqfast", data, *DURABLE)
    address = address_of(broker)
    flags = receiver_flags(
        native.spool, address, "--segment-format=parquet", f"--checkpoint={native.checkpoint}",
        "--msg-timeout=2s", "--retention=1h", "--seal-rows=1000",
    )  # fmt: skip
    words = [
        sys.executable,
        "-c",
        DRIVER,
        *map(str, (native.spool, native.output, native.checkpoint)),
    ]
    open_spool(native.spool, "t", "c")
    receiver, driver = start_receiver(*flags), Tool(words)
    published = 0
    try:
        for _ in range(ROUNDS):
            for victim in ("receiver", "driver", "nsqd"):
                tell(f"{published} published, then the {victim} is killed")
                before = last_batch(native)
                publish(address, "t", range(published, published + PART))
                published += PART
                wait_for_batch(native, before)
                if victim == "receiver":
                    receiver.kill()
                    receiver = start_receiver(*flags)
                elif victim == "driver":
                    driver.kill_all()
                    driver = Tool(words)
                else:
                    broker.kill()
                    broker = start_nsqd("nsqfast", data, *DURABLE, f"--tcp-address={address}")
        eventually(lambda: is_empty(broker), 300)
        assert receiver.end() == 0, receiver.text
    finally:
        driver.kill_all()
        receiver.kill()
        broker.kill()
    native.run()
    found = native.numbers()
    missing = set(range(published)) - set(found)
    assert (len(missing), len(found) - len(set(found))) == (0, 0), "missing, doubled"


def last_batch(native: Native) -> int:
    """Its number: Spark keeps the notes of the last hundred."""
    begun = (native.checkpoint / "offsets").glob("[0-9]*")
    return max((int(path.name) for path in begun), default=-1)


def wait_for_batch(native: Native, after: int) -> None:
    """The first of a new driver takes as long as Spark's start."""
    eventually(lambda: last_batch(native) > after, 300)
