"""nsqfast-spark replay: what is published, where to, how fast, and how a run goes on that was killed; to both nsqd."""

import json
import re
import time

import pytest
from pyspark.sql import functions

from nsqfast.spark_jobs import layout, replay
from support.archives import json_line
from support.drain import address_of, drain, message_count

NSQD_FLAGS = ("--mem-queue-size=100000",)
BEGIN_NS = 1795132800 * 10**9  # 2026-11-20 00:00 UTC
HOUR_NS = 3600 * 10**9


@pytest.fixture
def run(spark, capfd, quiet_log):
    """The exit status, what stands on stdout and on stderr."""

    def run(*flags):
        status = replay.main([str(flag) for flag in flags], spark)
        return status, *capfd.readouterr()

    return run


def fill(spark, folder, topic, rows, batch="q-0"):
    """Rows of id, hour and body, in the layout of ingest; the hour may be a fraction."""
    full = [
        (topic, "c", name, BEGIN_NS + int(hour * HOUR_NS), 1, "n", body)
        for name, hour, body in rows
    ]
    names = "topic string, channel string, id string, timestamp_ns long, attempts int, nsqd string, body binary"
    frame = spark.createDataFrame(full, names)
    time = functions.timestamp_micros((functions.col("timestamp_ns") / 1000).cast("long"))
    layout.write(layout.with_partitions(frame.withColumn("timestamp", time), batch), str(folder))


def counts(out):
    """read, unique, published and failed, as the first line of the report has them."""
    found = re.match(r"read ([\d,]+), unique ([\d,]+), published ([\d,]+), failed ([\d,]+) in", out)
    return tuple(int(text.replace(",", "")) for text in found.groups())


def test_every_message_comes_back_and_duplicates_do_not(spark, broker, run, tmp_path):
    rows = [(f"{number:016x}", number % 3, b"%d\x00\xff\n" % number) for number in range(300)]
    fill(spark, tmp_path / "in", "back", rows)
    fill(spark, tmp_path / "in", "back", rows[:40], batch="q-1")
    fill(spark, tmp_path / "in", "other", rows[:10])
    status, out, _ = run(
        f"--input={tmp_path}/in",
        f"--nsqd-tcp-address={address_of(broker)}",
        "--dedupe=id",
        "--topic-map=other:mapped",
    )
    assert (status, counts(out)) == (0, (350, 310, 310, 0))
    assert sorted(drain(broker, "back")) == sorted(body for _, _, body in rows)
    assert sorted(drain(broker, "mapped")) == sorted(body for _, _, body in rows[:10])


@pytest.mark.soak
def test_with_a_state_a_killed_run_goes_on(spark, broker, run, tmp_path, monkeypatch):
    # As many files as there would be of millions of messages.
    monkeypatch.setattr(replay, "FILE_ROWS", 20)
    rows = [("", number / 100, b"message %d" % number) for number in range(200)]
    fill(spark, tmp_path / "in", "state", [*rows, *rows[:50]])
    metrics = tmp_path / "metrics"
    flags = [
        f"--input={tmp_path}/in", f"--nsqd-tcp-address={address_of(broker)}", "--dedupe=body",
        f"--state={tmp_path}/state", f"--metrics-file={metrics}",
    ]  # fmt: skip
    publish = replay.State.finish

    def killed(state, part):
        if state.progress.published >= 80:
            raise KeyboardInterrupt
        publish(state, part)

    monkeypatch.setattr(replay.State, "finish", killed)
    with pytest.raises(KeyboardInterrupt):
        run(*flags)
    monkeypatch.setattr(replay.State, "finish", publish)
    before = message_count(broker, "state")
    noted = json.loads((tmp_path / "state" / "progress.json").read_text())
    # Published and not noted: what was under way.
    assert before == noted["published"] + noted["under_way"]
    assert noted["under_way"] > 0
    status, out, said = run(*flags)
    assert status == 0
    assert counts(out) == (250, 200, 200 - noted["published"], 0)
    assert f"{noted['under_way']} may be there twice" in out
    bodies = drain(broker, "state")
    assert set(bodies) == {body for _, _, body in rows}
    assert len(bodies) == 200 + noted["under_way"]
    # By time, as far as tasks that run side by side allow.
    assert bodies.index(b"message 0") < 40 < bodies.index(b"message 199")
    status, out, _ = run(*flags)
    assert (status, counts(out), "200 were published by earlier runs" in out) == (
        0,
        (250, 200, 0, 0),
        True,
    )
    status, _, said = run(*flags, "--topic=state")
    assert (status, "is of a run with other flags: --topic was []" in said) == (1, True)
    published = [json.loads(line)["published"] for line in metrics.read_text().splitlines()]
    assert sum(published) == 200


