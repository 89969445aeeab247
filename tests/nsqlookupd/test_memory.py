"""What nsqlookupd keeps of peers is bounded, and given back when they have left."""

import gc
import json
import logging
import tracemalloc

import pytest

from nsqfast.nsqlookupd.peer import TEXT_SIZE_MAX
from nsqfast.nsqlookupd.registry import ROUNDS, Ceilings, Registry
from nsqfast.nsqlookupd.session import BODY_SIZE_MAX, Desk, Session
from nsqfast.wire.names import NAME_SIZE_MAX
from nsqfast.wire.protocol import LINE_SIZE_MAX
from support.lookup import encode_identify, identify_as

NAMES = 1000
NAME_BYTES_MAX = 2048  # with what the peer and the database keep of it
PEER_BYTES_MAX = 64 * 1024
LARGEST = {
    "broadcast_address": "b" * TEXT_SIZE_MAX,
    "hostname": "h" * TEXT_SIZE_MAX,
    "version": "v" * TEXT_SIZE_MAX,
    "topology_zone": "z" * TEXT_SIZE_MAX,
    "topology_region": "r" * TEXT_SIZE_MAX,
}


def name(kind, number):
    return f"{kind}{number}-".ljust(NAME_SIZE_MAX, "x")


@pytest.fixture
def desk():
    return Desk(Registry(10**12, 10**12, Ceilings(names_per_peer=NAMES)), b"{}")


def live(desk, number):
    """Do all that makes nsqlookupd keep something, and far more of it than is allowed; returns the session."""
    session = Session(desk, f"10.0.0.1:{number}")
    session.receive(b"  V1" + identify_as(**LARGEST), 5)
    for topic in range(NAMES):
        words = f"REGISTER {name('t', topic)} {name('c', topic)}\n"
        session.receive(words.encode(), 5)
        desk.registry.tombstone(name("t", topic), "b" * TEXT_SIZE_MAX + ":2222", 5)
    for peer in desk.registry.nodes(5):
        peer.node_json(5, 10**12)
    for topic in range(0, NAMES, 7):
        desk.registry.producers(name("t", topic), 5)
    session.receive(b"UNREGISTER " + name("t", 0).encode() + b"\nREGISTER t\n", 6)
    session.receive(b"x" * (LINE_SIZE_MAX - 1), 6)
    return session


def leave(desk, session):
    session.end()
    for _ in range(ROUNDS + 1):
        desk.registry.begin_round()


def traced_bytes():
    gc.collect()
    return tracemalloc.get_traced_memory()[0]


@pytest.fixture
def tracing(monkeypatch):
    """Without log lines, which pytest keeps."""
    monkeypatch.setattr(logging.getLogger("nsqlookupd"), "disabled", True)
    tracemalloc.start()
    yield
    tracemalloc.stop()


@pytest.mark.slow
def test_what_a_peer_makes_it_keep(desk, tracing):
    leave(desk, live(desk, 0))  # what is made once, such as quotas and counters
    before = traced_bytes()
    for number in range(1, 6):
        session = live(desk, number)
        assert desk.registry.registration_count <= NAMES
        assert traced_bytes() - before < PEER_BYTES_MAX + NAMES * NAME_BYTES_MAX
        leave(desk, session)
        del session
    assert desk.registry.topics() == []
    assert traced_bytes() - before < 16 * 1024


def test_what_an_unfinished_identify_makes_it_keep(desk, tracing):
    size = BODY_SIZE_MAX - 100
    session = Session(desk, "10.0.0.1:1")
    before = traced_bytes()
    session.receive(
        b"  V1" + encode_identify(json.dumps({"a": "x" * size}).encode())[: size // 2], 5
    )
    assert traced_bytes() - before < 2 * BODY_SIZE_MAX
    session.end()
    assert traced_bytes() - before < 4096
