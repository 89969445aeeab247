"""The registration database against a flat list of rows."""

import json
import random

import pytest
from nsqfast._ext.dev.probes import fix_parts

from models.registrations import Registrations
from nsqfast.nsqlookupd import registry as registries
from nsqfast.nsqlookupd.peer import Peer, plain_address
from nsqfast.nsqlookupd.registry import FORGET_UNITS, ROUNDS, Registry

INACTIVE_NS, TOMBSTONED_NS = 1000, 300
TOPICS = ["a", "b", "c", "d#ephemeral"]
CHANNELS = ["x", "y", "z#ephemeral"]


def make_peer(number, now_ns=0, **changed):
    record = {
        "remote_address": f"10.0.0.1:{number}",
        "hostname": "h",
        "broadcast_address": f"node-{number % 3}",
        "tcp_port": 4150,
        "http_port": 4151,
        "version": "1.3.0",
        "topology_zone": "",
        "topology_region": "",
        "seen_ns": now_ns,
    }
    return Peer(**record | changed)


@pytest.fixture
def parts():
    """Fixes the size of parts."""
    yield fix_parts
    fix_parts(0)


class Pair:
    """The registry and the model, told the same."""

    def __init__(self, chance, rounds=0):
        self.chance = chance
        self.now_ns = 10_000
        self.count = 0
        self.rounds = rounds  # how often one begins, among the other operations
        self.registry = Registry(INACTIVE_NS, TOMBSTONED_NS)
        self.model = Registrations(INACTIVE_NS, TOMBSTONED_NS)

    def name(self):
        return self.chance.choice(TOPICS), self.chance.choice(["", *CHANNELS])

    def peer(self):
        return self.chance.choice(list(self.model.seen_ns))

    def step(self):
        names = ["connect", "register", "register", "register", "unregister", "ping", "wait"]
        names += ["end", "create", "delete_topic", "delete_channel", "tombstone"]
        names += ["begin_round"] * self.rounds
        getattr(self, self.chance.choice(names if self.model.seen_ns else ["connect"]))()

    def begin_round(self):
        self.registry.begin_round()
        self.model.begin_round(ROUNDS)

    def connect(self):
        self.count += 1
        peer = make_peer(self.count, self.now_ns)
        self.registry.add(peer)
        self.model.add(peer, self.now_ns)

    def register(self):
        peer, names = self.peer(), self.name()
        self.registry.register(peer, *names)
        self.model.register(peer, *names)

    def unregister(self):
        peer, names = self.peer(), self.name()
        self.registry.unregister(peer, *names)
        self.model.unregister(peer, *names)

    def ping(self):
        peer = self.peer()
        peer.seen_ns = self.model.seen_ns[peer] = self.now_ns

    def wait(self):
        self.now_ns += self.chance.choice([1, 50, 299, 300, 301, 1000])

    def end(self):
        peer = self.peer()
        self.registry.remove(peer)
        self.model.remove(peer)

    def create(self):
        topic, channel = self.name()
        if channel:
            self.registry.create_channel(topic, channel)
        else:
            self.registry.create_topic(topic)
        self.model.create(topic, channel)

    def delete_topic(self):
        topic, _ = self.name()
        self.registry.delete_topic(topic)
        self.model.delete_topic(topic)

    def delete_channel(self):
        topic, channel = self.name()
        if channel:
            found = self.registry.delete_channel(topic, channel)
            assert found == self.model.delete_channel(topic, channel)

    def tombstone(self):
        topic, _ = self.name()
        address = f"node-{self.chance.randrange(4)}:4151"
        self.registry.tombstone(topic, address, self.now_ns)
        self.model.tombstone(topic, address, self.now_ns, lambda peer: peer.address)

    def compare(self):
        registry, model = self.registry, self.model
        assert registry.topics() == model.topics()
        assert registry.topic_count == len(model.topics())
        assert registry.registration_count == len(model.rows)
        assert registry.channel_count == sum(bool(channel) for _, channel in model.keys)
        for topic in TOPICS:
            assert registry.has_topic(topic) == (topic in model.topics())
            assert registry.channels(topic) == model.channels(topic)
            producers = registry.producers(topic, self.now_ns)
            assert producers == sorted(producers, key=lambda peer: peer.order)
            assert set(producers) == model.producers(topic, self.now_ns)
            assert len(producers) == len(set(producers))
        self.compare_nodes()
        rows = [
            [key, subkey, peer]
            for category, key, subkey, peers in registry.entries()
            for peer in peers
            if category != "client"
        ]
        assert sorted(rows, key=str) == sorted((row[:3] for row in model.rows), key=str)

    def compare_nodes(self):
        nodes = self.registry.nodes(self.now_ns)
        expected = self.model.nodes(self.now_ns)
        assert set(nodes) == expected.keys()
        for peer in nodes:
            shown = json.loads(peer.node_json(self.now_ns, TOMBSTONED_NS))
            assert shown["topics"] == sorted(expected[peer])
            flags = dict(zip(shown["topics"], shown["tombstones"], strict=True))
            assert flags == expected[peer]


@pytest.mark.parametrize("round_number", range(5))
def test_random_operations(round_number):
    seed = random.SystemRandom().randrange(1 << 32)
    print("seed", seed)
    pair = Pair(random.Random(seed), rounds=4 * (round_number % 3))
    for _ in range(600):
        pair.step()
        pair.compare()


