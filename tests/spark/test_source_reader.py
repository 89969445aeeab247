"""The readers, called as Spark's processes do, in this one."""

import json
import os
import pickle
import shutil
import time
from types import SimpleNamespace

import pyarrow as pa
import pytest
from pyspark.sql.datasource import InputPartition
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import StringType, StructType

import nsqfast.spark
from nsqfast.errors import OptionsError
from nsqfast.spark.source import query as query_module
from nsqfast.spark.source.batch import HANDOUTS_MAX, NsqBatchReader, read_handouts
from nsqfast.spark.source.partition import (
    ROWS_MIN,
    SIZE_MIN,
    SpoolPartition,
    merge_small,
    read_partition,
)
from nsqfast.spark.source.stream import HAS_ADMISSION, NsqStreamReader
from nsqfast.spark.spool.identity import QUERY, RECEIVER, Lock, SpoolError
from nsqfast.spark.spool.release import read_released, release_segments
from nsqfast.spark.spool.schema import SCHEMA
from nsqfast.spark.spool.segments import list_done, list_segments
from nsqfast.spark.spool.writer import SegmentWriter
from support.segments import CHANNEL, TOPIC, damage, make_batch, make_spool, seal

try:
    from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxBytes, ReadMaxRows
except ImportError:  # before PySpark 4.2

    def ReadAllAvailable():  # noqa: N802 - in place of the class
        """What is not said."""


needs_admission = pytest.mark.skipif(not HAS_ADMISSION, reason="PySpark 4.2 limits batches")
OURS = from_arrow_schema(SCHEMA)


@pytest.fixture(autouse=True)
def hasty(monkeypatch):
    """A lock that is held is not waited for."""
    monkeypatch.setattr(query_module, "LOCK_TIMEOUT_S", 0.0)


@pytest.fixture
def spool(tmp_path):
    return tmp_path / "spool"


def options(spool, **more):
    given = {"subscribe": TOPIC, "channel": CHANNEL, "spoolDir": str(spool)}
    return given | {"receiver": "external"} | more


@pytest.fixture
def streams(spool):
    """Makes readers as the runner of a query has one, and ends those that it made."""
    made = []

    def make(schema=OURS, **more):
        for reader in made:
            reader.stop()
        reader = pickle.loads(pickle.dumps(NsqStreamReader(options(spool, **more), schema)))
        made.append(reader)
        return reader

    yield make
    for reader in made:
        reader.stop()


def through_checkpoint(offset):
    return json.loads(json.dumps(offset))


def read_ids(reader, partitions):
    """What tasks give, in processes of their own."""
    ids = []
    for partition in partitions:
        reader_of_task, given = pickle.loads(pickle.dumps((reader_of_planner(reader), partition)))
        for batch in reader_of_task.read(given):
            ids += [int(value, 16) for value in batch["id"].to_pylist()]
    return sorted(ids)


def reader_of_planner(reader):
    """Of the same query, and never used in the runner."""
    if isinstance(reader, NsqBatchReader):
        return reader
    planned = NsqStreamReader.__new__(NsqStreamReader)
    planned.__dict__ |= reader.__dict__ | {"_query": None}
    return planned


def take(reader, start, limit=None):
    """One batch: its end, and the messages."""
    if HAS_ADMISSION:
        limit = limit or reader.getDefaultReadLimit()
    end = through_checkpoint(reader.latestOffset(start, limit))
    return end, read_ids(reader, reader.partitions(start or reader.initialOffset(), end))


# -- streams


@needs_admission
def test_batches_follow_one_another(spool, streams):
    seal(spool, [10] * 3)
    reader = streams(maxRowsPerTrigger="20")
    start = through_checkpoint(reader.initialOffset())
    assert start["spools"] == {}
    assert start == reader.initialOffset()
    first, ids = take(reader, start)
    assert ids == list(range(20))
    second, ids = take(reader, first)
    assert ids == list(range(20, 30))
    assert reader.latestOffset(second, reader.getDefaultReadLimit()) == second
    assert reader.partitions(second, second) == []


