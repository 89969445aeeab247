"""The server of an embedded broker, whose registry can do more, and which any event loop can run."""

import asyncio

from nsqfast._ext.broker.embedded import EmbeddedRegistry
from nsqfast._ext.server.connection import BrokerConnection
from nsqfast.nsqd.server import Server


class EmbeddedConnection(BrokerConnection, asyncio.BufferedProtocol):
    """asyncio's own loop looks at the base class; uvloop, in which programs run, does not."""


class EmbeddedServer(Server):
    """See `nsqfast.nsqd.embedded`."""

    registry_type = EmbeddedRegistry
    connection_type = EmbeddedConnection
    registry: EmbeddedRegistry
