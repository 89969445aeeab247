"""nsqfast-spark load-archives: files of nsq_to_file become Parquet, each message once."""

from __future__ import annotations

import gzip
import json
import os
import signal
import sys
import time
from pathlib import Path

import pytest

from nsqfast.client.sync import Producer
from nsqfast.spark_jobs.load_archives import main
from support.archived import is_drained
from support.archives import json_line, lines, members, row, write_arrow, write_parquet
from support.commands import run_command
from support.lake import messages_in
from support.server import start_nsqd
from support.spark_home import JVM_S_MAX
from support.tools import SECONDS_MAX, Tool, tool_command

OLD_S = 3600
NAME = "events.web1.2025-11-22_08.log"


def put(path: Path, data: bytes) -> Path:
    """A file that nobody has written to for an hour."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)
    return age(path)


def age(path: Path) -> Path:
    then = time.time() - OLD_S
    os.utime(path, (then, then))
    return path


class Load:
    """Runs of the job from one folder to another."""

    def __init__(self, spark, folder: Path, capsys) -> None:
        self.spark = spark
        self.source = folder / "in"
        self.output = folder / "out"
        self.source.mkdir()
        self._capsys = capsys
        self.said = ""
        self.shown = ""

    def __call__(self, *flags: str) -> int:
        words = [f"--input={self.source}", f"--output={self.output}", *flags]
        status = main(words, self.spark)
        self.shown, self.said = self._capsys.readouterr()
        return status

    @property
    def rows(self) -> list:
        return messages_in(self.output)

    @property
    def bodies(self) -> list[bytes]:
        return sorted(bytes(one.body) for one in self.rows)

    @property
    def lost(self) -> list[dict]:
        reports = sorted((self.output / "_load_archives").glob("*.lost.json"))
        return [one for path in reports for one in json.loads(path.read_text())["files"]]


@pytest.fixture
def load(spark, tmp_path, capsys):
    return Load(spark, tmp_path, capsys)


def test_every_format_arrives_as_it_was_and_only_once(load):
    bodies = [b"a\rb\r", b"\xff\xfe", '"ä"'.encode(), b'{"n": 1}']
    source = load.source
    put(source / "with.dots.web1.2025-11-22_08.log", lines(bodies))
    put(
        source / "packed.web1-000001.2025-11-22_09.log.gz",
        b"".join(members([lines(bodies[:2]), lines(bodies[2:])], "gzip")),
    )
    put(source / "zstd.web1.2025-11-22_08.log.zst", b"".join(members([lines(bodies)], "zstd")))
    put(
        source / "k=v" / "json.web1.2025-11-22_08.jsonl",
        b"".join(json_line(i, body, "json") for i, body in enumerate(bodies)),
    )
    write_parquet(source / "columns.web1.2025-11-22_08.parquet", bodies, topics=("columns",))
    write_arrow(source / "arrow.web1.2025-11-22_08.arrow", bodies, topics=("arrow",))
    for path in source.glob("*.[pa]*r*"):
        age(path)
    # Spark's text reader passes over such a name, takes off the mark, or reads other files twice.
    put(source / "_hidden.web1.2025-11-22_08.log", lines(bodies))
    put(source / "mark.web1.2025-11-22_08.log", b"\xef\xbb\xbf" + lines(bodies))
    put(source / "signs.web[1]{a,b}:.2025-11-22_08.log", lines(bodies))
    put(source / "empty.web1.2025-11-22_08.log", b"")
    put(source / "empty.web1.2025-11-22_08.log.gz", b"")

    assert load() == 0, load.said
    assert "36 messages of 11 files loaded in 1 batches" in load.shown
    found = {}
    for one in load.rows:
        found.setdefault(one.topic, []).append(one)
    assert sorted(found) == [
        "_hidden", "arrow", "columns", "json", "mark", "packed", "signs", "with.dots", "zstd",
    ]  # fmt: skip
    marked = [b"\xef\xbb\xbf" + bodies[0], *bodies[1:]]
    for topic, rows in found.items():
        assert sorted(bytes(one.body) for one in rows) == sorted(
            marked if topic == "mark" else bodies
        ), topic
        assert {(one.date, one.hour) for one in rows} == {
            ("2025-11-22", "09" if topic == "packed" else "08")
        }
    line = found["with.dots"][0]
    assert line.file == str(source / "with.dots.web1.2025-11-22_08.log")
    assert (line.id, line.timestamp, line.timestamp_ns, line.attempts, line.nsqd, line.channel) == (
        None,
    ) * 6
    for topic in ("json", "columns", "arrow"):
        for one in found[topic]:
            expected = row(bodies.index(bytes(one.body)), bytes(one.body), topic)
            assert {name: getattr(one, name) for name in expected} == {**expected, "body": one.body}
            assert one.timestamp.timestamp() * 1e9 == one.timestamp_ns

    before = sorted(load.output.rglob("*.parquet"))
    assert load() == 0
    assert "0 messages of 0 files loaded in 0 batches; 11 files were loaded before" in load.shown
    assert sorted(load.output.rglob("*.parquet")) == before


def test_damaged_files_are_named_and_left_out_until_they_are_salvaged(load):
    source = load.source
    whole = members([lines([b"%d" % i]) for i in range(3)], "gzip")
    torn = put(
        source / "torn.web1-000001.2025-11-22_08.log.gz", whole[0] + whole[1] + whole[2][:-9]
    )
    flipped = bytearray(gzip.compress(lines([os.urandom(50)] * 9)))
    flipped[30] ^= 0xFF
    put(source / "flipped.web1-000001.2025-11-22_08.log.gz", bytes(flipped) + whole[0])
    put(source / "cut.web1.2025-11-22_08.log", b"whole\nhal")
    put(source / "not.web1.2025-11-22_08.log.gz", b"plain\n")
    put(
        source / "json.web1.2025-11-22_08.jsonl",
        b"{]\n" + json_line(1, b"one", "json") + b'{"id": 1}\n',
    )
    put(source / "good.web1.2025-11-22_08.log", b"good\n")
    put(source / "a name that says nothing.log", b"lost\nlost\n")
    put(source / "columns.web1.2025-11-22_08.parquet", b"PAR1 and no more")

    assert load() == 3
    assert load.bodies == [b"good"]
    assert f"{torn}: not loaded; --salvage loads what can be read of it (" in load.said
    for part in (
        f"{torn}: byte {len(whole[0] + whole[1])} (packed): the file ends in the middle of gzip data",
        "cut.web1.2025-11-22_08.log: byte 6: torn: 3 bytes without a newline at the end of the file",
        "json.web1.2025-11-22_08.jsonl: byte 0: ",
        "neither body nor body_base64",
        "a name that says nothing.log: byte 0: 2 records from here on: it says no topic, nor does the file's name",
        "damaged Parquet, nothing of it was read",
        "not.web1.2025-11-22_08.log.gz: byte 0 (packed): damaged gzip data",
    ):
        assert part in load.said
    assert "7 left out as damaged" in load.shown
    assert "Traceback" not in load.said

    assert load("--max-bad=-1") == 0
    assert "0 messages of 0 files loaded" in load.shown

    assert load("--salvage", "--max-bad=8") == 0, load.said
    assert set(load.bodies) >= {b"good", b"whole", b"one", b"0", b"1"}
    assert load.bodies.count(b"good") == 1
    lost = {Path(one["file"]).name.partition(".")[0]: one for one in load.lost}
    assert sorted(lost) == [
        "a name that says nothing",
        "columns",
        "cut",
        "flipped",
        "json",
        "not",
        "torn",
    ]
    assert lost["cut"]["lost"] == [
        {"place": "byte 6", "reason": "torn: 3 bytes without a newline at the end of the file"}
    ]
    assert lost["json"]["rows_loaded"] == 1
    assert "read on at byte" in lost["flipped"]["lost"][0]["reason"]
    assert load("--salvage", "--metrics-file=" + str(load.output.parent / "m")) == 0
    assert "8 files were loaded before" in load.shown
    assert not (load.output.parent / "m").read_text()

    # What names and records do not say is given.
    (source / "a name that says nothing.log").rename(source / "another.log")
    assert load("--assume-topic=given", "--assume-time=2025-11-20T23:00:00Z") == 0
    assert [(one.topic, one.date, one.hour) for one in load.rows if one.body == b"lost"] == [
        ("given", "2025-11-20", "23")
    ] * 2


@pytest.mark.soak
def test_files_that_are_written_to_are_not_taken_half(load, monkeypatch):
    path = load.source / NAME
    path.write_bytes(b"one\ntw")
    this_hour = time.strftime("%Y-%m-%d_%H", time.gmtime())
    put(load.source / f"events.web1.{this_hour}.log", b"of this hour\n")
    write_arrow(load.source / "rows.web1.2025-11-22_08.parquet.rows", [b"r"], is_stream=True)
    age(load.source / "rows.web1.2025-11-22_08.parquet.rows")
    (load.source.parent / "in.work").mkdir()
    left = load.source.parent / "in.work" / NAME
    left.write_bytes(b"left behind\n")
    assert load("--max-bad=1") == 3
    assert f"{left}: all of it: not finished; start nsqfast-nsq-to-file again" in load.said
    assert load("--max-bad=2") == 0
    assert load.bodies == []
    assert "2 files are still written to, and left for the next run: " in load.said
    assert "parquet.rows: all of it: not finished; start nsqfast-nsq-to-file again" in load.said

    # One that is appended to later is read on behind what was loaded.
    put(path, b"one\ntwo\n")
    for part in (load.source / "rows.web1.2025-11-22_08.parquet.rows", left):
        part.unlink()
    assert load() == 0
    put(path, b"one\ntwo\nthree\n")
    assert load() == 0
    assert "1 messages of 1 files" in load.shown
    assert load.bodies == [b"one", b"three", b"two"]

    # Other content under the same name cannot be told from it row by row.
    put(path, b"other\ncontent of more bytes\n")
    assert load() == 3
    assert "it is not what was loaded before; its name was used again" in load.said
    assert load.bodies == [b"one", b"three", b"two"]

    # A file that changes while it is read is left out, and the others are loaded without it.
    path.unlink()
    late = put(load.source / "late.web1.2025-11-22_08.log", b"1\n")
    put(load.source / "still.web1.2025-11-22_08.log", b"still\n")
    from nsqfast.spark_jobs import archive_frame

    write = archive_frame.write_archives

    def write_and_grow(*given):
        written = write(*given)
        if late.stat().st_size == 2:
            with late.open("ab") as file:
                file.write(b"2\n")
        return written

    monkeypatch.setattr(archive_frame, "write_archives", write_and_grow)
    assert load() == 0
    assert load.bodies == [b"one", b"still", b"three", b"two"]
    assert f"left for the next run: {load.source}/events.web1.{this_hour}.log, {late}" in load.said
    assert load("--settle=0s") == 0
    assert load.bodies == [b"1", b"2", b"of this hour", b"one", b"still", b"three", b"two"]


@pytest.mark.slow
@pytest.mark.parametrize("implementation", ["nsqfast", pytest.param("go", marks=pytest.mark.go)])
def test_what_nsq_to_file_wrote_arrives(load, tmp_path, implementation):
    (tmp_path / "data").mkdir()
    bodies = [b"%d\r \xff" % number for number in range(500)]
    flags = ["--gzip", "--max-in-flight=100", "--sync-interval=100ms"]
    with start_nsqd(implementation, tmp_path / "data") as broker:
        address = "{}:{}".format(*broker.tcp)
        with Producer(address) as producer:
            producer.publish_many("with.dots", bodies)
        command = tool_command(
            "nsq_to_file",
            implementation,
            "--topic=with.dots",
            f"--nsqd-tcp-address={address}",
            f"--output-dir={load.source}",
            *flags,
        )
        with Tool(command) as tool:
            deadline_s = time.monotonic() + SECONDS_MAX
            while not is_drained(broker, ["with.dots"]):
                assert time.monotonic() < deadline_s, tool.err
                time.sleep(0.02)
            assert load("--datetime-zone=local") == 0
            assert "1 files are still written to" in load.said
            assert load.bodies == []
            assert tool.end() == 0
    assert load("--datetime-zone=local", "--settle=0s") == 0, load.said
    assert load.bodies == sorted(bodies)
    assert {(one.topic, one.hour) for one in load.rows} <= {
        ("with.dots", time.strftime("%H", time.gmtime(time.time() - ago_s))) for ago_s in (0, 60)
    }


KILLED = """
import os, signal, sys
from nsqfast.spark_jobs import archive_frame, archive_ledger, load_archives