def test_a_batch_that_comes_again_is_the_same(spool, streams):
    seal(spool, [10] * 3)
    reader = streams()
    start = through_checkpoint(reader.initialOffset())
    end, ids = take(reader, start)
    seal(spool, [10], first=30)
    again = streams()
    assert read_ids(again, again.partitions(again.initialOffset(), end)) == ids
    third, ids = take(again, end)
    assert ids == list(range(30, 40))
    again.commit(end)
    again.commit(end)
    assert read_released(spool / "r0") == 3
    assert [segment.number for segment in list_segments(spool / "r0")] == [4]
    assert [segment.number for segment in list_done(spool / "r0")] == [1, 2, 3]
    # A checkpoint that somebody set back still finds them.
    assert read_ids(again, again.partitions(start, third)) == list(range(30, 40))
    assert read_ids(again, again.partitions(start, end)) == list(range(30))


@needs_admission
def test_spark_says_what_is_taken(spool, streams):
    segments = seal(spool, [10] * 4)
    reader = streams(maxRowsPerTrigger="10", maxBytesPerTrigger="100g")
    assert reader.getDefaultReadLimit() == ReadMaxRows(10)
    start = reader.initialOffset()
    assert take(reader, start, ReadMaxRows(30))[0]["spools"] == {"r0": 3}
    assert take(reader, start, ReadAllAvailable())[0]["spools"] == {"r0": 4}
    reader = streams(maxBytesPerTrigger=str(segments[0].size))
    assert reader.getDefaultReadLimit() == ReadMaxBytes(segments[0].size)
    assert take(reader, start)[0]["spools"] == {"r0": 1}
    assert streams().getDefaultReadLimit() == ReadAllAvailable()


@needs_admission
def test_both_limits_hold(spool, streams):
    size = seal(spool, [10] * 4)[0].size
    reader = streams(maxRowsPerTrigger="1000", maxBytesPerTrigger=str(size))
    assert take(reader, reader.initialOffset())[0]["spools"] == {"r0": 1}


def test_spark_4_0_asks_without_saying_where_it_is(spool, streams):
    seal(spool, [10] * 2)
    seal(spool, [10], "r1")
    release_segments(spool / "r1", 1)
    reader = streams()
    end = through_checkpoint(reader.latestOffset())
    assert end["spools"] == {"r0": 2}
    assert read_ids(reader, reader.partitions(reader.initialOffset(), end)) == list(range(20))


@pytest.mark.skipif(HAS_ADMISSION, reason="PySpark 4.2 limits batches")
def test_limits_that_spark_does_not_know(spool, streams, caplog):
    seal(spool, [10] * 3)
    reader = streams(maxRowsPerTrigger="10")
    assert reader.latestOffset()["spools"] == {"r0": 3}
    assert "need PySpark 4.2 or newer" in caplog.text


@needs_admission
def test_what_waits_is_reported(spool, streams):
    seal(spool, [10] * 3)
    reader = streams(maxRowsPerTrigger="10")
    assert reader.reportLatestOffset() is None
    start = reader.initialOffset()
    reader.latestOffset(start, ReadMaxRows(10))
    segments = list_segments(spool / "r0")
    for segment, hours in zip(segments, (3, 2, 1), strict=True):
        os.utime(segment.path, (0, time.time() - 3600 * hours))
    told = reader.reportLatestOffset()
    assert told["spools"] == {"r0": 3}
    waiting = told["waiting"]
    assert 2 * 3600 <= waiting.pop("age_s") < 3 * 3600
    assert waiting == {"segments": 2, "rows": 20, "bytes": segments[1].size + segments[2].size}


@needs_admission
def test_available_now_ends_where_it_was_prepared(spool, streams):
    seal(spool, [10] * 2)
    reader = streams(maxRowsPerTrigger="10")
    reader.prepareForTriggerAvailableNow()
    seal(spool, [10], first=20)
    seal(spool, [10], "r1", first=30)
    first, _ = take(reader, reader.initialOffset())
    second, ids = take(reader, first)
    assert ids == list(range(10, 20))
    assert take(reader, second) == (second, [])


@needs_admission
def test_a_refused_query_takes_nothing_from_nsqd(spool, streams, monkeypatch):
    """The checkpoint is that of another spool."""
    seal(spool, [10])
    start = through_checkpoint(streams().initialOffset())
    shutil.rmtree(spool)
    seal(spool, [10])
    taken = []
    receiver = SimpleNamespace(
        start=lambda: taken.append("started"), drain=lambda: taken.append("drained"), stop=int
    )
    monkeypatch.setattr(query_module, "_make_receiver", lambda _options: receiver)
    for is_now in (True, False):
        reader = streams()
        if is_now:
            reader.prepareForTriggerAvailableNow()
        with pytest.raises(SpoolError, match="not the one of the checkpoint"):
            reader.latestOffset(start, ReadAllAvailable())
    assert taken == []
    reader = streams()
    reader.prepareForTriggerAvailableNow()
    reader.latestOffset(reader.initialOffset(), ReadAllAvailable())
    assert taken == ["drained"]


