"""df.write and df.writeStream with format("nsq"), in a real session with real brokers."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from support.commands import run_command
from support.drain import address_of, drain, drain_until_still, message_count
from support.server import start_nsqd
from support.web import topic_stats

ROOT = Path(__file__).resolve().parents[2]
STREAM_SECONDS_MAX = 60


def number_rows(spark, count, partitions=2):
    """Bodies of the numbers below `count`."""
    return spark.range(count, numPartitions=partitions).selectExpr("cast(id as string) as body")


def write(frame, **options):
    frame.write.format("nsq").mode("append").options(**options).save()


def numbers(bodies):
    return sorted(map(int, bodies))


def write_stream(frame, folder, source="nsq", **options):
    """All that is there now; raises what ended the query."""
    options["checkpointLocation"] = str(folder / "checkpoint")
    writer = frame.writeStream.format(source).options(**options).trigger(availableNow=True)
    query = writer.start()
    try:
        assert query.awaitTermination(STREAM_SECONDS_MAX)
    finally:
        query.stop()
    return query


def text_stream(spark, folder, count):
    """A stream of two files with the numbers below `count`."""
    (folder / "in").mkdir()
    for part in range(2):
        lines = "".join(f"{number}\n" for number in range(part, count, 2))
        (folder / "in" / f"{part}.txt").write_text(lines)
    reader = spark.readStream.format("text").option("maxFilesPerTrigger", 1)
    return reader.load(str(folder / "in")).withColumnRenamed("value", "body")


def recording_source(record, **trouble):
    """A source "nsq_recorded" that writes down, in the folder `record`, what `commit` and `abort` are told.

    fail_once: "raise" or "kill", in the first attempt of partition 1, after all of it was published.
    row_writer: as with PySpark 4.0, which has no other for streams.
    """
    from nsqfast.spark.datasource import NsqDataSource
    from nsqfast.spark.sink.writer import NsqBatchWriter, NsqStreamRowWriter

    fail_once = trouble.get("fail_once")

    class Recording:
        def note(self, event, messages, batch=None):
            told = [
                message and [message.partition, message.attempt, message.counts.rows]
                for message in messages
            ]
            retried = sum(message.counts.retried_rows for message in messages if message)
            with Path(record, event).open("a") as file:
                file.write(json.dumps({"told": told, "retried": retried, "batch": batch}) + "\n")

    class BatchWriter(Recording, NsqBatchWriter):
        def write(self, iterator):
            import signal

            from pyspark import TaskContext

            message = super().write(iterator)
            if message.partition == 1 and TaskContext.get().attemptNumber() == 0:
                if fail_once == "raise":
                    raise RuntimeError("as asked for")
                if fail_once == "kill":
                    os.kill(os.getpid(), signal.SIGKILL)
            return message

        def commit(self, messages):
            self.note("commit", messages)

        def abort(self, messages):
            super().abort(messages)
            self.note("abort", messages)

    class StreamWriter(Recording, NsqStreamRowWriter):
        def commit(self, messages, batchId):  # noqa: N803
            self.note("commit", messages, batchId)

    class Source(NsqDataSource):
        @classmethod
        def name(cls):
            return "nsq_recorded"

        def writer(self, schema, overwrite):
            return BatchWriter(self.options, schema, overwrite)

        def streamWriter(self, schema, overwrite):  # noqa: N802
            return StreamWriter(self.options, schema, overwrite)

    return Source


@pytest.fixture(scope="module")
def one_broker(tmp_path_factory):
    """For what happens before nsqd is asked, or whatever it answers."""
    with start_nsqd("nsqfast", tmp_path_factory.mktemp("one")) as server:
        yield server


def read_events(folder, event):
    return [json.loads(line) for line in (folder / event).read_text().splitlines()]


# -- batches


def test_a_frame_is_published(spark, broker, topic):
    write(number_rows(spark, 25_000), nsqdTcpAddresses=address_of(broker), topic=topic)
    assert numbers(drain(broker, topic)) == list(range(25_000))


def test_columns_for_topic_and_delay(spark, broker, topic):
    hour_ms = 3_600_000
    frame = spark.range(900, numPartitions=2).selectExpr(
        "cast(cast(id as string) as binary) as body",
        f"case when id % 3 = 0 then '{topic}.a' end as topic",
        f"cast(case when id % 2 = 0 then {hour_ms} end as int) as defer_ms",
    )
    write(frame, nsqdTcpAddresses=address_of(broker), topic=topic)
    for name, wanted in [
        (f"{topic}.a", [number for number in range(900) if number % 3 == 0]),
        (topic, [number for number in range(900) if number % 3]),
    ]:
        now = [number for number in wanted if number % 2]
        assert numbers(drain_until_still(broker, name)) == now
        channel = topic_stats(broker.http, name)["channels"]["drain"]
        assert channel["deferred_count"] == len(wanted) - len(now)


def test_an_empty_frame(spark, one_broker, topic):
    write(number_rows(spark, 0), nsqdTcpAddresses=address_of(one_broker), topic=topic)
    assert message_count(one_broker, topic) == 0


@pytest.mark.parametrize("trouble", ["raise", "kill"])
def test_a_task_that_is_tried_again_publishes_its_rows_twice_and_says_so(
    spark, one_broker, topic, tmp_path, trouble
):
    spark.dataSource.register(recording_source(str(tmp_path), fail_once=trouble))
    frame = number_rows(spark, 3000, partitions=3)
    frame.write.format("nsq_recorded").mode("append").options(
        nsqdTcpAddresses=address_of(one_broker), topic=topic
    ).save()
    (event,) = read_events(tmp_path, "commit")
    assert sorted(event["told"]) == [[0, 0, 1000], [1, 1, 1000], [2, 0, 1000]]
    assert event["retried"] == 1000
    assert numbers(drain(one_broker, topic)) == sorted([*range(3000), *range(1000, 2000)])


@pytest.mark.parametrize(
    ("columns", "options", "words"),
    [
        ("id", {}, "column id cannot be published: a row is body (string or binary)"),
        ("id as body", {}, "column body is bigint, not string or binary"),
        ("'x' as body", {"window": "none"}, "option window: 'none' is no whole number"),
        ("'x' as body", {"topic": ""}, "option topic: '' is no name of a topic"),
    ],
)
def test_what_is_wrong_is_said_before_a_task_runs(
    spark, one_broker, topic, columns, options, words
):
    frame = spark.range(10).selectExpr(columns)
    given = {"nsqdTcpAddresses": address_of(one_broker), "topic": topic, **options}
    with pytest.raises(Exception) as caught:
        write(frame, **given)
    assert f"OptionsError: {words}" in str(caught.value)
    assert "Traceback" not in str(caught.value)
    assert message_count(one_broker, topic) == 0


def test_a_row_that_nsqd_would_refuse_ends_the_job(spark, one_broker, topic, tmp_path):
    spark.dataSource.register(recording_source(str(tmp_path)))
    frame = number_rows(spark, 2000).selectExpr("if(body = '1500', '', body) as body")
    writer = frame.write.format("nsq_recorded").mode("append")
    with pytest.raises(Exception) as caught:
        writer.options(nsqdTcpAddresses=address_of(one_broker), topic=topic).save()
    assert "RowError: row 500 of the partition: the body is empty" in str(caught.value)
    assert "Traceback" not in str(caught.value)
    # The other partition was published, or was ended by this one's failure.
    (event,) = read_events(tmp_path, "abort")
    assert event["told"][1] is None
    assert all(number < 1000 for number in numbers(drain(one_broker, topic)))


@pytest.mark.soak
def test_workers_keep_their_connections(spark, tmp_path, topic):
    """Two workers, several jobs of several tasks."""
    with start_nsqd("nsqfast", tmp_path) as server:
        for _ in range(3):
            write(number_rows(spark, 4000, 4), nsqdTcpAddresses=address_of(server), topic=topic)
        assert message_count(server, topic) == 12_000
        connections = sum("TCP: new client" in line for line in server.lines)
        # Spark starts another worker now and then: as many as there are tasks would be 12.
        assert 1 <= connections <= 4


# -- streams


def test_a_stream_is_published(spark, broker, topic, tmp_path):
    query = write_stream(
        text_stream(spark, tmp_path, 2000),
        tmp_path,
        nsqdTcpAddresses=address_of(broker),
        topic=topic,
    )
    assert sum(progress["numInputRows"] for progress in query.recentProgress) == 2000
    assert numbers(drain(broker, topic)) == list(range(2000))


def test_a_stream_of_rows_as_with_pyspark_4_0(spark, one_broker, topic, tmp_path):
    spark.dataSource.register(recording_source(str(tmp_path)))
    frame = text_stream(spark, tmp_path, 2000).selectExpr(
        "cast(body as binary) as body",
        "cast(null as string) as topic",
        "cast(null as int) as defer_ms",
    )
    write_stream(
        frame, tmp_path, "nsq_recorded", nsqdTcpAddresses=address_of(one_broker), topic=topic
    )
    assert numbers(drain(one_broker, topic)) == list(range(2000))
    events = read_events(tmp_path, "commit")
    assert [event["batch"] for event in events] == [0, 1]
    assert [event["told"] for event in events] == [[[0, 0, 1000]]] * 2


# -- the look-up without register

LOOK_UP = """
import io, sys
from pyspark.serializers import read_int
from pyspark.sql.worker import lookup_data_sources
{before}
out = io.BytesIO()
lookup_data_sources._main(io.BytesIO(), out)
out.seek(0)
names = []
for _ in range(read_int(out)):
    names.append(out.read(read_int(out)).decode())
    out.read(read_int(out))
