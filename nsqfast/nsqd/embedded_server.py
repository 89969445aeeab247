"""The server of an embedded broker, whose topics can do more, and which any event loop can run."""

import asyncio

from nsqfast._ext.broker.embedded import EmbeddedTopics
from nsqfast._ext.server.connection import BrokerConnection
from nsqfast.nsqd.server import Server


class EmbeddedConnection(BrokerConnection, asyncio.BufferedProtocol):
    """asyncio's own loop looks at the base class; uvloop, in which programs run, does not."""


class EmbeddedServer(Server):
    """See `nsqfast.nsqd.embedded`."""

    topics_type = EmbeddedTopics
    connection_type = EmbeddedConnection

    @property
    def topics(self) -> EmbeddedTopics:
        """Those of its registry, by what they are."""
        assert isinstance(self.registry.topics, EmbeddedTopics)
        return self.registry.topics
