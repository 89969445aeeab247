"""nsqlookupd's TCP protocol: the same conversations with Go's and ours."""

import json
import socket

import pytest

from support.lookup import (
    MAGIC,
    WHO,
    Node,
    channels,
    encode_identify,
    identify_as,
    lookup,
    nodes,
    producers,
    topics,
)
from support.server import start_nsqlookupd
from support.waiting import wait_until
from support.web import get, post


@pytest.fixture(scope="module")
def lookupd(implementation):
    with start_nsqlookupd(implementation) as server:
        yield server


@pytest.fixture
def connect(lookupd):
    """Makes a connection; closes it when the test is over."""
    made = []

    def make(magic=MAGIC):
        made.append(Node(lookupd.tcp, magic))
        return made[-1]

    yield make
    for node in made:
        node.close()


@pytest.fixture
def node(connect):
    """One that has said who it is."""
    node = connect()
    node.identify()
    return node


# ---- magic and framing


@pytest.mark.parametrize("magic", [b"  V2", b"V1  ", b"\0\0\0\0", b"GET "])
def test_bad_magic(connect, magic):
    assert connect(magic).read_to_end() == b"\0\0\0\x0eE_BAD_PROTOCOL"


@pytest.mark.parametrize("magic", [b"", b"  V"])
def test_end_before_the_magic(connect, magic):
    node = connect(magic)
    node.shut()
    assert node.read_to_end() == b""


@pytest.mark.parametrize("line", [b"PING", b"PING a b", b"  PING \t", b"PING\r", b"PING  x"])
def test_ping(connect, line):
    node = connect()
    node.send(line + b"\n")
    node.shut()
    assert node.read_to_end() == b"\0\0\0\2OK"


def test_pipelining(connect):
    node = connect()
    node.send(b"PING\n" + identify_as() + b"REGISTER pipelined c\nPING\nREGISTER !\nPING\n")
    assert node.read() == b"OK"
    assert json.loads(node.read())["version"] == "1.3.0"
    assert [node.read() for _ in range(2)] == [b"OK", b"OK"]
    assert node.read() == b"E_BAD_TOPIC REGISTER topic name '!' is not valid"


def test_byte_by_byte(connect, lookupd):
    node = connect(b"")
    for byte in MAGIC + b"PING\n" + identify_as() + b"REGISTER bytewise c\n":
        node.send(bytes([byte]))
    assert node.read() == b"OK"
    node.read()
    assert node.read() == b"OK"
    assert producers(lookupd.http, "bytewise") == [node.remote]


def test_half_a_line_at_the_end(connect):
    node = connect()
    node.send(b"PING\nPIN")
    node.shut()
    assert node.read_to_end() == b"\0\0\0\2OK"


# ---- IDENTIFY


def test_identity(connect, lookupd):
    node = connect()
    node.send(identify_as())
    answer = node.read()
    assert list(json.loads(answer)) == sorted(json.loads(answer))
    assert json.loads(answer) == {
        "broadcast_address": "127.0.0.1",
        "hostname": socket.gethostname(),
        "http_port": lookupd.http[1],
        "tcp_port": lookupd.tcp[1],
        "version": "1.3.0",
    }
    assert b" " not in answer


GOOD = [
    {"hostname": None},
    {"extra": {"a": [1]}},
    {"BROADCAST_ADDRESS": "other"},
    {"remote_address": "1.2.3.4:5"},
    {"remote_address": None},
    {"version": "<&>é"},
    {"hostname": ""},
    {"broadcast_address": "a_b.c-d"},
    {"broadcast_address": "fe80::1%eth0"},
    {"broadcast_address": "[fe80::1%eth0]"},
    {"broadcast_address": "::ffff:10.0.0.1", "hostname": "x" * 253},
    {"http_port": 65535, "tcp_port": 1},
]
BAD = [
    {"broadcast_address": ""},
    {"broadcast_address": None},
    {"tcp_port": 0},
    {"http_port": 0},
    {"http_port": None},
    {"version": ""},
]
UNDECODABLE = [
    {"tcp_port": 1.5},
    {"tcp_port": "1"},
    {"tcp_port": 2**63},
    {"version": 1},
    {"hostname": ["a"]},
    {"remote_address": 5},
]
BODIES = [
    (b"", "failed to decode JSON body"),
    (b"[]", "failed to decode JSON body"),
    (b"1", "failed to decode JSON body"),
    (b"{", "failed to decode JSON body"),
    (b"{} x", "failed to decode JSON body"),
    (b'{"tcp_port":1e2}', "failed to decode JSON body"),
    (b'{"hostname":NaN}', "failed to decode JSON body"),
    (b"null", "missing fields"),
    (b"{}", "missing fields"),
]


