"""Brokers of both implementations, a topic and a spool of their own for each test."""

import itertools

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


@pytest.fixture(scope="module")
def ours(tmp_path_factory):
    """One of ours, for what the broker has no part in."""
    with start_nsqd("nsqfast", tmp_path_factory.mktemp("ours")) as server:
        yield server


@pytest.fixture
def topic():
    """A topic that no other test has."""
    return f"topic-{next(TOPIC_NUMBERS)}"


@pytest.fixture
def folder(tmp_path):
    """Of a spool, which is not there yet."""
    return tmp_path / "spool"
