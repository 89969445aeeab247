"""nsqfast-spark ingest from a real nsqd: each message once; and replay."""

import json
import shutil
from importlib.metadata import version

import pyarrow.dataset
import pytest

from nsqfast.client.sync import Producer
from nsqfast.spark.spool.identity import open_spool
from nsqfast.spark.spool.segments import PARQUET
from nsqfast.spark.spool.writer import SegmentWriter
from nsqfast.spark_jobs import ingest, replay
from support.drain import address_of, drain
from support.server import start_nsqd
from support.spool import make_rows, receiver_flags, row_count, segments, start_receiver
from support.waiting import eventually


@pytest.fixture(params=["nsqfast", pytest.param("go", marks=pytest.mark.go)])
def broker(request, tmp_path):
    (tmp_path / "nsqd").mkdir()
    with start_nsqd(request.param, tmp_path / "nsqd", "--mem-queue-size=100000") as server:
        yield server


def publish(broker, topic, numbers):
    with Producer([address_of(broker)]) as producer:
        numbers = list(numbers)
        for first in range(0, len(numbers), 1000):
            bodies = [b"%d\x00\xff" % number for number in numbers[first : first + 1000]]
            producer.publish_many(topic, bodies)


def flags(broker, folder, *more):
    return [
        "--topic=orders", "--channel=archive", f"--nsqd-tcp-address={address_of(broker)}", f"--spool={folder}/spool",
        f"--output={folder}/out", f"--checkpoint={folder}/check", "--consumer-opt=msg_timeout,2s", *more,
    ]  # fmt: skip


def ingested(folder):
    """The numbers, sorted, of the batches that are there as a whole: Spark moves them from a folder of its own."""
    files = [str(path) for path in (folder / "out").glob("topic=*/*/*/batch=*/*.parquet")]
    table = pyarrow.dataset.dataset(files, format="parquet").to_table(columns=["body"])
    return sorted(int(body[:-2]) for body in table["body"].to_pylist())


@pytest.mark.soak
def test_backup_loss_and_replay(spark, broker, tmp_path, request, capfd, quiet_log):
    count = 3000
    publish(broker, "orders", range(count))
    publish(broker, "not-ours", range(5))
    words = flags(broker, tmp_path, "--available-now", "--max-rows-per-trigger=1000")
    assert ingest.main(words, spark) == 0
    publish(broker, "orders", range(count, count + 10))
    assert ingest.main(words, spark) == 0
    assert "10 messages of" in capfd.readouterr().err
    assert ingested(tmp_path) == list(range(count + 10))
    # The data folder is lost, and with it what another channel had still to take.
    broker.kill()
    shutil.rmtree(tmp_path / "nsqd")
    (tmp_path / "nsqd").mkdir()
    with start_nsqd(request.node.callspec.params["broker"], tmp_path / "nsqd") as again:
        status = replay.main(
            [f"--input={tmp_path}/out", f"--nsqd-tcp-address={address_of(again)}", "--dedupe=id"],
            spark,
        )
        assert status == 0
        assert sorted(drain(again, "orders")) == sorted(
            b"%d\x00\xff" % n for n in range(count + 10)
        )


