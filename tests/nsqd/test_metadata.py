"""nsqd.dat: its bytes, what may stand in it, how it is replaced, and who wins when two write."""

import asyncio
import errno
import json
import os
import random
import stat
import threading
from contextlib import nullcontext
from pathlib import Path

import pytest
from nsqfast._ext.dev.probes import fix_parts

from nsqfast.errors import OptionsError
from nsqfast.nsqd import metadata, metadata_file
from nsqfast.nsqd.metadata import BLOCK_COUNT_MAX, FILE_NAME, Listing, decode, encode, load
from nsqfast.nsqd.metadata_file import PIECE_UNITS, MetadataFile
from support.core import make_registry
from support.seeds import seeds


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


class FakeTopics:
    """Names only; `said` keeps what was asked for, in order."""

    def __init__(self):
        self.found = {}
        self.said = []
        self.on_change = None

    def logged_names(self):
        return []

    def when_kept(self, callback):
        callback(None)

    def remove_cut(self, queue):
        return False

    def starting(self):
        return nullcontext()

    def ensure(self, name):
        return self.found.setdefault(name, FakeTopic(name, self.said))

    def sorted(self):
        return [self.found[name] for name in sorted(self.found)]


@pytest.fixture
def topics():
    return FakeTopics()


def test_bytes_are_those_of_nsqd(topics):
    assert encode(topics) == b'{"topics":null,"version":"1.3.0"}'
    topics.ensure("orders").channel("billing").pause()
    topics.ensure("orders").channel("c#ephemeral")
    topics.ensure("t#ephemeral").channel("x")
    topics.ensure("alone").pause()
    assert encode(topics) == (
        b'{"topics":[{"name":"alone","paused":true,"channels":null},'
        b'{"name":"orders","paused":false,"channels":[{"name":"billing","paused":true}]}],"version":"1.3.0"}'
    )


def test_what_was_written_is_read(topics, tmp_path):
    topics.ensure("a").channel("x").pause()
    topics.ensure("b").pause()
    metadata.write(str(tmp_path), encode(topics))
    second = FakeTopics()
    load(second, str(tmp_path))
    assert encode(second) == encode(topics)


def test_the_topic_waits_until_all_its_channels_are_there(topics, tmp_path):
    (tmp_path / FILE_NAME).write_text(
        '{"topics":[{"name":"t","channels":[{"name":"a"},{"name":"b"}]}]}'
    )
    load(topics, str(tmp_path))
    assert topics.said == [("channel", "t", "a", True), ("channel", "t", "b", True)]
    assert not topics.ensure("t").paused


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
def test_no_metadata(topics, tmp_path, caplog, data):
    """Topics and channels are found by their files, and the broken one stays under another name."""
    for name in ("a", "a:c", "b:d", "bad!name"):
        (tmp_path / f"{name}.diskqueue.000003.dat").write_bytes(b"x")
    (tmp_path / "a:e.diskqueue.meta.dat").write_bytes(b"0\n0,0\n0,0\n")
    (tmp_path / "g.diskqueue.000000.dat").mkdir()
    path = tmp_path / FILE_NAME
    path.write_bytes(data)
    assert load(topics, str(tmp_path)) is None
    found = {topic.name: [one.name for one in topic.channels()] for topic in topics.sorted()}
    assert found == {"a": ["c", "e"], "b": ["d"]}
    assert path.samefile(tmp_path / "nsqd.dat.bad")
    (warning,) = [each.getMessage() for each in caplog.records]
    assert warning.startswith(f"{path} cannot be used - ")
    assert warning.endswith(
        ": 2 topics and 3 channels were found by their files, none of them is paused, "
        "those without files are gone; it is kept as nsqd.dat.bad"
    )


def test_each_broken_file_is_kept(topics, tmp_path, loop):
    path = tmp_path / FILE_NAME
    for number, name in enumerate(["nsqd.dat.bad", "nsqd.dat.bad.1", "nsqd.dat.bad.2"]):
        path.write_text(f"broken {number}")
        started(topics, tmp_path, loop).close()
        assert json.loads(path.read_bytes())["version"] == "1.3.0"
        assert (tmp_path / name).read_text() == f"broken {number}"
    assert len(list(tmp_path.iterdir())) == 4


