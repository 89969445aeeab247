"""When nsqlookupd shows a producer and when not: Go's and ours with short times."""

import time

import pytest

from support.lookup import Node, nodes, producers, topics
from support.server import start_nsqlookupd
from support.waiting import wait_until
from support.web import get, post

pytestmark = pytest.mark.slow

SHORT_S = 0.5
SECONDS_MAX = 20.0  # the defaults are 45 s and more


@pytest.fixture
def start(implementation):
    """Starts one with these flags; stops it when the test is over."""
    servers = []

    def make(*flags):
        servers.append(start_nsqlookupd(implementation, *flags))
        return servers[-1]

    yield make
    for server in servers:
        server.stop()


def test_inactive(start):
    lookupd = start(f"--inactive-producer-timeout={SHORT_S}s")
    with Node(lookupd.tcp) as node:
        begun = time.monotonic()
        node.identify()
        node.register("t", "c")
        assert producers(lookupd.http, "t") == [node.remote]
        wait_until(lambda: producers(lookupd.http, "t") == [])
        assert SHORT_S * 0.95 <= time.monotonic() - begun < SECONDS_MAX
        # Hidden, not forgotten: names stay, REGISTER does not bring it back, PING does.
        assert nodes(lookupd.http) == []
        assert topics(lookupd.http) == ["t"]
        assert len(get(lookupd.http, "/debug").json()) == 3
        node.register("t", "c")
        assert producers(lookupd.http, "t") == []
        assert node.ask(b"PING") == b"OK"
        assert producers(lookupd.http, "t") == [node.remote]
        assert [one["remote_address"] for one in nodes(lookupd.http)] == [node.remote]


def test_a_tombstone_expires(start):
    lookupd = start(f"--tombstone-lifetime={SHORT_S}s")
    with Node(lookupd.tcp) as node:
        node.identify()
        node.register("t", "c")
        begun = time.monotonic()
        post(lookupd.http, "/topic/tombstone?topic=t&node=bc.example:2222")
        assert producers(lookupd.http, "t") == []
        assert nodes(lookupd.http)[0]["topics"] == {"t": True}
        wait_until(lambda: producers(lookupd.http, "t") == [node.remote])
        assert SHORT_S * 0.95 <= time.monotonic() - begun < SECONDS_MAX
        assert nodes(lookupd.http)[0]["topics"] == {"t": False}
        assert get(lookupd.http, "/debug").json()["topic:t:"][0]["tombstoned"] is True