def test_an_external_receiver_that_does_not_run_is_named(spool, streams, monkeypatch, caplog):
    seal(spool, [10])
    now = [1000.0]
    monkeypatch.setattr(query_module.time, "monotonic", lambda: now[0])
    reader = streams()
    start = reader.initialOffset()

    def look(seconds):
        now[0] += seconds
        caplog.clear()
        reader.latestOffset(start, ReadAllAvailable())
        return f"no receiver writes to {spool}" in caplog.text

    assert [look(seconds) for seconds in (4, 2, 100)] == [False, True, False]
    lock = Lock.take(spool / "r0" / RECEIVER, "it")
    assert not look(100)
    lock.release()
    assert [look(seconds) for seconds in (4, 2, 100)] == [False, True, False]


def test_tasks_as_many_as_asked_for(spool, streams):
    seal(spool, [10] * 7)
    reader = streams(numPartitions="3")
    start = reader.initialOffset()
    partitions = reader.partitions(start, reader.latestOffset(start, ReadAllAvailable()))
    assert [len(list(each.segments())) for each in partitions] == [3, 2, 2]
    assert repr(partitions[0]) == f"SpoolPartition({spool}: 3 segments)"


def test_released_segments_go_in_time(spool, streams, monkeypatch):
    seal(spool, [10] * 3)
    reader = streams(retention="0s")
    end = reader.latestOffset(reader.initialOffset(), ReadAllAvailable())
    monkeypatch.setattr(query_module, "REMOVE_INTERVAL_S", 0.0)
    reader.commit(end)
    # The last one's number is not to be used again.
    assert [segment.number for segment in list_done(spool / "r0")] == [3]


# -- what does not fit


def test_a_runner_says_what_is_wrong_with_options(spool):
    """Spark's runner loses what is raised when the reader is made."""
    reader = NsqStreamReader(options(spool, chanel="x"), OURS)
    for call in (reader.initialOffset, reader.getDefaultReadLimit, reader.latestOffset):
        with pytest.raises(OptionsError, match="chanel: unknown option"):
            call()
    reader = NsqStreamReader(options(spool), StructType().add("body", StringType()))
    with pytest.raises(OptionsError, match="does not fit"):
        reader.initialOffset()
    reader.stop()


def test_one_query_for_a_spool(spool, streams):
    make_spool(spool)
    lock = Lock.take(spool / QUERY, "")
    with pytest.raises(SpoolError, match=f"spool {spool} is read by another query .process "):
        streams().initialOffset()
    lock.release()
    streams().initialOffset()


def test_a_spool_of_another_subscription(spool, streams):
    make_spool(spool)
    with pytest.raises(SpoolError, match="holds orders of channel spark, not users of channel"):
        streams(subscribe="users").initialOffset()


def test_a_checkpoint_of_another_subscription(tmp_path, spool, streams):
    make_spool(spool)
    offset = streams().initialOffset()
    shutil.rmtree(spool)
    reader = streams(subscribe="users")
    for call in (
        lambda: reader.latestOffset(offset, ReadAllAvailable()),
        lambda: reader.commit(offset),
        lambda: reader.partitions(offset | {"spools": {"r0": 1}}, offset),
    ):
        with pytest.raises(SpoolError, match="the checkpoint is of orders of channel spark, not"):
            call()
    assert not spool.exists()


