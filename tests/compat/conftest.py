"""One broker per module and implementation; one set of connections per test.

A module may set NSQD_FLAGS (more flags) and NSQD_METADATA (the nsqd.dat it starts with).
"""

import itertools
import json

import pytest

from support.server import start_nsqd
from support.wire import MAGIC, SECONDS_MAX, Client


@pytest.fixture(scope="module", params=["nsqfast", pytest.param("go", marks=pytest.mark.go)])
def implementation(request):
    return request.param


@pytest.fixture(scope="module")
def broker(request, implementation, tmp_path_factory):
    folder = tmp_path_factory.mktemp(implementation)
    metadata = getattr(request.module, "NSQD_METADATA", None)
    if metadata is not None:
        (folder / "nsqd.dat").write_text(json.dumps(metadata))
    flags = getattr(request.module, "NSQD_FLAGS", ())
    with start_nsqd(implementation, folder, *flags) as server:
        yield server


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


TOPIC_NUMBERS = itertools.count(1)


@pytest.fixture
def topic():
    """A topic that no other test has."""
    return f"topic-{next(TOPIC_NUMBERS)}"
