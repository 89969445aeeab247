"""One set of connections per test."""

import pytest

from support.server import LOG_MODES
from support.wire import MAGIC, SECONDS_MAX, Client

OTHER_WAYS = ("memory", *LOG_MODES)


@pytest.fixture(
    scope="module",
    params=[
        "nsqfast",
        "memory",
        *(pytest.param(mode, marks=pytest.mark.soak) for mode in LOG_MODES),
        pytest.param("go", marks=pytest.mark.go),
    ],
)
def implementation(request):
    """Whose daemons a test talks to, and what keeps the messages of ours."""
    return request.param


def belongs(item):
    """Transcripts alone are of the other ways, too: what a client sees does not depend on where messages are."""
    way = next((way for way in OTHER_WAYS if f"[{way}" in item.name), None)
    if way is None or "implementation" not in item.fixturenames:
        return True
    is_missing = way == "memory" and item.get_closest_marker("disk")
    return item.path.name.startswith("test_transcripts_") and not is_missing


def pytest_collection_modifyitems(items):
    items[:] = [item for item in items if belongs(item)]


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
