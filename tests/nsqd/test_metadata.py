"""nsqd.dat: its bytes, what may stand in it, how it is replaced, and who wins when two write."""

import asyncio
import json
import stat
import threading

import pytest

from nsqfast.errors import OptionsError
from nsqfast.nsqd import metadata
from nsqfast.nsqd.metadata import FILE_NAME, MetadataFile, decode, encode, load


class FakeChannel:
    def __init__(self, name):
        self.name = name
        self.paused = False
        self.ephemeral = name.endswith("#ephemeral")

    def pause(self):
        self.paused = True


class FakeTopic(FakeChannel):
    def __init__(self, name, said):
        super().__init__(name)
        self.said = said
        self.found = {}

    def channel(self, name):
        self.said.append(("channel", self.name, name, self.paused))
        return self.found.setdefault(name, FakeChannel(name))

    def channels(self):
        return [self.found[name] for name in sorted(self.found)]

    def unpause(self):
        self.paused = False


class FakeRegistry:
    """Names only; `said` keeps what was asked for, in order."""

    def __init__(self):
        self.found = {}
        self.said = []
        self.on_change = None

    def topic(self, name):
        return self.found.setdefault(name, FakeTopic(name, self.said))

    def topics(self):
        return [self.found[name] for name in sorted(self.found)]


@pytest.fixture
def registry():
    return FakeRegistry()


def test_bytes_are_those_of_nsqd(registry):
    assert encode(registry) == b'{"topics":null,"version":"1.3.0"}'
    registry.topic("orders").channel("billing").pause()
    registry.topic("orders").channel("c#ephemeral")
    registry.topic("t#ephemeral").channel("x")
    registry.topic("alone").pause()
    assert encode(registry) == (
        b'{"topics":[{"name":"alone","paused":true,"channels":null},'
        b'{"name":"orders","paused":false,"channels":[{"name":"billing","paused":true}]}],"version":"1.3.0"}'
    )


def test_what_was_written_is_read(registry, tmp_path):
    registry.topic("a").channel("x").pause()
    registry.topic("b").pause()
    metadata.write(str(tmp_path), encode(registry))
    second = FakeRegistry()
    load(second, str(tmp_path))
    assert encode(second) == encode(registry)


def test_the_topic_waits_until_all_its_channels_are_there(registry, tmp_path):
    (tmp_path / FILE_NAME).write_text(
        '{"topics":[{"name":"t","channels":[{"name":"a"},{"name":"b"}]}]}'
    )
    load(registry, str(tmp_path))
    assert registry.said == [("channel", "t", "a", True), ("channel", "t", "b", True)]
    assert not registry.topic("t").paused


def test_duplicates_merge_and_bad_names_are_skipped(caplog):
    topics = decode(
        json.dumps(
            {
                "topics": [
                    {"name": "t", "channels": [{"name": "a"}, {"name": "a", "paused": True}]},
                    {"name": "bad name", "channels": [{"name": "x"}]},
                    {
                        "name": "t",
                        "paused": True,
                        "channels": [{"name": "b!"}, {"name": "b"}],
                        "more": 1,
                    },
                ],
                "other": {},
            }
        ).encode()
    )
    assert list(topics) == ["t"]
    assert topics["t"].paused
    assert topics["t"].channels == {"a": True, "b": False}


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b" \n",
        b"{",
        b"[]",
        b"3",
        b'{"topics":{}}',
        b'{"topics":["t"]}',
        b'{"topics":[{"name":3}]}',
        b'{"topics":[{"name":"t","channels":["c"]}]}',
        b'{"topics":[{"name":"t","paused":"yes"}]}',
        b"\xff\xfe\x00",
        pytest.param(b"[" * 100_000, id="deep"),
        pytest.param(b'{"topics":' * 100_000, id="deep topics"),
    ],
)
def test_no_metadata(registry, tmp_path, data):
    path = tmp_path / FILE_NAME
    path.write_bytes(data)
    with pytest.raises(OptionsError) as error:
        load(registry, str(tmp_path))
    assert str(error.value).startswith(f"failed to parse metadata in {path} - ")
    assert registry.found == {}


