"""A broker of ours, and a spool of its own for each test."""

import pytest

from nsqfast.spark.spool.identity import open_spool
from support.server import start_nsqd


@pytest.fixture(scope="module")
def ours(tmp_path_factory):
    """One of ours, for what the broker has no part in."""
    with start_nsqd("nsqfast", tmp_path_factory.mktemp("ours")) as server:
        yield server


@pytest.fixture
def folder(tmp_path):
    """Of a spool, which is not there yet."""
    return tmp_path / "spool"


@pytest.fixture
def spool(tmp_path):
    """One of channel c of topic t."""
    open_spool(tmp_path, "t", "c")
    return tmp_path
