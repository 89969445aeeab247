"""nsqfast-spark ingest from a real nsqd: each message once, also when all its processes are killed; and replay."""

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import time
from importlib.metadata import version

import pyarrow.dataset
import pytest

from nsqfast.client.sync import Producer
from nsqfast.spark_jobs import ingest, replay
from support.drain import address_of, drain
from support.server import ROOT, start_nsqd

SECONDS_MAX = 90
FAST_JVM = "spark.driver.extraJavaOptions=-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"


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


class Driver:
    """A run of the command with all its processes: Python, the JVM, its workers, and the receiver."""

    def __init__(self, words, log):
        command = [sys.executable, "-m", "nsqfast.spark_jobs.main", "ingest", "--master=local[2]"]
        self._log = log.open("wb")
        self.process = subprocess.Popen(
            [*command, f"--conf={FAST_JVM}", *words],
            stdout=self._log, stderr=self._log, cwd=ROOT, start_new_session=True,
        )  # fmt: skip

    def wait_for(self, reached, what):
        end_s = time.monotonic() + SECONDS_MAX
        while not (found := reached()):
            assert self.process.poll() is None, (
                f"it ended with {self.process.returncode} before {what}"
            )
            assert time.monotonic() < end_s, f"no {what}"
            time.sleep(0.001)
        return found

    def kill(self):
        """All of them, without warning."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.kill()
        self._log.close()


def batches(folder):
    """The numbers of those that have files."""
    return {
        int(path.name.rpartition("-")[2]) for path in (folder / "out").glob("topic=*/*/*/batch=*")
    }


def commits(folder):
    """The numbers of those that Spark has noted as done."""
    if not (folder / "check" / "commits").exists():
        return set()
    return {int(name) for name in os.listdir(folder / "check" / "commits") if name.isdecimal()}


@pytest.mark.slow
@pytest.mark.timeout(240)
@pytest.mark.soak  # test_kills does it with more
def test_killed_behind_the_files_and_before_the_note_of_a_batch(tmp_path):
    (tmp_path / "nsqd").mkdir()
    with start_nsqd("nsqfast", tmp_path / "nsqd", "--mem-queue-size=100000") as broker:
        publish(broker, "orders", range(5000))
        words = flags(broker, tmp_path, "--interval=0s", "--max-rows-per-trigger=1000")
        with Driver(words, tmp_path / "first.log") as driver:
            driver.wait_for(
                lambda: batches(tmp_path) - commits(tmp_path), "batch with files and without a note"
            )
            driver.kill()
        begun = batches(tmp_path) - commits(tmp_path)
        assert begun, "it was noted as done in the moment of the kill"
        publish(broker, "orders", range(5000, 6000))
        with Driver(words, tmp_path / "second.log") as driver:
            driver.wait_for(lambda: begun <= commits(tmp_path), "note of the batch that was begun")
            driver.wait_for(lambda: len(ingested(tmp_path)) >= 6000, "end of the messages")
            driver.process.send_signal(signal.SIGTERM)
            assert driver.process.wait(SECONDS_MAX) == 0
        assert ingested(tmp_path) == list(range(6000))
        said = (tmp_path / "second.log").read_text()
        assert "messages of" in said
        assert "\tat " not in said
        assert "Traceback" not in said