print(sorted(names))
"""
OTHER_SOURCE = """
from pyspark.sql.datasource import DataSource
class DefaultSource(DataSource):
    @classmethod
    def name(cls):
        return "other"
"""


@pytest.fixture(scope="module")
def installed(tmp_path_factory):
    """The modules as a wheel has them, but for the compiled ones, and another source beside ours."""
    folder = tmp_path_factory.mktemp("installed")
    command = [sys.executable, "setup.py", "-q", "build_py", "--build-lib", str(folder / "lib")]
    subprocess.run(command, cwd=ROOT, check=True, timeout=60, capture_output=True)
    (folder / "lib" / "pyspark_other.py").write_text(OTHER_SOURCE)
    return folder / "lib"


@pytest.mark.parametrize(
    ("before", "names"),
    [
        ("", ["nsq", "other"]),
        ("sys.modules['pyarrow'] = None", ["nsq", "other"]),
        ("sys.modules['nsqfast'] = None", ["other"]),
    ],
)
def test_spark_finds_the_source_of_an_installed_wheel(installed, before, names):
    """By the function that Spark's own look-up process runs."""
    command = [sys.executable, "-c", LOOK_UP.format(before=before)]
    environment = {**os.environ, "PYTHONPATH": str(installed)}
    done = run_command(*command, env=environment, cwd=installed)
    assert done.stdout.strip() == str(names), done.stderr
