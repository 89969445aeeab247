"""Clients that are closed when their test is over, however it ends."""

import pytest

from support.wire import MAGIC, Client


@pytest.fixture
def connect():
    """Makes a client of the server at that address."""
    clients = []

    def make(address, first=MAGIC):
        clients.append(Client(address, first))
        return clients[-1]

    yield make
    for client in clients:
        client.close()