def test_a_folder_or_a_pipe_of_that_name(topics, tmp_path, loop, caplog):
    path = tmp_path / FILE_NAME
    for make in (Path.mkdir, os.mkfifo):
        make(path)
        started(topics, tmp_path, loop).close()
        assert path.is_file()
        path.unlink()
        (warning,) = [each.getMessage() for each in caplog.records if each.levelname == "WARNING"]
        assert "cannot be used - it is no regular file: 0 topics and 0 channels" in warning
        caplog.clear()


def test_a_disk_that_does_not_give_it(topics, tmp_path, monkeypatch, caplog):
    def read(_folder):
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    (tmp_path / FILE_NAME).write_text("{}")
    monkeypatch.setattr(metadata, "read", read)
    assert load(topics, str(tmp_path)) is None
    assert "cannot be used - input/output error: 0 topics" in caplog.text


def test_what_may_not_be_read_is_for_the_operator(topics, tmp_path, monkeypatch):
    def refuse(_path):
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))

    monkeypatch.setattr(metadata.os, "stat", refuse)
    with pytest.raises(
        OptionsError,
        match=rf"^failed to read metadata from {tmp_path}/nsqd.dat - permission denied$",
    ):
        load(topics, str(tmp_path))


@pytest.fixture
def loop():
    made = asyncio.new_event_loop()
    yield made
    made.close()


def started(topics, folder, loop):
    """As a broker does it; the caller closes it."""
    file = MetadataFile(topics, str(folder))
    file.load()
    file.begin(loop)
    return file


def test_an_unchanged_file_is_not_written_again(topics, tmp_path, loop):
    path = tmp_path / FILE_NAME
    started(topics, tmp_path, loop).close()
    before = path.stat()
    leftover = tmp_path / "nsqd.dat.4711.tmp"
    leftover.write_text("{")
    other = tmp_path / "nsqd.dat.mine.tmp"
    other.write_text("{")
    started(topics, tmp_path, loop).close()
    assert (path.stat().st_ino, path.stat().st_mtime_ns) == (before.st_ino, before.st_mtime_ns)
    assert sorted(tmp_path.iterdir()) == [path, other]


def test_no_room_at_the_start(topics, tmp_path, monkeypatch, caplog):
    """It starts, says so once, and writes as soon as it can."""
    (tmp_path / FILE_NAME).write_text('{"topics":[{"name":"t","paused":true}]}')
    (tmp_path / "t:c.diskqueue.000000.dat").write_text("x")
    room = threading.Event()
    real = metadata.write

    def write(folder, data):
        if not room.is_set():
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        real(folder, data)

    monkeypatch.setattr(metadata_file, "write", write)
    monkeypatch.setattr(metadata_file, "RETRY_S", 0.001)

    async def scenario():
        caplog.set_level("INFO")
        file = started(topics, tmp_path, asyncio.get_running_loop())
        for _ in range(3):
            with pytest.raises(OSError, match="space"):
                await file.persist()
        assert file.health == "NOK - failed to persist metadata - no space left on device"
        assert b'"c"' not in (tmp_path / FILE_NAME).read_bytes()
        room.set()
        while file.health != "OK":
            await asyncio.sleep(0.001)
        file.close()

    asyncio.run(scenario())
    assert b'"paused":true,"channels":[{"name":"c"' in (tmp_path / FILE_NAME).read_bytes()
    said = [each.getMessage() for each in caplog.records if each.levelname != "WARNING"]
    assert said == [
        f"NSQ: persisting topic/channel metadata to {tmp_path}/nsqd.dat",
        "failed to persist metadata - no space left on device; tried again every second",
        "NSQ: topic/channel metadata is persisted again",
    ]