@pytest.mark.soak
def test_the_rate_is_that_of_the_whole_run(spark, broker, run, tmp_path):
    fill(spark, tmp_path / "in", "rate", [("", 0, b"%d" % number) for number in range(300)])
    begun_s = time.monotonic()
    status, out, _ = run(
        f"--input={tmp_path}/in", f"--nsqd-tcp-address={address_of(broker)}", "--rate=100"
    )
    # The last slice goes when its time has come, and not half a second later.
    assert time.monotonic() - begun_s > 2.4
    assert (status, counts(out)) == (0, (300, 300, 300, 0))
    assert len(drain(broker, "rate")) == 300


@pytest.mark.soak
def test_a_time_range_and_topics_are_chosen(spark, run, tmp_path):
    rows = [("", hour, b"%g" % hour) for hour in (0, 1.25, 1.5, 1.75, 2)]
    for topic in ("a", "b", "ab"):
        fill(spark, tmp_path / "in", topic, rows)
    bounds = ["--since=2026-11-20T01:30:00Z", "--until=2026-11-20T02:00:00Z"]
    status, out, _ = run(f"--input={tmp_path}/in", "--dry-run", "--topic-pattern=^a", *bounds)
    assert status == 0
    assert out.splitlines() == [
        "    MESSAGES           BYTES  TOPIC",
        "           2               7  a",
        "           2               7  ab",
        "           4              14  total",
        "read 4, unique 4",
    ]


@pytest.mark.soak
def test_files_of_nsq_to_file(broker, run, tmp_path):
    (tmp_path / "lines.host.2026-11-20_01.log").write_bytes(b"one\ntwo\n\ntorn")
    records = [json_line(number, b"%d" % number, "json") for number in range(5)]
    (tmp_path / "json.host.2026-11-20_01.jsonl").write_bytes(b"".join(records))
    flags = [f"--input={tmp_path}/*.host.*", f"--nsqd-tcp-address={address_of(broker)}"]
    status, out, said = run(*flags, "--dedupe=id")
    assert (status, "plain lines have no ids; use --dedupe=body" in said) == (1, True)
    status, out, said = run(*flags, "--max-bad=0")
    assert (status, "lines.host" in said) == (3, True)
    assert counts(out)[1:] == (7, 7, 0)
    assert sorted(drain(broker, "lines")) == [b"one", b"two"]
    assert len(drain(broker, "json")) == 5


def test_an_nsqd_that_is_away_is_one_line(spark, run, tmp_path):
    fill(spark, tmp_path / "in", "away", [("", 0, b"1")])
    status, out, said = run(
        f"--input={tmp_path}/in", "--nsqd-tcp-address=127.0.0.1:1", "--retry-for=1s"
    )
    assert (status, counts(out)[2]) == (1, 0)
    assert "127.0.0.1:1" in said.splitlines()[-1]
    assert "\tat " not in said


def test_what_nsqd_does_not_take_is_left_out(spark, broker, run, tmp_path):
    fill(spark, tmp_path / "in", "sizes", [("", 0, b""), ("", 0, b"x" * 101), ("", 0, b"x" * 100)])
    flags = [
        f"--input={tmp_path}/in",
        f"--nsqd-tcp-address={address_of(broker)}",
        "--max-msg-size=100",
    ]
    status, out, _ = run(*flags)
    assert (status, counts(out), "2 were left out" in out) == (3, (3, 1, 1, 0), True)
    assert drain(broker, "sizes") == [b"x" * 100]
