"""Parts end after what they have done, not with the time it took: a loaded machine must change no result."""

import os

import pytest
from nsqfast._ext.dev.commit_rings import OpenRing
from nsqfast._ext.dev.probes import fix_parts, shift_wall
from nsqfast._ext.storage.diskqueue.syncer import Syncer

from support.log_scene import Scene

ENDLESS = 1 << 40
RING_SIZE = 4 * 64 * 1024
# About the broker alone: these run on each engine, but for tests marked `disk`.
BROKER_MODULES = (
    "test_channel",
    "test_deferral_end",
    "test_embedded",
    "test_held",
    "test_request",
    "test_session",
    "test_topology",
)


def pytest_generate_tests(metafunc):
    is_disk = any(mark.name == "disk" for mark in metafunc.definition.iter_markers())
    if metafunc.module.__name__.rpartition(".")[2] in BROKER_MODULES and not is_disk:
        metafunc.parametrize("engine", ["diskqueue", "memory"], indirect=True)


@pytest.fixture(autouse=True)
def engine(request, monkeypatch):
    """What keeps the messages of registries that a test makes."""
    monkeypatch.setenv("NSQFAST_ENGINE", getattr(request, "param", "diskqueue"))


@pytest.fixture(autouse=True)
def endless_parts():
    """Long work is done at once, unless a test says how much of it makes a part."""
    fix_parts(ENDLESS)
    yield
    fix_parts(0)


@pytest.fixture
def quick_disk(monkeypatch):
    """What survives a power failure is not tested here, so the metadata need not reach the disk."""
    monkeypatch.setattr(os, "fsync", lambda _: None)


@pytest.fixture
def syncer():
    syncer = Syncer()
    yield syncer
    syncer.close()


@pytest.fixture
def opened_rings():
    """Rings of the commit log, which are closed in the end."""
    rings = []
    yield rings
    for ring in rings:
        ring.close()


@pytest.fixture
def open_ring(tmp_path, opened_rings):
    def open_(size=RING_SIZE, **options):
        opened_rings.append(OpenRing(str(tmp_path / "log"), size, **options))
        return opened_rings[-1]

    return open_


@pytest.fixture
def true_wall():
    yield
    shift_wall(0)


@pytest.fixture
def folder(tmp_path):
    folder = tmp_path / "data"
    folder.mkdir()
    return folder


@pytest.fixture
def open_scene(folder, true_wall):
    """Start a broker with a commit log; what is still open in the end is stopped, and the clock is right again."""
    scenes = []

    def open_(mode="always", **options):
        scenes.append(Scene(folder, mode, **options))
        return scenes[-1]

    yield open_
    for scene in scenes:
        scene.registry.topics.close()
