"""Brokers of both implementations, and topics of their own."""

import itertools
import tempfile
from pathlib import Path

import pytest

from support.server import start_nsqd

TOPIC_NUMBERS = itertools.count(1)


@pytest.fixture(scope="module", params=["nsqfast", pytest.param("go", marks=pytest.mark.go)])
def implementation(request):
    return request.param


@pytest.fixture(scope="module")
def broker(implementation, tmp_path_factory):
    with start_nsqd(implementation, tmp_path_factory.mktemp(implementation)) as server:
        yield server


@pytest.fixture
def address(broker):
    return "{}:{}".format(*broker.tcp)


@pytest.fixture
def memory_folder():
    """Where no file waits for a disk: for tests that say how long the tool may take."""
    with tempfile.TemporaryDirectory(prefix="nsqfast-", dir="/dev/shm") as folder:
        yield Path(folder)


@pytest.fixture
def topic():
    """A topic that no other test has."""
    return f"topic-{next(TOPIC_NUMBERS)}"
