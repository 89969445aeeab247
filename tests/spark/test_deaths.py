"""What is known of dead letters in Spark: a column that is asked for, in the source, its stream, and ingest."""

import pytest

import nsqfast.spark
from nsqfast.spark.native import SCHEMA
from nsqfast.spark.spool.segments import ARROW, PARQUET
from nsqfast.spark_jobs import ingest
from support.dead_letters import make_dead_letters
from support.drain import address_of
from support.server import start_nsqd
from support.spool import publish, receiver_flags, row_count, start_receiver
from support.waiting import eventually

ERROR = "KeyError: 'customer'"
PLAIN = [column.split()[0] for column in SCHEMA.split(", ")]
FORMATS = pytest.mark.parametrize("form", [ARROW, PARQUET])


@pytest.fixture(params=["nsqfast", pytest.param("go", marks=pytest.mark.go)])
def broker(request, tmp_path):
    (tmp_path / "nsqd").mkdir()
    with start_nsqd(request.param, tmp_path / "nsqd") as server:
        yield server


@pytest.fixture
def dead(request, broker):
    """A topic with a dead letter, and a message that is none; for Go's nsqd neither is one."""
    if request.node.callspec.params["broker"] == "nsqfast":
        topic = make_dead_letters(broker, "t", b"1", error=ERROR)
    else:
        topic = "t.c.dead"
        publish(address_of(broker), topic, [1])
    publish(address_of(broker), topic, [2])
    return topic


@pytest.fixture
def check(request):
    """Whether a frame has what is known of both."""

    def compare(frame):
        rows = frame.selectExpr("CAST(body AS STRING) AS body", "death").collect()
        found = {row.body: row.death and row.death.asDict() for row in rows}
        assert found.keys() == {"1", "2"}
        assert found["2"] is None
        if request.node.callspec.params["broker"] == "go":
            assert found["1"] is None
            return
        death = found["1"]
        assert (death["reason"], death["topic"], death["channel"]) == ("failed", "t", "c")
        assert (death["failures"], death["attempts"], death["error"]) == (2, 2, ERROR)
        assert death["client"] == "worker-7"
        assert 0 < death["published"] < death["died"]

    return compare


def options_of(broker, topic, spool):
    return {
        "subscribe": topic,
        "channel": "spark",
        "nsqdTcpAddresses": address_of(broker),
        "spoolDir": str(spool),
    }


def test_a_batch(spark, broker, dead, check, tmp_path):
    reader = spark.read.format("nsq").options(**options_of(broker, dead, tmp_path / "spool"))
    frame = reader.option("deaths", "true").load()
    assert frame.columns == [*PLAIN, "death"]
    check(frame)
    # The same spool again, for somebody who does not want them.
    frame = reader.option("deaths", "false").load()
    assert (frame.columns, frame.count()) == (PLAIN, 2)


@pytest.mark.parametrize("broker", ["nsqfast"], indirect=True)
def test_some_columns_of_a_stream(spark, broker, dead, tmp_path):
    """A schema may name it. What a receiver without --deaths sealed has none."""
    spool = tmp_path / "spool"
    flags = receiver_flags(spool, address_of(broker), "--seal-interval=50ms", topic=dead)
    with start_receiver(*flags) as tool:
        eventually(lambda: row_count(spool) == 2)
        assert tool.end() == 0, tool.text
    make_dead_letters(broker, "t", b"3", error=ERROR)
    with start_receiver(*flags, "--deaths") as tool:
        eventually(lambda: row_count(spool) == 3)
        assert tool.end() == 0, tool.text
    options = {"subscribe": dead, "channel": "c", "spoolDir": str(spool), "receiver": "external"}
    reader = spark.readStream.format("nsq").options(**options, deaths="true")
    death = reader.load().schema["death"].dataType.simpleString()
    query = (
        reader.schema(f"death {death}, body BINARY")
        .load()
        .writeStream.format("parquet")
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .trigger(availableNow=True)
        .start(str(tmp_path / "out"))
    )
    query.awaitTermination()
    rows = spark.read.parquet(str(tmp_path / "out")).collect()
    found = {bytes(row.body): row.death and row.death.error for row in rows}
    assert found == {b"1": None, b"2": None, b"3": ERROR}


@FORMATS
def test_ingest(spark, broker, dead, check, tmp_path, form, quiet_log):
    folder = tmp_path / "out"
    words = [
        f"--topic={dead}", "--channel=archive", f"--nsqd-tcp-address={address_of(broker)}",
        f"--spool={tmp_path}/spool", f"--output={folder}", f"--checkpoint={tmp_path}/check",
        f"--segment-format={form}", "--available-now", "--deaths",
    ]  # fmt: skip
    assert ingest.main(words, spark) == 0
    check(spark.read.parquet(str(folder)))


def test_segments_of_all_kinds_for_spark_itself(spark, broker, dead, check, tmp_path):
    spool = tmp_path / "spool"
    flags = receiver_flags(
        spool, address_of(broker), "--seal-interval=50ms", f"--segment-format={PARQUET}", topic=dead
    )
    with start_receiver(*flags, "--deaths") as tool:
        eventually(lambda: row_count(spool) == 2)
        assert tool.end() == 0, tool.text
    check(nsqfast.spark.read(spark, spool, deaths=True))
    publish(address_of(broker), dead, [3])
    with start_receiver(*flags) as tool:
        eventually(lambda: row_count(spool) == 3)
        assert tool.end() == 0, tool.text
    frame = nsqfast.spark.read(spark, spool, deaths=True)
    check(frame.where("CAST(body AS STRING) <> '3'"))
    assert frame.where("death IS NULL AND CAST(body AS STRING) = '3'").count() == 1
    frame = nsqfast.spark.read(spark, spool)
    assert (frame.columns, frame.count()) == (PLAIN, 3)
