"""One set of connections per test."""

import pytest

from support.wire import MAGIC, SECONDS_MAX, Client


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
