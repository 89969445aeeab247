"""Two brokers in one process share neither a clock that stands, nor what one of them was late by, nor how short
descriptors are.
"""

import os
import threading
import time

import pytest
from nsqfast._ext.core.budget import Part
from nsqfast._ext.dev.probes import fix_parts, shift_wall

from ext.test_durable import pub
from ext.test_stalls_input import PART, fins, ids
from support.core import NEVER, Peer, make_registry

HOUR_NS = 3600 * 1_000_000_000


@pytest.fixture
def brokers(tmp_path):
    found = [make_registry(tmp_path / name) for name in ("one", "other")]
    for registry, name in zip(found, ("one", "other"), strict=True):
        (tmp_path / name).mkdir()
        registry.topics.ensure("t").channel("c")
    yield found
    shift_wall(0)
    fix_parts(NEVER)
    for registry in found:
        registry.topics.close()
    fix_parts(0)


def published_ns(registry):
    """When the messages of the topic were published, by their frames."""
    peer = Peer(registry)
    peer.subscribe(b"t", b"c", 100)
    return [int.from_bytes(data[:8]) for kind, data in peer.receive() if kind == 2]


def test_each_has_a_clock_that_stands_for_it_alone(brokers):
    one, other = brokers

    def publish_there(*_):
        shift_wall(HOUR_NS)
        Peer(other).send(pub(b"t", b"x"))

    one.topics.on_change = publish_there  # called within the read that creates a topic
    Peer(one).send(pub(b"t", b"1") + pub(b"new", b"x") + pub(b"t", b"2"))
    first, second = published_ns(one)
    [there] = published_ns(other)
    assert first == second
    assert there >= first + HOUR_NS
    one.topics.on_change = None


def overspend():
    """Let a part of this thread take more than twice its time."""
    part, until = Part(), time.monotonic() + 0.005
    while time.monotonic() < until:
        pass
    assert part.is_spent(10_000)


@pytest.mark.parametrize("is_same_thread", [True, False])
def test_a_loop_that_is_late_is_late_for_its_brokers_alone(brokers, is_same_thread):
    peers = [Peer(registry) for registry in brokers]
    fix_parts(PART)
    for registry, peer in zip(brokers, peers, strict=True):
        registry.turn.schedule_end = lambda: None
        peer.subscribe(b"t", b"c", 1)
        peer.receive()
        peer.send(fins(2 * PART))
    fix_parts(0)
    thread = threading.Thread(target=overspend)
    thread.start()
    thread.join()
    if is_same_thread:
        overspend()
    fix_parts(PART)
    # Blocked clients go on in the next turn, but for a turn that was late.
    counts = [[len(ids(peer.receive())) for _ in range(2)] for peer in peers]
    assert counts == [[PART, PART]] * 2 if is_same_thread else [[2 * PART, 0]] * 2


@pytest.mark.parametrize("opens_it", [False, True])
def test_descriptors_are_short_for_who_has_opened_a_high_one(tmp_path, opens_it):
    one, other = [make_registry(tmp_path / name, mem_queue_size=0) for name in ("one", "other")]
    for name in ("one", "other"):
        (tmp_path / name).mkdir()
    one.topics.ensure("t0").put(b"x")
    file = os.open(tmp_path, os.O_RDONLY)
    below = [os.dup(file) for _ in range(100)]
    (one if opens_it else other).durability.store.syncer.request_fd(file)
    for each in (file, *below):
        os.close(each)
    syncer = one.durability.store.syncer
    syncer.short_from = below[len(below) // 2]
    for number in range(1, 5):
        one.topics.ensure(f"t{number}").put(b"x")
    assert (len(syncer.open_queues) < 5) == opens_it
    for registry in (one, other):
        registry.topics.close()
