"""A clean stop that is killed between any two of its calls."""

import os
import resource
from contextlib import suppress

import pytest
from nsqfast._ext.storage.diskqueue.segment import forget_folder

from nsqfast.nsqd import metadata
from support.core import make_registry

QUEUES = 3
CALLS = ("open", "rename", "unlink", "posix_fallocate")


class Killed(BaseException):
    """Nothing after it happens."""


class Killer:
    """Lets so many of the calls pass that change files."""

    def __init__(self, monkeypatch, calls_left):
        self.calls_left = calls_left
        self.is_over = False
        for name in CALLS:
            monkeypatch.setattr(os, name, self.wrap(getattr(os, name)))

    def wrap(self, call):
        def limited(*words):
            if self.calls_left == 0:
                self.is_over = True
                raise Killed
            self.calls_left -= 1
            return call(*words)

        return limited


def fill(folder, first):
    """What the folder holds, and one more message for each queue."""
    registry = make_registry(folder)
    metadata.load(registry.topics, str(folder))
    for number in range(QUEUES):
        registry.topics.ensure(f"t{number}").channel("c")
        registry.topics.ensure(f"t{number}").put(b"%d" % first)
    metadata.write(folder, metadata.encode(registry.topics))
    return registry


def kill_stop(folder, first, calls):
    """Queues that were synced when it was killed after so many calls; None if it came to its end before."""
    told = [(2 * QUEUES, 0, 0)]
    registry = fill(folder, first)
    with pytest.MonkeyPatch.context() as patch:
        killer = Killer(patch, calls)
        with suppress(Killed):
            registry.topics.close(lambda *counts: told.append(counts))
    forget_folder()
    return told[-1] if killer.is_over else None


def depths(folder):
    registry = make_registry(folder)
    metadata.load(registry.topics, str(folder))
    found = [
        topic.backend_depth + sum(channel.backend_depth for channel in topic.channels())
        for topic in registry.topics.sorted()
    ]
    registry.topics.close()
    return found


@pytest.mark.parametrize("has_files", [False, True])
def test_killed_between_two_calls(has_files, tmp_path):
    calls, counts = 0, ()
    while counts is not None:
        folder = tmp_path / str(calls)
        folder.mkdir()
        if has_files:
            fill(folder, 0).topics.close()
        counts = kill_stop(folder, 1, calls)
        found = depths(folder)
        assert all(has_files <= depth <= has_files + 1 for depth in found), (calls, found)
        if counts is None or counts[1] == 2 * QUEUES:
            assert found == [has_files + 1] * QUEUES, calls
        calls += 1
    assert calls > 2 * QUEUES


def test_all_groups_are_closed(tmp_path):
    """There are fewer descriptors than the queues together need."""
    registry = fill(tmp_path, 0)
    for number in range(100):
        registry.topics.ensure(f"more{number}").put(b"x")
    metadata.write(tmp_path, metadata.encode(registry.topics))
    told = []
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    open_count = len(os.listdir("/proc/self/fd"))
    resource.setrlimit(resource.RLIMIT_NOFILE, (open_count + 80, before[1]))
    try:
        registry.topics.close(lambda *counts: told.append(counts))
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)
    assert told[-1] == (106, 106, 106)
    assert len({closed for _, _, closed in told}) > 4
    assert depths(tmp_path) == [1] * 103
