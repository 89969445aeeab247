"""nsqfast-spark compact: fewer files, the same messages."""

from __future__ import annotations

import json
import shutil
from datetime import UTC, datetime

import pytest

from nsqfast.spark_jobs import compact
from nsqfast.spark_jobs.compact import main
from support.lake import messages_in, write_messages

BEGIN_NS = 1_763_798_400_000_000_000  # 2025-11-22T08:00:00Z
HOUR_NS = 3_600_000_000_000


def message(number, topic="orders", hour=0, **more):
    time_ns = BEGIN_NS + hour * HOUR_NS + number * 1000
    return {
        "topic": topic,
        "id": f"{number:016x}",
        "timestamp_ns": time_ns,
        "attempts": 1,
        "body": b"%d" % number,
        **more,
    }


def identity(one):
    return one.topic, one.date, one.hour, one.id, one.timestamp_ns, one.attempts, one.body


@pytest.fixture
def lake(tmp_path):
    """Signs of a pattern are nothing but a part of the name."""
    folder = tmp_path / "in [1]{a,b}"
    for batch in range(4):
        numbers = range(batch * 50, batch * 50 + 50)
        write_messages(
            folder,
            f"q-{batch}",
            [message(n) for n in numbers] + [message(n, "1234", 1) for n in numbers],
        )
    # Redelivered, loaded from lines, and of one whose schema has more.
    write_messages(folder, "q-4", [message(n, attempts=2) for n in range(10)])
    line = {"topic": "orders", "body": b"same", "file": "/a.log"}
    write_messages(
        folder, "archives-1", [{**message(0), **line, "id": None, "timestamp_ns": None}] * 3
    )
    write_messages(folder, "q-5", [message(0, "1234", 1, id="x", value="new")])
    return folder


@pytest.mark.soak
def test_every_message_is_in_fewer_files_by_time(spark, lake, tmp_path, capsys):
    output = tmp_path / "out [1]"
    before = {path: path.read_bytes() for path in lake.rglob("*") if path.is_file()}
    words = [f"--input={lake}", f"--output={output}", f"--metrics-file={tmp_path}/m"]
    assert main(words, spark) == 0, capsys.readouterr().err
    found = messages_in(output)
    assert sorted(map(identity, found), key=str) == sorted(
        map(identity, messages_in(lake)), key=str
    )
    places = {(one.topic, one.date, one.hour) for one in found}
    assert places == {("orders", "2025-11-22", "08"), ("1234", "2025-11-22", "09")}
    times_ns = [one.timestamp_ns for one in found if one.topic == "1234"]
    assert times_ns == sorted(times_ns)
    assert [one.value for one in found if one.id == "x"] == ["new"]
    # What is only known from the files is kept in the rows.
    assert {one.ingested is None for one in found if one.file} == {True}
    now = datetime.now(UTC).timestamp()
    assert all(
        now - 600 < one.ingested.replace(tzinfo=UTC).timestamp() <= now
        for one in found
        if not one.file
    )
    assert {path: path.read_bytes() for path in lake.rglob("*") if path.is_file()} == before
    line = json.loads((tmp_path / "m").read_text())
    assert (line["rows"], line["files_in"], line["files_out"]) == (414, 11, 2)

    assert main(words, spark) == 1
    assert "has what compact made at 20" in capsys.readouterr().err


@pytest.mark.soak
def test_duplicates_are_left_out_and_an_unfinished_run_is_begun_again(
    spark, lake, tmp_path, capsys, monkeypatch
):
    output = tmp_path / "out [1]"
    words = [
        f"--input={lake}",
        f"--output={output}",
        "--dedupe",
        "--topic=orders",
        "--target-size=2000",
    ]
    # As if it was killed: it has written, and does not say that it has finished.
    # Meanwhile ingest goes on.
    begin = compact.CompactState.begin

    def begin_late(state):
        write_messages(lake, "q-6", [message(1000)])
        return begin(state)

    monkeypatch.setattr(compact.CompactState, "begin", begin_late)
    finish = compact.CompactState.finish
    monkeypatch.setattr(compact.CompactState, "finish", lambda *_: None)
    assert main(words, spark) == 0
    assert "213 = 203 + 10" in capsys.readouterr().out
    shutil.rmtree(lake / "topic=orders" / "date=2025-11-22" / "hour=08" / "batch=q-6")
    monkeypatch.setattr(compact.CompactState, "begin", begin)
    monkeypatch.setattr(compact.CompactState, "finish", finish)
    assert (
        main([f"--input={lake}/topic=orders", f"--input={lake}", f"--output={output}"], spark) == 1
    )
    assert "has an unfinished compact of" in capsys.readouterr().err

    assert main(words, spark) == 0, capsys.readouterr().err
    shown = capsys.readouterr().out
    assert "213 messages of 6 files in, 203 messages of " in shown
    assert "10 duplicates left out: 213 = 203 + 10" in shown
    found = messages_in(output)
    assert len(found) == 203
    assert {one.topic for one in found} == {"orders"}
    # The copy with the fewest attempts is kept, and lines that are alike are no duplicates.
    assert {one.attempts for one in found} == {1}
    assert sum(one.body == b"same" for one in found) == 3
    assert len(list(output.rglob("*.parquet"))) > 2
    assert all(len(list(path.glob("*.parquet"))) == 1 for path in output.rglob("batch=*"))


def test_what_would_do_harm_is_refused(spark, lake, tmp_path, capsys):
    def refused(*words):
        assert main(list(words), spark) == 1
        said = capsys.readouterr().err
        assert said.count("\n") == 1
        assert "Traceback" not in said
        return said

    (tmp_path / "link").symlink_to(lake)
    assert "--output is the same folder as --input" in refused(
        f"--input={lake}", f"--output={tmp_path}/link"
    )
    assert "--output is inside --input" in refused(
        f"--input={lake}", f"--output={tmp_path}/link/out"
    )
    assert "is inside --output" in refused(f"--input={lake}", f"--output={tmp_path}")
    other = tmp_path / "other"
    other.mkdir()
    (other / "mine.txt").write_text("mine")
    assert "not empty, and not of compact" in refused(f"--input={lake}", f"--output={other}")
    assert "no messages there" in refused(f"--input={other}", f"--output={tmp_path}/out")
    (other / "_delta_log").mkdir()
    assert "Delta Lake" in refused(f"--input={other}", f"--output={tmp_path}/out")
    assert "no messages of these topics" in refused(
        f"--input={lake}", f"--output={tmp_path}/out", "--topic=none"
    )
    assert "--input required" in refused("--output=/x")
    assert "--output required" in refused("--input=/x")
    assert "--target-size" in refused("--input=/x", "--output=/x", "--target-size=0")
    (
        lake / "topic=orders" / "date=2025-11-22" / "hour=08" / "batch=q-0" / "part.parquet"
    ).write_bytes(b"PAR1 no")
    assert "part.parquet" in refused(f"--input={lake}", f"--output={tmp_path}/out2")
    assert main(["--dedupe=what"], spark) == 2
    assert "see nsqfast-spark compact --help" in capsys.readouterr().err