def test_a_spool_that_is_not_the_checkpoints(spool, streams, caplog):
    seal(spool, [10] * 2)
    reader = streams()
    start, _ = take(reader, reader.initialOffset())
    shutil.rmtree(spool)
    for found in ("there is none", "that one has epoch"):
        with pytest.raises(SpoolError, match="is not the one of the checkpoint") as caught:
            streams().latestOffset(start, ReadAllAvailable())
        assert found in str(caught.value)
        assert "with failOnDataLoss=false the query begins with what is there" in str(caught.value)
        make_spool(spool)
    reader = streams(failOnDataLoss="false")
    # Nothing is there yet: it does not move, and a batch that was planned has nothing.
    assert reader.latestOffset(start, ReadAllAvailable()) == start
    assert reader.partitions(reader.initialOffset(), start) == []
    seal(spool, [10], first=20)
    end, ids = take(reader, start)
    assert ids == list(range(20, 30))
    reader.commit(start)
    assert read_released(spool / "r0") == 0
    reader.commit(end)
    assert read_released(spool / "r0") == 1
    assert caplog.text.count("is not the one of the checkpoint") == 1


def test_spark_4_0_hears_late_that_a_spool_is_not_the_checkpoints(spool, streams):
    seal(spool, [10] * 2)
    start, _ = take(streams(), None)
    shutil.rmtree(spool)
    seal(spool, [10], first=20)
    strict = streams()
    end = strict.latestOffset()
    with pytest.raises(SpoolError, match="is not the one of the checkpoint"):
        strict.partitions(start, end)
    lenient = streams(failOnDataLoss="false")
    assert read_ids(lenient, lenient.partitions(start, end)) == list(range(20, 30))


def test_a_spool_that_is_replaced_while_it_is_read(spool, streams):
    seal(spool, [10] * 2)
    strict = streams()
    start, _ = take(strict, strict.initialOffset())
    spool.rename(spool.with_name("old"))
    seal(spool, [10], first=20)
    with pytest.raises(SpoolError, match="was deleted or replaced while this query read it"):
        strict.latestOffset(start, ReadAllAvailable())
    reader = streams(failOnDataLoss="false")
    before, ids = take(reader, reader.initialOffset())
    assert ids == list(range(20, 30))
    shutil.rmtree(spool)
    assert reader.latestOffset(before, ReadAllAvailable()) == before
    seal(spool, [10], first=30)
    assert take(reader, before)[1] == list(range(30, 40))


def test_a_spool_that_cannot_be_made(tmp_path, streams):
    (tmp_path / "spool").write_text("a file")
    with pytest.raises(SpoolError, match=f"spool {tmp_path}/spool: "):
        streams().initialOffset()


# -- tasks


def test_columns_of_the_users(spool, streams):
    seal(spool, [3])
    reader = streams(from_arrow_schema(pa.schema([SCHEMA.field("body"), SCHEMA.field("id")])))
    start = reader.initialOffset()
    (partition,) = reader.partitions(start, reader.latestOffset(start, ReadAllAvailable()))
    (batch,) = reader.read(partition)
    assert batch.schema.names == ["body", "id"]
    assert batch["body"].to_pylist() == [b"0", b"1", b"2"]


def test_a_damaged_segment_is_named_and_the_rest_read(spool, streams, caplog):
    segments = seal(spool, [10] * 3)
    damage(segments[1])
    strict = streams()
    start = strict.initialOffset()
    (partition,) = strict.partitions(start, strict.latestOffset(start, ReadAllAvailable()))
    with pytest.raises(
        SpoolError, match=f"segment {segments[1].path} is damaged at byte"
    ) as caught:
        list(strict.read(partition))
    assert "10 messages (rows 0 to 9) cannot be read; with failOnDataLoss=false the rest" in str(
        caught.value
    )
    lenient = streams(failOnDataLoss="false")
    assert take(lenient, start)[1] == [*range(10), *range(20, 30)]
    assert f"segment {segments[1].path} is damaged" in caplog.text


def test_nothing_but_damage_has_the_schema_all_the_same(spool):
    segments = seal(spool, [10])
    damage(segments[0])
    (batch,) = read_partition(SpoolPartition(spool, segments, is_strict=False), SCHEMA)
    assert batch.schema.equals(SCHEMA)
    assert batch.num_rows == 0


def test_a_machine_without_the_spool(tmp_path, spool):
    segments = seal(spool, [10])
    for is_strict in (True, False):
        partition = SpoolPartition(tmp_path / "elsewhere", segments, is_strict=is_strict)
        with pytest.raises(SpoolError, match="every executor needs the folder under this path"):
            list(read_partition(partition, SCHEMA))


