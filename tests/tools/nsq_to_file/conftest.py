"""A folder in memory."""

import tempfile
from pathlib import Path

import pytest


@pytest.fixture
def memory_folder():
    """Where no file waits for a disk: for tests that say how long the tool may take."""
    with tempfile.TemporaryDirectory(prefix="nsqfast-", dir="/dev/shm") as folder:
        yield Path(folder)
