"""format("nsq") for reading, with Spark's own processes."""

import json
import os

import pytest

import nsqfast.spark
from nsqfast.spark.source.stream import HAS_ADMISSION
from nsqfast.spark.spool.release import read_released
from nsqfast.spark.spool.segments import list_segments
from support.segments import FIRST_NS, seal
from support.source import Source


@pytest.fixture
def source(spark, tmp_path):
    found = Source(spark, tmp_path)
    yield found
    found.close()


def inputs(query):
    """Rows of each batch that had some."""
    return [
        progress["numInputRows"] for progress in query.recentProgress if progress["numInputRows"]
    ]


def catch_up(source, **options):
    """Before PySpark 4.2 availableNow is one batch, also if that is one that has to be repeated."""
    for _ in range(1 if HAS_ADMISSION else 2):
        source.run(**options)


# -- what is in a spool


@pytest.mark.skipif(not HAS_ADMISSION, reason="PySpark 4.2 limits batches")
def test_batches_of_whole_segments_and_the_lag(source):
    seal(source.spool, [100] * 6)
    query = source.run(maxRowsPerTrigger="250")
    assert source.bodies() == list(range(600))
    assert inputs(query) == [200, 200, 200]
    told = [json.loads(p["sources"][0]["latestOffset"]) for p in query.recentProgress]
    assert told[0]["spools"] == {"r0": 6}
    assert [each["waiting"]["rows"] for each in told[:3]] == [400, 200, 0]


def test_a_query_goes_on_where_its_checkpoint_is(source):
    seal(source.spool, [50] * 3)
    source.run()
    seal(source.spool, [50] * 2, first=150)
    seal(source.spool, [50], "r1", first=250)
    source.run()
    assert source.bodies() == list(range(300))
    # The first batch was released when the second one came.
    assert read_released(source.spool / "r0") == 3
    assert [segment.number for segment in list_segments(source.spool / "r0")] == [4, 5]


def test_a_relative_spool_is_of_the_folder_in_which_spark_was_started(
    source, monkeypatch, tmp_path
):
    """Every process that parses the option has that folder, whichever this one is in."""
    seal(source.spool, [50] * 2)
    begun = source.spark._jvm.java.lang.System.getProperty("user.dir")
    monkeypatch.chdir(tmp_path)
    source.run(spoolDir=os.path.relpath(source.spool, begun))
    assert source.bodies() == list(range(100))


@pytest.mark.soak
def test_a_batch_that_was_not_committed_comes_again_as_it_was(source):
    seal(source.spool, [50] * 3)
    source.run()
    seal(source.spool, [50] * 2, first=150)
    # As if the driver had died between the sink's write and the note that the batch is done.
    for name in ("0", ".0.crc"):
        (source.checkpoint / "commits" / name).unlink()
    before, source.batches = source.batches, {}
    catch_up(source)
    assert source.batches[0] == before[0]
    assert source.bodies() == list(range(250))
    first = (source.checkpoint / "offsets" / "0").read_text().splitlines()[-1]
    assert json.loads(first)["spools"] == {"r0": 3}


# -- trouble


@pytest.mark.soak
def test_a_second_query_of_a_spool_is_refused(source):
    seal(source.spool, [10])
    first = source.start()
    first.processAllAvailable()
    text = source.failure(source.load().writeStream.format("noop").start())
    assert f"SpoolError: spool {source.spool} is read by another query (process " in text
    assert "Traceback" not in text
    first.stop()
    # It is free from then on, though Spark did not wait for the end of the first one's process.
    source.run()


def test_options_are_found_wrong_when_the_source_is_loaded(source):
    with pytest.raises(Exception, match="nsq source: ") as caught:
        source.load(chanel="x", numPartitions="0")
    first = str(caught.value).splitlines()[0]
    assert "chanel: unknown option, did you mean channel?" in first
    assert "numPartitions: '0' is not a number from 1 on" in first


def test_options_are_found_wrong_when_a_query_begins(source):
    """Whoever names the columns is not asked for them by load()."""
    load = source.spark.readStream.format("nsq").schema("body string")
    query = load.option("chanel", "x").load().writeStream.format("noop").start()
    first = source.failure(query).splitlines()[0]
    assert "OptionsError: nsq source: chanel: unknown option, did you mean channel?" in first


@pytest.mark.soak
def test_a_spool_that_is_deleted_while_it_is_read(source):
    seal(source.spool, [10] * 2)
    query = source.start()
    query.processAllAvailable()
    source.spool.rename(source.spool.with_name("old"))
    first = source.failure(query).splitlines()[0]
    assert f"spool {source.spool} was deleted or replaced while this query read it" in first
    first = source.failure(source.start()).splitlines()[0]
    assert f"spool {source.spool} is not the one of the checkpoint" in first
    seal(source.spool, [10], first=20)
    catch_up(source, failOnDataLoss="false")
    assert source.bodies() == list(range(30))


# -- batches


def test_a_batch_read_and_its_release(source):
    seal(source.spool, [10] * 2)
    frame = source.read()
    assert frame.count() == 20
    # As after a job that failed.
    assert source.read().agg({"timestamp_ns": "min"}).first()[0] == FIRST_NS
    assert nsqfast.spark.release(source.spool) == 20
    assert frame.where("attempts = 1").count() == 20
    seal(source.spool, [5], first=20)
    assert source.read().count() == 5
