"""Parts end after what they have done, not with the time it took: a loaded machine must change no result."""

import os

import pytest
from nsqfast._ext.dev.probes import fix_parts
from nsqfast._ext.storage.diskqueue.syncer import Syncer

ENDLESS = 1 << 40


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