def test_an_answer_waits_for_the_file_and_nobody_else_does(topics, tmp_path, monkeypatch):
    may_write = threading.Event()
    real = metadata.write

    def slow_write(folder, data):
        assert may_write.wait(10)
        real(folder, data)

    async def scenario():
        file = started(topics, tmp_path, asyncio.get_running_loop())
        monkeypatch.setattr(metadata_file, "write", slow_write)
        topics.ensure("a").pause()
        first = asyncio.ensure_future(file.persist())
        while not file._is_busy:
            await asyncio.sleep(0)
        topics.ensure("b").pause()
        others = [asyncio.ensure_future(file.persist()) for _ in range(3)]
        await asyncio.sleep(0)
        assert not first.done()
        may_write.set()
        await asyncio.gather(first, *others)
        assert b'"b"' in (tmp_path / FILE_NAME).read_bytes()
        assert file._taken == 3  # at the start, for the first, for all the others
        file.close()

    asyncio.run(scenario())


def test_missing_file_is_a_fresh_start(topics, tmp_path):
    assert load(topics, str(tmp_path)) == b""
    assert topics.found == {}


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


def test_an_older_snapshot_never_wins(topics, tmp_path):
    file = MetadataFile(topics, str(tmp_path))
    older = file._snapshot()
    topics.ensure("t")
    file._write(*file._snapshot())
    file._write(*older)
    assert b'"t"' in (tmp_path / FILE_NAME).read_bytes()


def test_changes_are_gathered_and_ephemeral_ones_cost_nothing(topics, tmp_path, monkeypatch):
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

    async def scenario():
        nonlocal running, both_written
        running = loop = asyncio.get_running_loop()
        both_written = asyncio.Event()
        file = MetadataFile(topics, str(tmp_path))
        file.begin(loop)
        monkeypatch.setattr(metadata_file, "write", slow_write)
        topics.on_change = file.changed
        topics.on_change("topic+", "t#ephemeral", None)
        topics.on_change("channel+", "t", "c#ephemeral")
        await asyncio.sleep(0)
        assert not file._is_busy
        for name in ("a", "b", "c"):
            topics.ensure(name)
            topics.on_change("topic+", name, None)
        await asyncio.sleep(0)
        assert file._is_busy
        for name in ("d", "e"):
            topics.ensure(name)
            topics.on_change("topic+", name, None)
        may_write.set()
        await asyncio.wait_for(both_written.wait(), 10)
        file.close()

    asyncio.run(scenario())
    assert [[t["name"] for t in json.loads(data)["topics"]] for data in written] == [
        list("abc"),
        list("abcde"),
    ]


def test_a_name_waits_for_the_commit_log(topics, tmp_path, monkeypatch):
    """A start takes what the file names for answered, whatever the log has."""
    commits = []
    monkeypatch.setattr(topics, "when_kept", commits.append)

    async def scenario():
        file = MetadataFile(topics, str(tmp_path))
        file.begin(asyncio.get_running_loop())
        topics.ensure("t")
        waiting = asyncio.create_task(file.persist())
        while not commits:
            await asyncio.sleep(0)
        before = (tmp_path / FILE_NAME).read_bytes()
        commits[0](None)
        await asyncio.wait_for(waiting, 60)
        file.close()
        return before

    before = asyncio.run(scenario())
    assert b'"t"' not in before
    assert b'"t"' in (tmp_path / FILE_NAME).read_bytes()


def test_queues_that_the_file_does_not_name(topics, tmp_path, caplog):
    """A kill came before it was written."""
    for name in ("a", "a:c", "b:d", "gone", "bad!name", "a:b:c"):
        (tmp_path / f"{name}.diskqueue.000000.dat").write_bytes(b"" if name == "gone" else b"x")
    for name in ("x.diskqueue.meta.dat", "y.diskqueue.000000.dat.bad"):
        (tmp_path / name).write_bytes(b"x")
    (tmp_path / FILE_NAME).write_text(
        json.dumps({"topics": [{"name": "a", "paused": True, "channels": None}]})
    )
    load(topics, str(tmp_path))
    found = {topic.name: [one.name for one in topic.channels()] for topic in topics.sorted()}
    assert found == {"a": ["c"], "b": ["d"]}
    assert [topic.paused for topic in topics.sorted()] == [True, False]
    assert [record.getMessage() for record in caplog.records if record.levelname == "WARNING"] == [
        "messages of channel c of topic a are here, and nsqd.dat does not name it",
        "messages of channel d of topic b are here, and nsqd.dat does not name it",
    ]


