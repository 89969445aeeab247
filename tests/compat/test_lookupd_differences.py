"""Where nsqfast-nsqlookupd differs from Go's on purpose: each test says what Go does."""

import struct

import pytest

from support.lookup import Node, channels, identify_as, producers, topics
from support.prometheus import scrape
from support.server import start_nsqlookupd
from support.web import get, post

INVALID = (400, b'{"message":"INVALID_ARG_TOPIC"}')


@pytest.fixture(scope="module")
def lookupd():
    with start_nsqlookupd("nsqfast") as server:
        yield server


@pytest.fixture
def node(lookupd):
    with Node(lookupd.tcp) as node:
        node.identify()
        yield node


@pytest.mark.parametrize("name", ["*", "", "a!", "x" * 65])
def test_a_name_that_cannot_be_deletes_nothing(lookupd, node, topic, name):
    """Go takes `*` for all topics and deletes them, and says 200 to the others."""
    node.register(topic, "c")
    answer = post(lookupd.http, f"/topic/delete?topic={name}")
    assert (answer.status, answer.body) == INVALID
    assert topics(lookupd.http).count(topic) == 1
    answer = post(lookupd.http, f"/topic/tombstone?topic={name}&node=bc.example:2222")
    assert (answer.status, answer.body) == INVALID
    assert producers(lookupd.http, topic) == [node.remote]


def test_a_star_finds_nothing(lookupd, node, topic):
    """Go lists the channels of all topics."""
    node.register(topic, "c")
    assert channels(lookupd.http, "*") == []
    assert get(lookupd.http, "/lookup?topic=*").status == 404


@pytest.mark.parametrize("target", ["fd00::1:7", "[fd00::1]:7"])
def test_tombstones_of_ipv6(lookupd, topic, target):
    """Go compares without brackets, and its nsqadmin sends them."""
    with Node(lookupd.tcp) as node:
        node.identify(broadcast_address="fd00::1", http_port=7)
        node.register(topic)
        assert post(lookupd.http, f"/topic/tombstone?topic={topic}&node={target}").status == 200
        assert producers(lookupd.http, topic) == []


@pytest.mark.parametrize("size", [-1, -(2**31), 2**31 - 1])
def test_body_sizes(lookupd, node, size):
    """A negative one ends Go's process, a huge one makes it take as much memory."""
    with Node(lookupd.tcp) as hostile:
        hostile.send(b"IDENTIFY\n" + struct.pack(">i", size))
        assert hostile.read() == b"E_BAD_BODY IDENTIFY failed to read body size"
        assert hostile.read_to_end() == b""
    assert node.ask(b"PING") == b"OK"


NO_HOST = [
    "a b",
    "a/b",
    "a@b",
    "a?b",
    "a\n",
    "[::1",
    "::1]",
    "é",
    "-a",
    "a:1",
    "<b>",
    "a%b",
    ".",
    "x" * 257,
]
STRANGE = [
    *({name: text} for name in ("broadcast_address", "hostname") for text in NO_HOST),
    *({name: port} for name in ("tcp_port", "http_port") for port in (-1, 65536, 2**63 - 1)),
    *({name: "x" * 257} for name in ("version", "topology_zone", "topology_region")),
    *({name: "x\x1b[2J"} for name in ("version", "topology_zone", "topology_region")),
]


@pytest.mark.parametrize("changed", STRANGE)
def test_an_identity_that_cannot_be(lookupd, changed):
    """Go takes it, and consumers connect to it."""
    refused = scrape(lookupd.http).value("nsq_refused_total", reason="bad_identity")
    with Node(lookupd.tcp) as node:
        node.send(identify_as(**changed))
        (name,) = changed
        assert node.read().startswith(f"E_BAD_BODY IDENTIFY {name} ".encode())
        assert node.read_to_end() == b""
        remote = node.remote
    metrics = scrape(lookupd.http)
    assert metrics.value("nsq_refused_total", reason="bad_identity") == refused + 1
    lookupd.wait_for_line(f"client({remote}) - E_BAD_BODY IDENTIFY {name}")


def test_answers_are_sorted(lookupd):
    """Go's come in another order each time."""
    nodes = []
    for number in (3, 1, 2):
        node = Node(lookupd.tcp)
        node.identify(broadcast_address=f"sorted-{number}")
        for name in "cab":
            node.register("sorted-" + name, "z" + name)
            node.register("sorted", name)
        nodes.append(node)
    found = get(lookupd.http, "/lookup?topic=sorted").json()
    assert found["channels"] == ["a", "b", "c"]
    addresses = [one["broadcast_address"] for one in found["producers"]]
    assert addresses == ["sorted-1", "sorted-2", "sorted-3"]
    shown = [
        (one["broadcast_address"], one["topics"])
        for one in get(lookupd.http, "/nodes").json()["producers"]
    ]
    names = ["sorted", "sorted-a", "sorted-b", "sorted-c"]
    assert shown == [(address, names) for address in addresses]
    for target, key in (("/topics", "topics"), ("/channels?topic=sorted", "channels")):
        listed = get(lookupd.http, target).json()[key]
        assert listed == sorted(listed)
    for node in nodes:
        node.close()


def test_an_error_arrives_whatever_follows(lookupd):
    """With unread bytes behind an error Go's close can turn into a reset without an answer."""
    for _ in range(20):
        with Node(lookupd.tcp, b"GET / HTTP/1.1\r\nHost: x\r\n\r\n") as node:
            assert node.read_to_end() == b"\0\0\0\x0eE_BAD_PROTOCOL"
