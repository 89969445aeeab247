"""One set of connections per test."""

import pytest

from support.wire import MAGIC, SECONDS_MAX, Client


@pytest.fixture(
    scope="module", params=["nsqfast", "memory", pytest.param("go", marks=pytest.mark.go)]
)
def implementation(request):
    """Whose daemons a test talks to, and what keeps the messages of ours."""
    return request.param


def pytest_collection_modifyitems(items):
    """Transcripts alone are of the engine in memory, too: what a client sees does not depend on where messages are."""
    items[:] = [
        item
        for item in items
        if "[memory" not in item.name
        or (item.path.name.startswith("test_transcripts_") and not item.get_closest_marker("disk"))
    ]


@pytest.fixture
def connect(broker):
    """Makes a client whose magic is sent; closes it when the test is over."""
    clients = []

    def make(magic=MAGIC, seconds_max=SECONDS_MAX):
        client = Client(broker.tcp, magic, seconds_max)
        clients.append(client)
        return client

    yield make
    for client in clients:
        client.close()


@pytest.fixture
def client(connect):
    return connect()