@pytest.mark.parametrize("seed", seeds("metadata listing", 5))
def test_random_changes(tmp_path, seed):
    """What is made anew in parts is what would be made of everything."""
    chance = random.Random(seed)
    topics = make_registry(tmp_path).topics
    file = MetadataFile(topics, str(tmp_path))
    listing = file._listing
    topics.on_change = file.changed
    for _ in range(30):
        for _ in range(chance.choice([0, 1, 5, 300])):
            change(topics, chance)
        steps = listing.write()
        while next(steps, "end") != "end":
            if chance.random() < 0.02:
                change(topics, chance)
        json.loads(listing.text())  # of a moment that never was, but whole
        for _ in listing.write():
            pass
        assert listing.text() == encode(topics)
    topics.on_change = None
    topics.close()


def change(topics, chance):
    name = f"t{chance.randrange(1000)}" + chance.choice(["", "", "#ephemeral"])
    channel = f"c{chance.randrange(100)}" + chance.choice(["", "", "#ephemeral"])
    topic = topics.find(name)
    if topic is None:
        topics.ensure(name)
    elif chance.random() < 0.3:
        topics.delete(name)
    elif topic.find_channel(channel) is None:
        topic.channel(channel)
    else:
        topic.delete_channel(channel)


def test_only_what_changed_is_made_anew(topics):
    listing = Listing(topics)
    for number in range(10_000):
        topics.ensure(f"t{number}")
    assert len(list(listing.write())) == 10_000
    assert list(listing.write()) == []
    topics.ensure("t5").channel("c")
    listing.note("channel+", "t5")
    assert len(list(listing.write())) <= BLOCK_COUNT_MAX + 2
    assert listing.text() == encode(topics)


def test_a_long_list_is_made_in_parts(topics, tmp_path):
    for number in range(1000):
        topics.ensure(f"t{number}")

    async def scenario():
        file = started(topics, tmp_path, asyncio.get_running_loop())
        topics.ensure("t500").pause()
        fix_parts(10 * PIECE_UNITS)
        waiting = asyncio.ensure_future(file.persist())
        turns = 0
        while not waiting.done():
            await asyncio.sleep(0)
            turns += 1
        assert turns >= 100
        file.close()

    try:
        asyncio.run(scenario())
    finally:
        fix_parts(0)
    assert (tmp_path / FILE_NAME).read_bytes() == encode(topics)


def test_writes_are_far_apart(topics, tmp_path, monkeypatch):
    """But for a few that somebody waits for; all the others share the next one."""
    monkeypatch.setattr(metadata_file, "INTERVAL_S", 3600.0)
    monkeypatch.setattr(metadata_file, "BURST_S", 3 * 3600.0)

    async def scenario():
        file = started(topics, tmp_path, asyncio.get_running_loop())
        at_start = file._taken
        for number in range(100):
            topics.ensure(f"t{number}")
            file.changed("topic+", f"t{number}", None)
            await asyncio.sleep(0)
        while file._is_busy:
            await asyncio.sleep(0)
        assert file._taken == at_start + 1
        for number in range(3):
            topics.ensure(f"t{number}").pause()
            await file.persist()
        assert file._taken == at_start + 4
        assert (tmp_path / FILE_NAME).read_bytes() == encode(topics)
        waiting = [asyncio.ensure_future(file.persist()) for _ in range(100)]
        await asyncio.sleep(0)
        loop = asyncio.get_running_loop()
        assert loop.time() + 3000 < file._timer_s < loop.time() + 3600
        file.close()
        await asyncio.gather(*waiting, return_exceptions=True)
        assert file._taken == at_start + 4

    asyncio.run(scenario())
