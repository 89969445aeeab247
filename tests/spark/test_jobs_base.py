"""What all jobs of nsqfast-spark have in common: exit status, one line for an error, the session, the reports."""

import json
import os
import signal
import subprocess
import sys
import threading
import time
import urllib.request
from dataclasses import dataclass
from pathlib import Path

import pytest
from pyspark.errors import AnalysisException

from nsqfast.errors import OptionsError
from nsqfast.spark.failures import explain, is_permanent
from nsqfast.spark.runtime import own_home
from nsqfast.spark_jobs import main
from nsqfast.spark_jobs.ingest import run_query
from nsqfast.spark_jobs.job import Stop, run_job
from nsqfast.spark_jobs.options import JobOptions, parser
from nsqfast.tools.shared.program import ToolError

UMASK = "spark.hadoop.fs.permissions.umask-mode"
TIME_ZONE = "spark.sql.session.timeZone"


@dataclass(slots=True)
class Options(JobOptions):
    pass


@pytest.fixture
def run(spark, capfd, quiet_log):
    """A job that does what it is told to; the exit status and stderr."""

    def run(live, *flags):
        status = run_job("probe", parser(Options, "probe", list(flags)), live, spark)
        return status, capfd.readouterr().err

    return run


def fail(error):
    raise error


@pytest.mark.parametrize(
    ("flags", "status", "text"),
    [
        (["--nothing"], 2, "flag provided but not defined: -nothing"),
        (["--max-bad=x"], 2, "invalid value"),
        (["--max-bad=-2"], 1, "--max-bad is -2; it is 0 or more, or -1"),
        (["--conf=x"], 1, "--conf: 'x' is not <key>=<value>"),
        (["stray"], 2, 'unexpected word "stray": everything is a flag or its value'),
        (["--conf=spark.master=x"], 1, "--conf spark.master: it cannot be changed in a session"),
        (["--metrics-file=/nowhere/x"], 1, "--metrics-file: /nowhere/x: no such file or directory"),
        (["--metrics-address=256.0.0.1:0"], 1, "256.0.0.1"),
    ],
)
def test_what_is_wrong_with_the_flags_is_said(run, flags, status, text):
    said = run(lambda job: fail(AssertionError("it ran")), *flags)
    assert said[0] == status
    assert text in said[1]
    assert status == 2 or said[1].count("\n") == 1


def test_a_lent_session_gets_its_settings_back(spark, run):
    spark.conf.set(TIME_ZONE, "Asia/Tokyo")
    seen = {}

    def live(job):
        seen[TIME_ZONE] = job.spark.conf.get(TIME_ZONE)
        seen["limit"] = job.spark.conf.get("spark.sql.limit.scaleUpFactor")
        return 7

    before = spark.conf.get("spark.sql.limit.scaleUpFactor")
    try:
        assert run(live, "--conf=spark.sql.limit.scaleUpFactor=9")[0] == 7
        assert seen == {TIME_ZONE: "UTC", "limit": "9"}
        assert spark.conf.get(TIME_ZONE) == "Asia/Tokyo"
        assert spark.conf.get("spark.sql.limit.scaleUpFactor") == before
    finally:
        spark.conf.set(TIME_ZONE, "UTC")


def test_a_worker_that_does_not_come_is_no_failure_of_the_job():
    for text in (
        "Python worker failed to connect back.",
        "Timed out while waiting for the Python worker to connect back after 10 s",
    ):
        error = RuntimeError(f"Job aborted due to stage failure: SparkException: {text}")
        assert "did not start in time" in explain(error)
        assert not is_permanent(error)


def test_workers_start_from_the_installed_package(monkeypatch):
    """Unless the user has a home of Spark."""
    monkeypatch.setenv("SPARK_HOME", "/theirs")
    with own_home():
        assert os.environ["SPARK_HOME"] == "/theirs"
    monkeypatch.delenv("SPARK_HOME")
    with own_home():
        home = Path(os.environ["SPARK_HOME"])
        assert (home / "bin" / "spark-submit").exists()
        assert not (home / "python").exists()
    assert "SPARK_HOME" not in os.environ
    assert not home.exists()


def raise_in_worker(value):
    raise OptionsError(f"{value} is not what it should be")


def test_an_error_of_spark_is_one_line(run):
    def live(job):
        job.spark.range(1).select("nothing")

    status, said = run(live)
    assert (status, said.count("\n")) == (1, 1)
    assert "`nothing` cannot be resolved" in said
    assert "SQLSTATE" not in said


def test_an_error_in_a_worker_is_what_was_raised_there(spark):
    rows = spark.sparkContext.parallelize([0], 1).map(raise_in_worker)
    with pytest.raises(Exception, match="is not what it should be") as raised:
        rows.collect()
    assert explain(raised.value) == "0 is not what it should be"
    assert is_permanent(raised.value)
    assert not is_permanent(RuntimeError("Connection reset"))


def test_a_job_of_spark_is_cancelled_by_a_signal(spark, run, tmp_path):
    # Spark's workers import this module, without tests/ in their path
    from support.waiting import eventually

    has_begun = tmp_path / "has begun"

    def work(_):
        has_begun.touch()
        threading.Event().wait(60)

    def stop():
        eventually(has_begun.exists, 50)
        os.kill(os.getpid(), signal.SIGTERM)

    def live(job):
        threading.Thread(target=stop, daemon=True).start()
        job.spark.sparkContext.parallelize([0], 1).foreach(work)

    before = signal.getsignal(signal.SIGTERM)
    begun_s = time.monotonic()
    status, said = run(live)
    assert (status, "told to stop before it was done" in said) == (1, True)
    assert time.monotonic() - begun_s < 50
    assert signal.getsignal(signal.SIGTERM) is before


