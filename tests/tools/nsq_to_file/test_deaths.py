"""--deaths: what is known of a dead letter is in the archive beside it."""

import json

import pyarrow.parquet as pq
import pytest

from support.archived import is_drained, records_in
from support.dead_letters import make_dead_letters
from support.programs import publish
from support.tools import Tool, tool_command
from support.waiting import eventually

FORMATS = pytest.mark.parametrize("form", ["jsonl", "parquet", "arrow"])


@pytest.fixture
def archive(broker, address, tmp_path):
    """Archives that topic with these flags, and returns the records of all that was ever archived here."""

    def run(topic, *flags):
        source = (f"--nsqd-tcp-address={address}", f"--topic={topic}")
        files = (f"--output-dir={tmp_path}/out", "--filename-format=<TOPIC><REV>.log")
        with Tool(
            tool_command("nsq_to_file", "nsqfast", *source, *files, "--sync-interval=50ms", *flags)
        ) as running:
            eventually(lambda: is_drained(broker, [topic]))
            assert running.end() == 0, running.text
        return records_in(tmp_path / "out")

    return run


@pytest.fixture
def letters(implementation, broker, address, topic):
    """A topic with two dead letters, and one message that is none; for Go's nsqd none is one."""
    if implementation == "nsqfast":
        topic = make_dead_letters(broker, topic, b"0", b"1", error='KeyError: "ü\x01"')
    else:
        publish(address, topic, b"0", b"1")
    publish(address, topic, b"alive")
    return topic


@FORMATS
def test_known(implementation, archive, letters, form):
    records = archive(letters, f"--format={form}", "--deaths")
    deaths = {record["body"]: record["death"] for record in records}
    assert deaths.keys() == {b"0", b"1", b"alive"}
    assert deaths.pop(b"alive") is None
    if implementation == "go":
        assert set(deaths.values()) == {None}
        return
    for death in deaths.values():
        origin = letters.removesuffix(".c.dead")
        assert (death["reason"], death["topic"], death["channel"]) == ("failed", origin, "c")
        assert (death["failures"], death["attempts"], death["client"]) == (2, 2, "worker-7")
        assert death["error"] == 'KeyError: "ü\x01"'
        assert len(death["first_id"]) == 16
        assert 0 < death["published"] < death["died"]


@FORMATS
def test_not_asked_for(archive, address, letters, form, tmp_path):
    """Nothing differs; a file with them may stand beside it."""
    flags = [f"--format={form}"]
    plain = ["topic", "id", "timestamp_ns", "attempts", "nsqd", "body"]
    assert all(sorted(record) == sorted(plain) for record in archive(letters, *flags))
    (path,) = (tmp_path / "out").iterdir()
    if form == "jsonl":
        assert list(json.loads(path.read_bytes().splitlines()[0])) == plain
    elif form == "parquet":
        assert pq.read_schema(path).names == plain
    publish(address, letters, b"last")
    records = archive(letters, *flags, "--filename-format=<TOPIC><REV>.second", "--deaths")
    assert [record["body"] for record in records if "death" in record] == [b"last"]
