"""What a broker tells nsqlookupd and asks it: the same with nsqfast and with Go."""

import json
import socket

import pytest

from support.lookupd import FakeLookupd
from support.server import start_nsqd
from support.web import post, request, topic_stats
from support.wire import Client

METADATA = {
    "version": "1.3.0",
    "topics": [
        {"name": "full", "paused": False, "channels": [{"name": "a", "paused": False}]},
        {"name": "empty", "paused": False, "channels": []},
    ],
}


@pytest.fixture
def lookupd():
    with FakeLookupd() as fake:
        yield fake


@pytest.fixture
def broker(implementation, lookupd, tmp_path):
    """One that begins with some names, as the next connection of the lookupd has seen."""
    (tmp_path / "nsqd.dat").write_text(json.dumps(METADATA))
    flags = [f"--lookupd-tcp-address={lookupd.address}"]
    if implementation == "nsqfast":  # newer than the released 1.3.0
        flags += ["--topology-region=r", "--topology-zone=z"]
    with start_nsqd(implementation, tmp_path, *flags) as server:
        yield server


NAMES = {b"REGISTER full a", b"REGISTER empty"}


def skip_first_names(lookupd, implementation):
    """Go says them twice: for the connection, and because they were just loaded."""
    lookupd.identity()
    told = lookupd.commands(2)
    if implementation == "go":
        told += lookupd.commands(3)
    assert set(told) >= NAMES


def test_who_it_is_and_what_it_has(broker, lookupd, implementation):
    place = {"topology_region": "r", "topology_zone": "z"} if implementation == "nsqfast" else {}
    assert lookupd.identity() == {
        "broadcast_address": "127.0.0.1",
        "hostname": socket.gethostname(),
        "http_port": broker.http[1],
        "tcp_port": broker.tcp[1],
        "version": "1.3.0",
        **place,
    }
    assert set(lookupd.commands(2)) == NAMES


def test_changes(broker, lookupd, implementation):
    skip_first_names(lookupd, implementation)
    assert post(broker.http, "/topic/create?topic=t").status == 200
    assert lookupd.commands(1) == [b"REGISTER t"]
    assert post(broker.http, "/channel/create?topic=t&channel=c").status == 200
    assert lookupd.commands(1) == [b"REGISTER t c"]
    with Client(broker.tcp) as client:
        client.sub("t", "x#ephemeral")
        assert lookupd.commands(1) == [b"REGISTER t x#ephemeral"]
    assert lookupd.commands(1) == [b"UNREGISTER t x#ephemeral"]
    assert post(broker.http, "/channel/delete?topic=t&channel=c").status == 200
    assert lookupd.commands(1) == [b"UNREGISTER t c"]
    assert post(broker.http, "/channel/create?topic=t&channel=d").status == 200
    assert lookupd.commands(1) == [b"REGISTER t d"]
    assert post(broker.http, "/topic/delete?topic=t").status == 200
    assert set(lookupd.commands(2)) == {b"UNREGISTER t d", b"UNREGISTER t"}


def test_a_lost_connection_begins_anew_with_the_next_change(broker, lookupd, implementation):
    skip_first_names(lookupd, implementation)
    lookupd.drop()
    assert lookupd.next() is None
    assert post(broker.http, "/topic/create?topic=t").status == 200
    if implementation == "go":
        # It notices by failing to say this, and begins anew with what comes next.
        assert post(broker.http, "/topic/create?topic=u").status == 200
    lookupd.identity()
    told = set()
    while not told >= NAMES:
        told |= set(lookupd.commands(1))


def test_peers_come_and_go_while_it_runs(broker, lookupd, implementation):
    skip_first_names(lookupd, implementation)
    with FakeLookupd() as other:
        addresses = json.dumps([other.address, other.address]).encode()
        answer = request(broker.http, "PUT", "/config/nsqlookupd_tcp_addresses", addresses)
        assert answer.status == 200
        other.identity()
        assert set(other.commands(2)) == NAMES
        assert None in lookupd.commands(1)
        assert post(broker.http, "/topic/create?topic=t").status == 200
        assert other.commands(1) == [b"REGISTER t"]
        assert request(broker.http, "PUT", "/config/nsqlookupd_tcp_addresses", b"[]").status == 200
        assert other.commands(1) == [None]


def test_channels_that_are_known_elsewhere(broker, lookupd, implementation):
    skip_first_names(lookupd, implementation)
    lookupd.channels["t"] = ["one", "two", "gone#ephemeral"]
    with Client(broker.tcp) as client:
        client.pub("t", b"first")
    path, headers = lookupd.asked.get(timeout=10)
    assert path == "/channels?topic=t"
    assert headers["Accept"] == "application/vnd.nsq; version=1.0"
    # Go has made them when the OK leaves; here it may be a moment later.
    told = set(lookupd.commands(3))
    assert told >= {b"REGISTER t one", b"REGISTER t two"}
    found = topic_stats(broker.http, "t")
    assert found["channels"].keys() == {"one", "two"}
    with Client(broker.tcp) as one, Client(broker.tcp) as two:
        one.sub("t", "one", 1)
        two.sub("t", "two", 1)
        assert one.read_message().body == two.read_message().body == b"first"