def test_batches_are_reported_in_a_file_and_to_prometheus(run, tmp_path):
    path = tmp_path / "metrics"
    found = {}

    def live(job):
        job.reports.note(batch=4, rows=10, bytes=70, bad=1, delay_s=1.5, query="x")
        job.reports.note(batch=5, rows=20, bytes=30, bad=0, delay_s=0.25, query="x")
        with urllib.request.urlopen(f"http://{job.reports.address}/metrics", timeout=10) as answer:
            found["text"] = answer.read().decode()
        return 0

    assert run(live, f"--metrics-file={path}", "--metrics-address=127.0.0.1:0")[0] == 0
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    assert [(line["job"], line["batch"], line["rows"]) for line in lines] == [
        ("probe", 4, 10),
        ("probe", 5, 20),
    ]
    for line in (
        "nsqfast_spark_probe_batches_total 2.0",
        "nsqfast_spark_probe_rows_total 30.0",
        "nsqfast_spark_probe_bytes_total 100.0",
        "nsqfast_spark_probe_bad_total 1.0",
        "nsqfast_spark_probe_batch 5.0",
        "nsqfast_spark_probe_delay_seconds 0.25",
    ):
        assert line in found["text"].splitlines()


class FakeQuery:
    """What run_query asks a query; it ends at once, with that error."""

    def __init__(self, error):
        self._error = error
        self.isActive = False

    def stop(self):
        pass

    def exception(self):
        return self._error


def test_a_query_is_started_again_when_the_reason_passes(monkeypatch, caplog):
    monkeypatch.setattr("nsqfast.spark_jobs.ingest.FIRST_WAIT_S", 0.001)
    queries = [FakeQuery(RuntimeError("once")), FakeQuery(RuntimeError("twice")), FakeQuery(None)]
    run_query(lambda: queries.pop(0), Stop(), 2)
    assert queries == []
    queries = [FakeQuery(RuntimeError(f"error {number}")) for number in range(4)]
    with pytest.raises(ToolError, match=r"error 2 \(given up after 2 restarts\)"):
        run_query(lambda: queries.pop(0), Stop(), 2)
    assert len(queries) == 1
    queries = [FakeQuery(AnalysisException("[X] no such column")), FakeQuery(None)]
    with pytest.raises(ToolError, match="no such column"):
        run_query(lambda: queries.pop(0), Stop(), 2)
    assert len(queries) == 1


def test_a_stop_is_heard_while_a_restart_waits():
    stop = Stop()
    queries = [FakeQuery(RuntimeError("once"))]
    threading.Timer(0.1, stop.ask).start()
    run_query(lambda: queries.pop(0), stop, 2)
    assert stop.is_asked
    assert queries == []


def test_the_command_lists_its_jobs(capsys):
    assert main.main(["--help"]) == 0
    text = capsys.readouterr().out
    assert all(f"\n  {job} " in text for job in main.JOBS)
    assert main.main([]) == 2
    assert main.main(["nothing"]) == 2
    assert "nothing: not a job" in capsys.readouterr().err
    assert main.main(["--version"]) == 0
    assert "nsqfast " in capsys.readouterr().out


@pytest.mark.parametrize(
    ("flags", "environment", "text"),
    [
        ([], {"JAVA_HOME": "", "PATH": "/nowhere"}, "apt install openjdk-17-jre-headless"),
        (
            ["--master=local[1]"],
            {"PYSPARK_GATEWAY_PORT": "1"},
            "spark-submit has a --master of its own",
        ),
    ],
)
def test_what_spark_lacks_is_one_line(tmp_path, flags, environment, text):
    words = ["nsqfast.spark_jobs.main", "replay", f"--input={tmp_path}", "--dry-run", *flags]
    done = subprocess.run(
        [sys.executable, "-m", *words],
        capture_output=True,
        text=True,
        env=os.environ | environment,
        check=False,
        timeout=60,
    )
    assert (done.returncode, done.stderr.count("\n")) == (1, 1)
    assert text in done.stderr


@pytest.mark.soak
@pytest.mark.timeout(900)
@pytest.mark.parametrize(
    ("flags", "mode"),
    [([], 0o700), ([f"--conf={UMASK}=027", "--conf=spark.ui.enabled=false"], 0o750)],
    ids=["default", "conf"],
)
def test_who_may_read_what_a_job_writes(tmp_path, flags, mode):
    # Spark's workers import this module, without tests/ in their path
    from support.spark_home import JVM_S_MAX

    source, output = tmp_path / "events.web1.2025-11-22_08.log", tmp_path / "out"
    source.write_bytes(b"secret\n")
    os.utime(source, (0, 0))
    words = [f"--input={source}", f"--output={output}", *flags]
    done = subprocess.run(
        [sys.executable, "-m", "nsqfast.spark_jobs.main", "load-archives", *words],
        check=True,
        capture_output=True,
        timeout=JVM_S_MAX,
        umask=0o022,
    )
    # Spark's own page is for this machine alone.
    assert (b"Spark's page: http://127.0.0.1:" in done.stderr) == (not flags)
    written = [output, *(path for path in output.rglob("*") if path.name != "LOCK")]
    modes = {path.name: path.stat().st_mode & 0o777 for path in written}
    assert set(modes.values()) == {mode, mode & 0o666}, modes
    (lock,) = output.rglob("LOCK")
    assert lock.stat().st_mode & 0o777 == 0o600