@pytest.mark.parametrize("changed", GOOD)
def test_who_is_taken(connect, lookupd, changed):
    node = connect()
    node.identify(**changed)
    (found,) = [one for one in nodes(lookupd.http) if one["remote_address"] == node.remote]
    expected = dict(WHO)
    for name, value in changed.items():
        if name.lower() in WHO:
            expected[name.lower()] = value or ""
    assert found == expected | {"remote_address": node.remote, "topics": {}}


def test_half_a_surrogate_pair(connect, lookupd):
    node = connect()
    body = json.dumps(WHO).replace('"1.3.0"', r'"a\ud800b"')
    node.send(encode_identify(body.encode()))
    node.read()
    (found,) = [one for one in nodes(lookupd.http) if one["remote_address"] == node.remote]
    assert found["version"] == "a\ufffdb"


@pytest.mark.parametrize(
    ("command", "text"),
    [
        *((identify_as(**changed), "missing fields") for changed in BAD),
        *((identify_as(**changed), "failed to decode JSON body") for changed in UNDECODABLE),
        *((encode_identify(body), text) for body, text in BODIES),
    ],
)
def test_who_is_refused(connect, command, text):
    node = connect()
    node.send(command)
    assert node.read() == f"E_BAD_BODY IDENTIFY {text}".encode()
    assert node.read_to_end() == b""


@pytest.mark.parametrize(
    ("sent", "text"),
    [
        (b"", "failed to read body size"),
        (b"\0\0", "failed to read body size"),
        (b"\0\0\0\2", "failed to read body"),
        (b"\0\0\0\2{", "failed to read body"),
    ],
)
def test_identify_cut_short(connect, sent, text):
    node = connect()
    node.send(b"IDENTIFY\n" + sent)
    node.shut()
    assert node.read() == f"E_BAD_BODY IDENTIFY {text}".encode()
    assert node.read_to_end() == b""


def test_identify_again(node):
    # Without a body: Go does not read it, and its close may then become a reset.
    assert node.ask(b"IDENTIFY") == b"E_INVALID cannot IDENTIFY again"
    assert node.read_to_end() == b""


# ---- errors


@pytest.mark.parametrize(
    "word", [b"ping", b"", b"SUB", b"NOP", b"X\xc3\xa9", b"\xff", b"REGISTER\tt"]
)
def test_unknown_command(node, word):
    assert node.ask(word) == b"E_INVALID invalid command " + word
    assert node.read_to_end() == b""


@pytest.mark.parametrize("line", [b"REGISTER t", b"UNREGISTER t c", b"REGISTER", b"REGISTER !"])
def test_before_identify(connect, line):
    node = connect()
    assert node.ask(line) == b"E_INVALID client must IDENTIFY"
    assert node.read_to_end() == b""


LONG = b"x" * 65
WRONG = [
    (b"", b"E_INVALID % insufficient number of params"),
    (b"  c", b"E_BAD_TOPIC % topic name '' is not valid"),
    (b" a!", b"E_BAD_TOPIC % topic name 'a!' is not valid"),
    (b" " + LONG, b"E_BAD_TOPIC % topic name '" + LONG + b"' is not valid"),
    (b" #ephemeral", b"E_BAD_TOPIC % topic name '#ephemeral' is not valid"),
    (b" \xff", b"E_BAD_TOPIC % topic name '\xff' is not valid"),
    (b" *", b"E_BAD_TOPIC % topic name '*' is not valid"),
    (b" t c!", b"E_BAD_CHANNEL % channel name 'c!' is not valid"),
    (b" t " + LONG, b"E_BAD_CHANNEL % channel name '" + LONG + b"' is not valid"),
    (b" t!  c!", b"E_BAD_TOPIC % topic name 't!' is not valid"),
]


