"""Two brokers in one process share neither a clock that stands, nor what one of them was late by, nor how short
descriptors are, nor memory and its ceiling.
"""

import gc
import os
import threading
import time
import weakref

import pytest
from nsqfast._ext.broker.picker import Picker
from nsqfast._ext.core.budget import Part
from nsqfast._ext.dev.probes import fix_parts, let_pass, live_deliveries, shift_wall

from ext.test_durable import pub
from ext.test_stalls_input import PART, fins, ids
from support.core import NEVER, Peer, counted_deliveries, make_registry

HOUR_NS = 3600 * 1_000_000_000
MIB = 1 << 20


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


def used(brokers):
    return [registry.memory.used_bytes() for registry in brokers]


def test_each_counts_what_it_holds_itself(brokers):
    one, other = brokers
    before = used(brokers)
    peer = Peer(one)
    peer.send(b"".join(pub(b"t", bytes(1000)) for _ in range(5000)))
    peer.send(pub(b"t", bytes(200_000))[:-1])  # its buffer grows, too
    assert one.memory.used_bytes() > before[0] + 5_000_000 + 200_000
    assert other.memory.used_bytes() == before[1]
    # What one of them gives back does not count for the other.
    peer.close()
    one.topics.delete("t")
    one.topics.close()
    assert one.memory.used_bytes() < before[0] + MIB
    assert other.memory.used_bytes() == before[1]


def dpub(body):
    return b"DPUB t 1000\n" + len(body).to_bytes(4, "big") + body


def test_each_has_a_ceiling_of_its_own(brokers):
    one = brokers[0]
    one.memory.set_ceiling(8 * MIB)
    for registry in brokers:
        for _ in range(10):
            registry.topics.find("t").put(bytes(MIB))
    on_disk = [registry.topics.find("t").channel("c").backend_depth for registry in brokers]
    assert 4 <= on_disk[0] <= 6  # from three quarters of the ceiling on
    assert on_disk[1] == 0
    one.memory.charge_bytes(8 * MIB)
    assert [registry.memory.is_full() for registry in brokers] == [True, False]
    answers = []
    for registry in brokers:
        peer = Peer(registry)
        peer.send(dpub(b"x"))
        answers += peer.receive()
    assert [kind for kind, _ in answers] == [1, 0]
    assert answers[0][1].startswith(b"E_DPUB_FAILED ")
    one.memory.charge_bytes(-8 * MIB)


def test_who_searches_one_keeps_nothing_of_the_other(brokers):
    """While somebody looks through deferred messages, those that are freed stay where they are."""
    count, before = counted_deliveries(), used(brokers)
    for registry in brokers:
        for _ in range(20_000):
            registry.topics.find("t").put(b"x", 3_600_000)
    channel = brokers[0].topics.find("t").channel("c")
    search = Picker(channel, "deferred", "drop", ids=(b"0123456789abcdef",))
    for registry in brokers:
        registry.topics.delete("t")
        while live_deliveries() > count + 20_000 * (registry is brokers[0]):
            registry.timers.run(let_pass(1000))
    now = used(brokers)
    assert now[0] > before[0] + MIB
    assert now[1] < before[1] + MIB
    del search
    assert used(brokers)[0] < before[0] + MIB


def test_the_memory_of_a_broker_ends_with_it(tmp_path):
    """And so do the empty slabs that it kept for more messages, although it was about to give some back."""
    registry = make_registry(tmp_path, mem_queue_size=300_000)
    topic = registry.topics.ensure("t")
    for _ in range(200_000):
        topic.put(bytes(200))
    registry.topics.delete("t")
    registry.topics.close()
    registry.turn.end()
    registry.timers.close()
    memory = weakref.ref(registry.memory)
    del registry, topic
    gc.collect()
    assert memory() is None


def test_what_a_broker_leaves_ends_with_it(tmp_path):
    """The collector frees its parts in any order: messages that are queued, in flight and deferred, of all sizes.
    While one of them is left, the memory is.
    """
    registry = make_registry(tmp_path, mem_queue_size=100)
    topic, peer = registry.topics.ensure("t"), Peer(registry)
    peer.subscribe(b"t", b"c", 3)
    count, memory = counted_deliveries(), weakref.ref(registry.memory)
    for size in [1, 200, 600_000] * 10:
        topic.put(bytes(size))
        topic.put(bytes(size), 3_600_000)
    assert [kind for kind, _ in peer.receive()] == [0, 2, 2, 2]
    assert live_deliveries() == count + 33
    assert topic.channel("c").backend_depth == 0
    registry.timers.close()
    del registry, topic, peer
    gc.collect()
    assert memory() is None