def test_small_batches_are_merged_and_large_ones_are_not_copied():
    small = [make_batch(number, 1) for number in range(3 * ROWS_MIN // 2)]
    large = make_batch(10_000, ROWS_MIN)
    heavy = make_batch(20_000, 2, SIZE_MIN)
    given = [*small, large, *small[:3], heavy, small[0]]
    merged = list(merge_small(given))
    assert [batch.num_rows for batch in merged] == [ROWS_MIN, ROWS_MIN // 2, ROWS_MIN, 3, 2, 1]
    assert pa.Table.from_batches(merged).equals(pa.Table.from_batches(given).combine_chunks())
    for batch in (large, heavy):
        assert any(batch is found for found in merged)
    assert list(merge_small([make_batch(0, 0)])) == []


def test_batches_of_many_rows_in_one_segment(spool):
    make_spool(spool)
    writer = SegmentWriter.open(spool, "r0")
    segment = writer.seal([make_batch(number * 7, 7) for number in range(100)])
    writer.close()
    (batch,) = read_partition(SpoolPartition(spool, [segment], is_strict=True), SCHEMA)
    assert batch.num_rows == 700


# -- batches


def batch_reader(spool, load="one", **more):
    return NsqBatchReader(options(spool, **more), OURS, load)


def test_what_was_read_comes_again_until_it_is_released(spool):
    seal(spool, [10] * 2)
    reader = batch_reader(spool)
    assert read_ids(reader, reader.partitions()) == list(range(20))
    seal(spool, [10], first=20)
    # One load() has the same messages, however often it is planned.
    assert read_ids(reader, batch_reader(spool).partitions()) == list(range(20))
    assert nsqfast.spark.release(spool) == 20
    assert nsqfast.spark.release(str(spool)) == 0
    assert read_released(spool / "r0") == 2
    following = batch_reader(spool, "two")
    assert read_ids(following, following.partitions()) == list(range(20, 30))
    # Spark 4.0 plans anew for each action, also when others were planned since.
    assert read_ids(reader, reader.partitions()) == list(range(20))
    assert [handout.load for handout in read_handouts(spool)] == ["one", "two"]
    assert nsqfast.spark.release(spool) == 10


def test_only_so_many_batch_reads_are_remembered(spool):
    for number in range(HANDOUTS_MAX + 3):
        batch_reader(spool, f"load {number}").partitions()
    loads = [handout.load for handout in read_handouts(spool)]
    assert loads == [f"load {number}" for number in range(3, HANDOUTS_MAX + 3)]


def test_a_plan_of_before_finds_what_was_released(spool):
    seal(spool, [10] * 2)
    reader = batch_reader(spool)
    partitions = reader.partitions()
    assert nsqfast.spark.release(spool) == 20
    assert read_ids(reader, partitions) == list(range(20))


def test_nothing_waits(spool):
    reader = batch_reader(spool)
    assert reader.partitions() == []
    # Spark makes a partition where there is none.
    (batch,) = reader.read(InputPartition(None))
    assert (batch.num_rows, batch.schema) == (0, SCHEMA)
    assert nsqfast.spark.release(spool) == 0


def test_a_stream_and_a_batch_exclude_each_other(spool, streams):
    seal(spool, [10])
    stream = streams()
    stream.initialOffset()
    for call in (batch_reader(spool).partitions, lambda: nsqfast.spark.release(spool)):
        with pytest.raises(SpoolError, match="is read by another query"):
            call()
    stream.stop()
    batch_reader(spool).partitions()
    streams().initialOffset()


def test_release_without_a_spool(tmp_path, spool):
    with pytest.raises(SpoolError, match=f"there is no spool in {tmp_path}"):
        nsqfast.spark.release(tmp_path)
    seal(spool, [10])
    assert nsqfast.spark.release(spool) == 0


@pytest.mark.parametrize(
    "content",
    ["", "{}", "[]", '{"version": 1}', '{"version": 1, "handouts": [{}]}', '{"version": 2}'],
)
def test_a_note_of_the_last_batch_that_cannot_be_read(spool, content):
    seal(spool, [10])
    (spool / "BATCH.json").write_text(content)
    with pytest.raises(SpoolError, match="BATCH.json .*remove it"):
        batch_reader(spool).partitions()


def test_a_note_of_a_spool_that_was_replaced(spool):
    seal(spool, [10] * 2)
    batch_reader(spool).partitions()
    (spool / "SPOOL.json").unlink()
    make_spool(spool)
    assert nsqfast.spark.release(spool) == 0
    assert read_released(spool / "r0") == 0