def test_missing_file_is_a_fresh_start(registry, tmp_path):
    load(registry, str(tmp_path))
    assert registry.found == {}


def test_file_is_private_and_leaves_nothing_beside(tmp_path):
    metadata.write(str(tmp_path), b"one")
    metadata.write(str(tmp_path), b"two")
    assert [path.name for path in tmp_path.iterdir()] == [FILE_NAME]
    assert (tmp_path / FILE_NAME).read_bytes() == b"two"
    assert stat.S_IMODE((tmp_path / FILE_NAME).stat().st_mode) == 0o600


def test_failed_write_keeps_the_old_file(tmp_path):
    (tmp_path / FILE_NAME).mkdir()  # a rename cannot replace a folder
    with pytest.raises(OSError, match="directory"):
        metadata.write(str(tmp_path), b"two")
    assert [path.name for path in tmp_path.iterdir()] == [FILE_NAME]


def test_an_older_snapshot_never_wins(registry, tmp_path):
    file = MetadataFile(registry, str(tmp_path))
    older = file._snapshot()
    registry.topic("t")
    file.persist()
    file._write(*older)
    assert b'"t"' in (tmp_path / FILE_NAME).read_bytes()


def test_changes_are_gathered_and_ephemeral_ones_cost_nothing(registry, tmp_path, monkeypatch):
    written = []
    may_write = threading.Event()
    running = both_written = None
    real = metadata.write

    def slow_write(folder, data):
        assert may_write.wait(10)
        real(folder, data)
        written.append(data)
        if len(written) == 2:
            running.call_soon_threadsafe(both_written.set)

    monkeypatch.setattr(metadata, "write", slow_write)

    async def scenario():
        nonlocal running, both_written
        running = loop = asyncio.get_running_loop()
        both_written = asyncio.Event()
        file = MetadataFile(registry, str(tmp_path))
        file.watch(loop)
        registry.on_change = file.changed
        registry.on_change("topic+", "t#ephemeral", None)
        registry.on_change("channel+", "t", "c#ephemeral")
        await asyncio.sleep(0)
        assert not file._is_busy
        for name in ("a", "b", "c"):
            registry.topic(name)
            registry.on_change("topic+", name, None)
        await asyncio.sleep(0)
        assert file._is_busy
        for name in ("d", "e"):
            registry.topic(name)
            registry.on_change("topic+", name, None)
        may_write.set()
        await asyncio.wait_for(both_written.wait(), 10)
        file.close()

    asyncio.run(scenario())
    assert [[t["name"] for t in json.loads(data)["topics"]] for data in written] == [
        list("abc"),
        list("abcde"),
    ]


def test_queues_that_the_file_does_not_name(registry, tmp_path, caplog):
    """A kill came before it was written."""
    for name in ("a", "a:c", "b:d", "gone", "bad!name", "a:b:c"):
        (tmp_path / f"{name}.diskqueue.000000.dat").write_bytes(b"" if name == "gone" else b"x")
    for name in ("x.diskqueue.meta.dat", "y.diskqueue.000000.dat.bad"):
        (tmp_path / name).write_bytes(b"x")
    (tmp_path / FILE_NAME).write_text(
        json.dumps({"topics": [{"name": "a", "paused": True, "channels": None}]})
    )
    load(registry, str(tmp_path))
    found = {topic.name: [one.name for one in topic.channels()] for topic in registry.topics()}
    assert found == {"a": ["c"], "b": ["d"]}
    assert [topic.paused for topic in registry.topics()] == [True, False]
    assert [record.getMessage() for record in caplog.records if record.levelname == "WARNING"] == [
        "messages of channel c of topic a are here, and nsqd.dat does not name it",
        "messages of channel d of topic b are here, and nsqd.dat does not name it",
    ]
