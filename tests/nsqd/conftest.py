"""Clients that are closed when their test is over, however it ends; a topic of its own for a test."""

import pytest

from support.topics import make
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


@pytest.fixture
def topic(broker, request):
    """With a channel c, of the module's broker."""
    name = "".join(char if char.isalnum() else "-" for char in request.node.name)[:60]
    make(broker, name)
    return name