@pytest.mark.parametrize("command", [b"REGISTER", b"UNREGISTER"])
@pytest.mark.parametrize(("words", "error"), WRONG)
def test_bad_names(node, lookupd, command, words, error):
    node.register("survivor")
    assert node.ask(command + words) == error.replace(b"%", command)
    assert node.read_to_end() == b""
    # An error ends the connection, and that its registrations.
    wait_until(lambda: node.remote not in producers(lookupd.http, "survivor"))


@pytest.mark.parametrize(
    "name", ["x" * 64, "x" * 54 + "#ephemeral", ".", "-", "_", "A.b-9_", "0#ephemeral"]
)
def test_good_names(node, lookupd, name):
    node.register(name, name)
    assert producers(lookupd.http, name) == [node.remote]
    assert channels(lookupd.http, name) == [name]
    node.unregister(name, name)
    node.unregister(name)
    post(lookupd.http, f"/topic/delete?topic={name.replace('#', '%23')}")


# ---- the database


def test_register(node, lookupd, topic):
    node.register(topic)
    peer = WHO | {"remote_address": node.remote}
    assert lookup(lookupd.http, topic) == {"channels": [], "producers": [peer]}
    node.register(topic, "c")
    node.register(topic, "c")
    assert node.ask(f"REGISTER {topic} d e f".encode()) == b"OK"
    assert node.ask(f"REGISTER {topic}  e".encode()) == b"OK"
    assert lookup(lookupd.http, topic) == {"channels": ["c", "d"], "producers": [peer]}


def test_a_channel_brings_its_topic(node, lookupd, topic):
    node.register(topic, "c")
    assert producers(lookupd.http, topic) == [node.remote]
    assert topic in topics(lookupd.http)


def test_unregister_a_channel(node, lookupd, topic):
    node.register(topic, "c")
    node.register(topic, "d#ephemeral")
    node.unregister(topic, "c")
    node.unregister(topic, "d#ephemeral")
    node.unregister(topic, "never")
    assert channels(lookupd.http, topic) == ["c"]
    assert producers(lookupd.http, topic) == [node.remote]


def test_unregister_a_topic(connect, lookupd, topic):
    first, second = connect(), connect()
    for node in (first, second):
        node.identify()
        node.register(topic, "c")
    first.unregister(topic)
    assert producers(lookupd.http, topic) == [second.remote]
    assert channels(lookupd.http, topic) == ["c"]
    keys = get(lookupd.http, "/debug").json()
    assert [one["id"] for one in keys[f"channel:{topic}:c"]] == [second.remote]
    second.unregister(topic)
    assert lookup(lookupd.http, topic) == {"channels": ["c"], "producers": []}
    second.unregister(topic)
    second.unregister("never-" + topic)
    assert "never-" + topic not in topics(lookupd.http)


def test_unregister_an_ephemeral_topic(connect, lookupd, topic):
    name = topic + "#ephemeral"
    first, second = connect(), connect()
    for node in (first, second):
        node.identify()
        node.register(name, "c")
    first.unregister(name)
    assert producers(lookupd.http, name) == [second.remote]
    second.unregister(name)
    assert lookup(lookupd.http, name) is None
    assert channels(lookupd.http, name) == ["c"]
    post(lookupd.http, f"/topic/delete?topic={topic}%23ephemeral")
    assert channels(lookupd.http, name) == []


def test_anybody_removes_an_ephemeral_key_without_producers(connect, lookupd, topic):
    owner, other = connect(), connect()
    owner.identify()
    other.identify()
    owner.register(topic, "c#ephemeral")
    other.unregister(topic, "c#ephemeral")
    assert channels(lookupd.http, topic) == ["c#ephemeral"]
    owner.close()
    wait_until(lambda: producers(lookupd.http, topic) == [])
    assert channels(lookupd.http, topic) == ["c#ephemeral"]
    other.unregister(topic, "c#ephemeral")
    assert channels(lookupd.http, topic) == []


