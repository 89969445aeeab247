"""A start and a stop of many queues say how far they are, and a stop that takes long says so."""

import logging
import os
import resource
from itertools import count

import pytest

from nsqfast.nsqd import metadata
from nsqfast.nsqd.progress import INTERVAL_S, StartProgress, StopProgress
from support.core import make_registry
from support.server import start_nsqd
from support.web import stats
from support.wire import Client

QUEUES = 40
LOW_LIMIT = 100  # of descriptors


class Clock:
    """Goes on by so many seconds whenever somebody looks."""

    def __init__(self, step_s):
        self.step_s, self.now_s = step_s, 0.0

    def __call__(self):
        self.now_s += self.step_s
        return self.now_s


@pytest.fixture
def lines(caplog):
    caplog.set_level(logging.INFO, "nsqd")

    def found(text):
        return [record.getMessage() for record in caplog.records if text in record.getMessage()]

    return found


def fill(folder, queues=QUEUES):
    """A message in the memory of each."""
    registry = make_registry(folder)
    for number in range(queues):
        registry.topics.ensure(f"t{number}").put(b"x")
    return registry


def test_a_stop_tells_how_far_it_is(lines, tmp_path):
    registry = fill(tmp_path)
    registry.topics.close(StopProgress(Clock(INTERVAL_S)))
    told = lines("NSQ: stopping,")
    assert told[0] == f"NSQ: stopping, 0 of {QUEUES} queues are synced, 0 are closed"
    last = f"NSQ: stopping, {QUEUES} of {QUEUES} queues are synced, {QUEUES} are closed"
    assert told[-1] == last


def test_a_start_tells_how_far_it_is(lines, monkeypatch, tmp_path):
    registry = fill(tmp_path)
    metadata.write(tmp_path, metadata.encode(registry.topics))
    registry.topics.close()
    monkeypatch.setattr(metadata, "StartProgress", lambda: StartProgress(Clock(INTERVAL_S)))
    registry = make_registry(tmp_path)
    metadata.load(registry.topics, str(tmp_path))
    told = lines("NSQ: starting,")
    assert told == [f"NSQ: starting, {n} of {QUEUES} queues are open" for n in range(1, QUEUES + 1)]
    assert sum(topic.backend_depth for topic in registry.topics.sorted()) == QUEUES
    registry.topics.close()


def test_a_stop_has_descriptors_enough(tmp_path):
    """What is in memory has no files yet, and there are more queues than descriptors."""

    def lower():
        resource.setrlimit(resource.RLIMIT_NOFILE, (LOW_LIMIT, LOW_LIMIT))

    queues = 2 * LOW_LIMIT
    with start_nsqd("nsqfast", tmp_path, prepare=lower) as server, Client(server.tcp) as client:
        for number in range(queues):
            client.pub(f"t{number}", b"x")
    with start_nsqd("nsqfast", tmp_path) as server:
        found = {topic["topic_name"]: topic["depth"] for topic in stats(server.http)["topics"]}
    assert found == {f"t{number}": 1 for number in range(queues)}


def test_no_file_is_replaced_before_all_are_made(monkeypatch, tmp_path):
    """Of what was in memory: each file that goes makes those that come later dearer on ext4."""
    registry = fill(tmp_path)
    steps = count()
    made, replaced = [], []
    open_file, rename = os.open, os.rename

    def note_open(path, flags, *rest):
        if flags & os.O_CREAT:
            made.append(next(steps))
        return open_file(path, flags, *rest)

    def note_rename(old, new):
        if os.path.lexists(new):
            replaced.append(next(steps))
        rename(old, new)

    monkeypatch.setattr(os, "open", note_open)
    monkeypatch.setattr(os, "rename", note_rename)
    registry.topics.close()
    assert len(made) == 3 * QUEUES  # data, ack file, metadata
    assert replaced == []