def die(*_):
    os.kill(os.getpid(), signal.SIGKILL)

# At the end of the second batch: its rows are there, and the ledger does not know.
finish = archive_ledger.Ledger.finish
finished = []

def finish_once(self, batch, found):
    if finished:
        die()
    finished.append(batch)
    finish(self, batch, found)

archive_ledger.Ledger.finish = finish_once
load_archives.main(sys.argv[1:])
"""


@pytest.mark.soak
@pytest.mark.slow
@pytest.mark.timeout(900)
def test_a_killed_run_is_finished_by_the_next(load, tmp_path, tell):
    for number in range(4):
        put(
            load.source / f"events.web{number}.2025-11-22_08.log",
            lines(b"%d-%d" % (number, i) for i in range(100)),
        )
    program = tmp_path / "killed.py"
    program.write_text(KILLED)
    words = [
        f"--input={load.source}",
        f"--output={load.output}",
        "--batch-files=2",
        "--master=local[1]",
    ]
    done = run_command(sys.executable, str(program), *words, timeout=JVM_S_MAX)
    tell("the run is killed")
    assert done.returncode == -signal.SIGKILL, done.stderr
    assert len(load.bodies) == 400  # written, and half of it not noted
    kept = {path for path in load.output.rglob("*.parquet") if "-0001/" in str(path)}

    gone = load.source / "events.web3.2025-11-22_08.log"
    gone.rename(tmp_path / "away")
    assert load("--batch-files=2") == 1
    assert f"{gone}: gone, and it was not yet loaded whole" in load.said
    assert len(load.bodies) == 400
    (tmp_path / "away").rename(gone)

    put(load.source / "events.web9.2025-11-22_09.log", b"new\n")
    assert load("--batch-files=2") == 0
    assert "201 messages of 3 files loaded in 2 batches; 2 files were loaded before" in load.shown
    assert load.bodies == sorted(
        [b"%d-%d" % (n, i) for n in range(4) for i in range(100)] + [b"new"]
    )
    assert kept <= set(load.output.rglob("*.parquet"))
    assert load() == 0
    assert "0 messages of 0 files" in load.shown


@pytest.mark.parametrize(
    ("flags", "status", "text"),
    [
        (["--input=/nowhere", "--output=/x"], 1, "/nowhere: no such file or directory"),
        (["--input=/nowhere/*.log", "--output=/x"], 1, "/nowhere/*.log: no file has such a name"),
        (["--output=/x"], 1, "--input required"),
        (["--input=/x"], 1, "--output required"),
        (["--input=s3a://b/x", "--output=/x"], 1, "give files that each machine of Spark has under this name"),
        (["--input=/x", "--output=/x", "--unterminated=both"], 1, "it is skip or keep"),
        (["--input=/x", "--output=/x", "--datetime-zone=Mars"], 1, "'Mars' is no time zone"),
        (["--input=/x", "--output=/x", "--assume-topic=a b"], 1, "'a b' is no name of a topic"),
        (["--nothing"], 2, "see nsqfast-spark load-archives --help"),
        (["--input=/x", "--output=/x", "--batch-files=x"], 2, "batch-files"),
    ],
)  # fmt: skip
def test_what_cannot_be_done_is_said_in_one_line(spark, tmp_path, capsys, flags, status, text):
    flags = [flag.replace("--output=/x", f"--output={tmp_path}/x") for flag in flags]
    assert main(flags, spark) == status
    said = capsys.readouterr().err
    assert text in said
    assert "Traceback" not in said
    assert status == 2 or said.count("\n") == 1


def test_an_output_without_its_ledger_or_in_use_is_refused(load):
    put(load.source / NAME, b"one\n")
    (load.output / "topic=a" / "date=2025-11-22" / "hour=08" / "batch=archives-1-0001").mkdir(
        parents=True
    )
    assert load() == 1
    assert "_load_archives, which says what was loaded; put that back" in load.said
    import fcntl

    with (load.output / "_load_archives" / "LOCK").open("a") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        assert load() == 1
    assert "another load-archives writes to this --output" in load.said
    for name in ("x.plan.json", "x.done.json"):
        (load.output / "_load_archives" / name).write_text("{]")
    assert load() == 1
    assert "x.done.json" in load.said
    (load.source / NAME).unlink()
    load.source.rmdir()
    load.source.write_bytes(b"")
    (load.output / "_load_archives" / "x.done.json").unlink()
    assert load(f"--output={load.source}") == 1
    assert "Traceback" not in load.said