def test_names_stay_when_a_connection_ends(connect, lookupd, topic):
    node = connect()
    node.identify()
    node.register(topic, "c#ephemeral")
    node.register(topic + "#ephemeral")
    node.close()
    wait_until(lambda: producers(lookupd.http, topic) == [])
    assert channels(lookupd.http, topic) == ["c#ephemeral"]
    assert topic + "#ephemeral" in topics(lookupd.http)
    assert node.remote not in [one["remote_address"] for one in nodes(lookupd.http)]


def test_two_connections_of_one_nsqd(connect, lookupd, topic):
    both = [connect(), connect()]
    for node in both:
        node.identify()
        node.register(topic)
    assert producers(lookupd.http, topic) == sorted(node.remote for node in both)


def test_deleted_over_http(node, lookupd, topic):
    node.register(topic, "c")
    assert post(lookupd.http, f"/topic/delete?topic={topic}").status == 200
    assert lookup(lookupd.http, topic) is None
    assert node.ask(b"PING") == b"OK"
    assert lookup(lookupd.http, topic) is None
    node.register(topic)
    assert lookup(lookupd.http, topic)["channels"] == []
    assert producers(lookupd.http, topic) == [node.remote]


def test_nodes(node, connect, lookupd, topic):
    node.register(topic)
    node.register(topic + "b", "c")
    quiet = connect()
    found = [one for one in nodes(lookupd.http) if one["remote_address"] == node.remote]
    assert found == [
        WHO | {"remote_address": node.remote, "topics": {topic: False, topic + "b": False}}
    ]
    # Who did not say who it is is not there.
    assert quiet.ask(b"PING") == b"OK"
    assert quiet.remote not in [one["remote_address"] for one in nodes(lookupd.http)]


def test_tombstones(connect, lookupd, topic):
    node, other = connect(), connect()
    node.identify(http_port=7)
    other.identify(http_port=8)
    for one in (node, other):
        one.register(topic, "c")
        one.register(topic + "b")
    target = f"/topic/tombstone?topic={topic}&node=bc.example:7"
    assert post(lookupd.http, target).status == 200
    assert producers(lookupd.http, topic) == [other.remote]
    assert producers(lookupd.http, topic + "b") == sorted([node.remote, other.remote])
    by_remote = {one["remote_address"]: one["topics"] for one in nodes(lookupd.http)}
    assert by_remote[node.remote] == {topic: True, topic + "b": False}
    assert by_remote[other.remote] == {topic: False, topic + "b": False}
    # Neither a ping nor a repeated registration takes it away.
    assert node.ask(b"PING") == b"OK"
    node.register(topic)
    assert producers(lookupd.http, topic) == [other.remote]
    node.unregister(topic)
    node.register(topic)
    assert producers(lookupd.http, topic) == sorted([node.remote, other.remote])


def test_debug(node, lookupd, topic):
    node.register(topic, "c")
    post(lookupd.http, f"/topic/tombstone?topic={topic}&node=bc.example:2222")
    post(lookupd.http, f"/topic/create?topic={topic}-empty")
    keys = get(lookupd.http, "/debug").json()
    assert f"topic:{topic}-empty:" not in keys
    (of_channel,) = keys[f"channel:{topic}:c"]
    (of_topic,) = keys[f"topic:{topic}:"]
    of_client = [one for one in keys["client::"] if one["id"] == node.remote]
    seen = of_channel["last_update"]
    never = -6795364578871345152
    entry = WHO | {
        "id": node.remote,
        "last_update": seen,
        "tombstoned": False,
        "tombstoned_at": never,
    }
    names = [name for name in of_channel if not name.startswith("topology_")]
    assert names == sorted(names)
    shown = [{name: one[name] for name in names} for one in (of_channel, *of_client)]
    assert shown == [entry, entry]
    assert of_topic["tombstoned"] is True
    assert 0 <= of_topic["tombstoned_at"] - seen < 10_000_000_000
    assert node.ask(b"PING") == b"OK"
    assert get(lookupd.http, "/debug").json()["client::"] != keys["client::"]