@pytest.mark.parametrize("round_number", range(5))
def test_random_operations_while_what_is_gone_is_forgotten_in_parts(parts, round_number):
    seed = random.SystemRandom().randrange(1 << 32)
    print("seed", seed)
    parts(1)
    pair = Pair(random.Random(seed))
    pair.registry.on_gone = lambda: None
    for _ in range(600):
        pair.step()
        pair.compare()
        if pair.chance.random() < 0.2:
            pair.registry.forget_some()
            pair.compare()
    while pair.registry.forget_some():
        pair.compare()
    pair.compare()


def test_who_goes_is_forgotten_in_parts(parts):
    """However much it registered, nobody waits for it, and nobody is shown it."""
    registry = Registry(INACTIVE_NS, TOMBSTONED_NS)
    called = []
    registry.on_gone = lambda: called.append(1)
    peer, other = make_peer(1), make_peer(2)
    for each in (peer, other):
        registry.add(each)
        for number in range(100):
            registry.register(each, f"t{number}", "c")
    parts(10 * FORGET_UNITS)
    registry.remove(peer)
    assert called == [1]
    assert registry.producers("t1", 0) == registry.nodes(0) == [other]
    assert registry.registration_count == 200
    count = 0
    while registry.forget_some():
        count += 1
        assert 200 - len(peer.topics) - len(peer.channels) == 10 * count
    assert count == 20
    assert (peer.topics, peer.channels) == (set(), {})
    assert registry.registration_count == 200


def test_keys_without_producers_go_in_parts(parts):
    """However many there are; those that were created over HTTP stay."""
    registry = Registry(INACTIVE_NS, TOMBSTONED_NS)
    peer = make_peer(1)
    registry.add(peer)
    for number in range(100):
        registry.register(peer, f"t{number:02}", "c")
    registry.create_topic("t00")
    registry.create_channel("t01", "c")
    registry.remove(peer)
    called = []
    registry.on_gone = lambda: called.append(1)
    for _ in range(ROUNDS):
        registry.begin_round()
    assert called == []
    registry.begin_round()
    assert called == [1]
    parts(10 * FORGET_UNITS)
    counts = [registry.topic_count + registry.channel_count]
    while registry.forget_some():
        counts.append(registry.topic_count + registry.channel_count)
    assert counts == list(range(200, 3, -10))
    assert registry.topics() == ["t00", "t01"]
    assert [registry.channels(topic) for topic in registry.topics()] == [[], ["c"]]
    registry.delete_topic("t01")
    registry.register(peer, "t01", "c")
    registry.remove(peer)


def test_a_key_that_is_used_again_is_as_new():
    registry = Registry(INACTIVE_NS, TOMBSTONED_NS)
    for number in range(3):
        peer = make_peer(number)
        registry.add(peer)
        registry.register(peer, "t", "c")
        registry.remove(peer)
        for _ in range(ROUNDS):
            registry.begin_round()
        assert (registry.topics(), registry.channels("t")) == (["t"], ["c"])
    registry.begin_round()
    assert (registry.topics(), registry.channels("t")) == ([], [])


def test_keys_without_producers_are_bounded(monkeypatch):
    """One that connects, registers and leaves again and again, or registers and unregisters, makes no others go."""
    monkeypatch.setattr(registries, "UNUSED_COUNT_MAX", 10)
    registry = Registry(INACTIVE_NS, TOMBSTONED_NS)
    stays = make_peer(0)
    registry.add(stays)
    registry.register(stays, "stays", "c")
    for number in range(1, 50):
        peer = make_peer(number)
        registry.add(peer)
        registry.register(peer, f"left{number:02}", "c")
        registry.register(peer, f"unregistered{number:02}")
        registry.unregister(peer, f"unregistered{number:02}")
        registry.remove(peer)
        assert registry.topic_count + registry.channel_count <= 2 + 10
    assert registry.topics()[-1] == "unregistered49"
    assert registry.channels("stays") == ["c"]


def test_nothing_is_left_behind_by_those_who_go():
    registry = Registry(INACTIVE_NS, TOMBSTONED_NS)
    peers = [make_peer(number) for number in range(20)]
    for peer in peers:
        registry.add(peer)
        for topic in TOPICS:
            registry.register(peer, topic, "x")
        registry.tombstone("a", peer.address, 5)
    for peer in peers:
        registry.remove(peer)
        registry.remove(peer)
        assert (peer.topics, peer.channels, peer.tombstones) == (set(), {}, {})
    assert registry.registration_count == 0
    assert registry.nodes(0) == registry.producers("a", 0) == []
    assert [entry[3] for entry in registry.entries()] == [[]] * 9


@pytest.mark.parametrize(
    ("text", "plain"),
    [
        ("[::1]:4151", "::1:4151"),
        ("::1:4151", "::1:4151"),
        ("10.0.0.1:4151", "10.0.0.1:4151"),
        ("host", "host"),
        ("", ""),
        ("[fe80::1%eth0]:1", "fe80::1%eth0:1"),
    ],
)
def test_plain_address(text, plain):
    assert plain_address(text) == plain


@pytest.mark.parametrize("broadcast", ["fe80::1", "[fe80::1]"])
@pytest.mark.parametrize("node", ["fe80::1:4151", "[fe80::1]:4151"])
def test_tombstones_of_ipv6(broadcast, node):
    registry = Registry(INACTIVE_NS, TOMBSTONED_NS)
    peer = make_peer(1, broadcast_address=broadcast)
    registry.add(peer)
    registry.register(peer, "t")
    registry.tombstone("t", "[fe80::2]:4151", 5)
    assert registry.producers("t", 6) == [peer]
    registry.tombstone("t", node, 5)
    assert registry.producers("t", 6) == []
    assert registry.producers("t", 5 + TOMBSTONED_NS) == [peer]