@pytest.mark.soak
def test_segments_that_spark_reads_itself(spark, broker, tmp_path, capfd, quiet_log):
    """With a receiver of its own, and then with one that is there already; nothing is left in the spool."""
    publish(broker, "orders", range(3000))
    words = flags(broker, tmp_path, "--available-now", f"--segment-format={PARQUET}")
    metrics = tmp_path / "metrics.jsonl"
    assert ingest.main([*words, f"--metrics-file={metrics}"], spark) == 0
    line = json.loads(metrics.read_text())
    assert all(line[f"lag_{name}"] >= 0 for name in ("rows", "bytes", "age_s"))
    assert ingested(tmp_path) == list(range(3000))
    assert segments(tmp_path / "spool", with_done=False) == []
    assert {segment.format for segment in segments(tmp_path / "spool")} == {PARQUET}
    publish(broker, "orders", range(3000, 3010))
    receiver = receiver_flags(
        tmp_path / "spool", address_of(broker), f"--segment-format={PARQUET}",
        f"--checkpoint={tmp_path}/check", topic="orders",
    )  # fmt: skip
    receiver[2] = "--channel=archive"
    with start_receiver(*receiver) as tool:
        eventually(lambda: row_count(tmp_path / "spool") == 3010)
        own = ("--nsqd-tcp-address", "--consumer-opt")
        external = [word for word in words if not word.startswith(own)]
        assert ingest.main([*external, "--receiver=external"], spark) == 0
        eventually(lambda: not segments(tmp_path / "spool", with_done=False))
        assert tool.end() == 0, tool.text
    assert ingested(tmp_path) == list(range(3010))
    capfd.readouterr()
    assert ingest.main(flags(broker, tmp_path, "--available-now"), spark) == 1
    assert f"is that of --segment-format={PARQUET}" in capfd.readouterr().err


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ("--segment-format=orc", "it is arrow or parquet"),
        ("--max-rows-per-trigger=5", "Spark's file source has --max-bytes-per-trigger"),
        ("--num-partitions=5", "need --segment-format=arrow"),
        ("--checkpoint=s3a://lake/check", "the receiver reads it"),
    ],
)
def test_what_does_not_go_with_parquet_is_one_line(tmp_path, capfd, quiet_log, more, said):
    words = [
        "--topic=orders", "--channel=archive", "--nsqd-tcp-address=127.0.0.1:1", f"--spool={tmp_path}/spool",
        f"--output={tmp_path}/out", f"--checkpoint={tmp_path}/check", f"--segment-format={PARQUET}", more,
    ]  # fmt: skip
    assert ingest.main(words) == 1
    (line,) = capfd.readouterr().err.splitlines()
    assert said in line


def test_a_spool_of_arrow_is_refused_before_anything_is_received(spark, tmp_path, capfd, quiet_log):
    """The nsqd that there is not would be waited for."""
    open_spool(tmp_path / "spool", "orders", "archive")
    writer = SegmentWriter.open(tmp_path / "spool", "r0")
    writer.seal([make_rows(range(3))])
    writer.close()
    words = [
        "--topic=orders", "--channel=archive", "--nsqd-tcp-address=127.0.0.1:1", f"--spool={tmp_path}/spool",
        f"--output={tmp_path}/out", f"--checkpoint={tmp_path}/check", f"--segment-format={PARQUET}", "--available-now",
    ]  # fmt: skip
    assert ingest.main(words, spark) == 1
    said = capfd.readouterr().err
    assert "are of Arrow" in said
    assert "connection refused" not in said


@pytest.mark.soak
def test_what_the_operator_has_to_change_is_one_line(spark, tmp_path, capfd, quiet_log):
    (tmp_path / "nsqd").mkdir()
    with start_nsqd("nsqfast", tmp_path / "nsqd") as broker:
        publish(broker, "orders", range(10))
        words = flags(broker, tmp_path, "--available-now")
        assert ingest.main(words, spark) == 0
        capfd.readouterr()
        # Without a restart: it would be the same again.
        shutil.rmtree(tmp_path / "spool")
        assert ingest.main(words, spark) == 1
        said = capfd.readouterr().err
        assert "starting again" not in said
        errors = [line for line in said.splitlines() if " ERR " in line]
        assert len(errors) == 1
        assert "spool" in errors[0]
        publish(broker, "orders", range(10, 20))
        assert ingest.main([*words, "--ignore-data-loss"], spark) == 0
        if version("pyspark").startswith(("4.0.", "4.1.")):
            # They repeat the batch that had been begun, and nothing else.
            assert ingest.main([*words, "--ignore-data-loss"], spark) == 0
        assert ingested(tmp_path) == list(range(20))
