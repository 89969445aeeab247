"""What one more queue on disk costs: counted in calls, not in time."""

import os
from pathlib import Path

import pytest
from nsqfast._ext.core.clock import now
from nsqfast._ext.dev.probes import fix_parts
from nsqfast._ext.storage.diskqueue.segment import Segment, forget_folder, listed_once

from nsqfast.nsqd.metadata import load
from support.core import Peer, make_registry

QUEUE_COUNT = 40
PERIOD_NS = 10**9


def pub(topic, body):
    return b"PUB %s\n" % topic.encode() + len(body).to_bytes(4, "big") + body


def sync_all(registry):
    """All fsyncs that were asked for, and what follows from them."""
    registry.turn.end()
    for _ in range(3):
        registry.durability.store.syncer.wait(registry.durability.store.syncer.open_ticket - 1)
        registry.turn.on_synced()
        registry.turn.end()


@pytest.fixture
def made(tmp_path):
    """registry(): started with what the folder holds; closed at the end."""
    found = []

    def make(folder=tmp_path, **options):
        registry = make_registry(folder, **{"mem_queue_size": 0} | options)
        found.append(registry)
        load(registry.topics, str(folder) or str(Path.cwd()))
        return registry

    yield make
    fix_parts(0)
    for registry in found:
        registry.topics.close()
    forget_folder()


@pytest.fixture
def listings(monkeypatch):
    found = []
    scandir = os.scandir

    def count(path):
        found.append(path)
        return scandir(path)

    monkeypatch.setattr(os, "scandir", count)
    return found


def test_a_new_queue_does_not_list_the_folder(made, listings):
    registry = made()
    peer = Peer(registry)
    begun = len(listings)
    for number in range(QUEUE_COUNT):
        registry.topics.ensure(f"t{number}").channel("c")
        peer.send(pub(f"t{number}", b"x"))
    registry.turn.end()
    for number in range(QUEUE_COUNT):
        registry.topics.delete(f"t{number}")
        registry.topics.ensure(f"t{number}").channel("c")
    assert len(listings) == begun


def test_a_start_tries_no_file_of_a_queue_that_has_none(made, monkeypatch, tmp_path):
    """But all of one that has any: the metadata alone says where its first file is to begin."""
    names = [f"t{number}" for number in range(QUEUE_COUNT)]
    text = ",".join(f'{{"name":"{name}","channels":[{{"name":"c"}}]}}' for name in names)
    (tmp_path / "nsqd.dat").write_text(f'{{"topics":[{text}]}}')
    (tmp_path / "t7:c.diskqueue.meta.dat").write_text("0\n5,0\n5,0\n")
    opened, open_file = [], os.open

    def note(path, *args, **kwargs):
        opened.append(Path(path).name)
        return open_file(path, *args, **kwargs)

    monkeypatch.setattr(os, "open", note)
    registry = made()
    tried = [name for name in opened if ".diskqueue." in name]
    assert tried == ["t7:c.diskqueue.meta.dat", "t7:c.diskqueue.acks.dat"]
    monkeypatch.undo()
    Peer(registry).send(pub("t7", b"x"))
    registry.turn.end()
    assert [path.name for path in tmp_path.glob("*.000*")] == ["t7:c.diskqueue.000005.dat"]


@pytest.mark.parametrize("name", ["meta.dat", "acks.dat", "deferred.dat", "000000.dat"])
def test_a_queue_that_left_something_is_listed(made, listings, tmp_path, name):
    """It was no topic at the start, and its files are put there by hand."""
    registry = made()
    begun = len(listings)
    record = (27).to_bytes(4, "big") + bytes(10) + b"0" * 16 + b"x"
    (tmp_path / f"t.diskqueue.{name}").write_bytes(b"")
    (tmp_path / "t.diskqueue.000003.dat").write_bytes(record)
    assert registry.topics.ensure("t").backend_depth == 1
    assert len(listings) > begun


def test_a_queue_that_was_not_opened_at_the_start_is_listed(made, listings, tmp_path):
    """An empty file makes no topic, and what is behind it counts."""
    (tmp_path / "t.diskqueue.000003.dat").touch()
    registry = made()
    begun = len(listings)
    registry.topics.ensure("t")
    assert len(listings) > begun


def test_what_could_not_be_removed_is_found_when_the_queue_is_made_again(
    made, listings, monkeypatch, tmp_path
):
    registry = made(max_bytes_per_file=100)
    peer = Peer(registry)
    for _ in range(8):
        peer.send(pub("t", b"x" * 50))
    registry.turn.end()
    unlink, kept = os.unlink, str(tmp_path / "t.diskqueue.000003.dat")

    def refuse(path):
        if path == kept:
            raise PermissionError(1, "Operation not permitted", path)
        unlink(path)

    monkeypatch.setattr(os, "unlink", refuse)
    registry.topics.delete("t")
    gone = []
    registry.topics.when_removed(lambda: gone.append(True))
    while not gone:
        registry.timers.run(now()[1] + 2)
    assert [path.name for path in tmp_path.iterdir()] == [Path(kept).name]
    begun = len(listings)
    registry.topics.ensure("t")
    assert len(listings) > begun


def test_a_folder_that_was_not_listed_is_asked(listings, tmp_path):
    """A second broker of the process starts elsewhere."""
    with listed_once(str(tmp_path)):
        pass
    (tmp_path / "other").mkdir()
    registry = make_registry(tmp_path / "other", mem_queue_size=0)
    begun = len(listings)
    registry.topics.ensure("t")
    assert len(listings) > begun
    registry.topics.close()


def test_a_start_in_the_folder_where_it_stands(made, monkeypatch, tmp_path):
    """Without --data-path names are relative, and the messages are found all the same, and not written over."""
    monkeypatch.chdir(tmp_path)
    for number in range(3):
        registry = made("")
        assert registry.topics.ensure("t").backend_depth == number
        Peer(registry).send(pub("t", b"x"))
        registry.turn.end()
        registry.topics.close()
    segment = Segment(str(tmp_path / "t.diskqueue.000000.dat"))
    assert segment.records() == [(0, 31), (31, 62), (62, 93)]
