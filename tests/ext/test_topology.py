"""Topology-aware consumption in the compiled core (spec nsqd-tcp §14), without sockets."""

import json
import random

import pytest
from nsqfast._ext.dev.probes import let_pass

from models.topology import NearestFirst
from support.core import SECOND_NS, Peer, make_registry
from support.seeds import seeds

SEEDS = seeds("topology", 3)
EXPERIMENT = ["an-unknown-one", "topology-aware-consumption"]
# (zone, region) of a client of a broker in zone z, region r; None: it never identifies.
PLACES = [[("z", "r"), ("z", "elsewhere")], [("y", "r")], [("y", "s"), ("", ""), None]]


def start(folder, **changed):
    options = {"topology_zone": "z", "topology_region": "r", "enable_experiment": EXPERIMENT}
    return make_registry(folder, **options | changed)


def identify(peer, place):
    body = json.dumps({"topology_zone": place[0], "topology_region": place[1]}).encode()
    peer.send(b"IDENTIFY\n" + len(body).to_bytes(4, "big") + body)
    assert peer.receive() == [(0, b"OK")]


def subscribed(registry, place, rdy):
    peer = Peer(registry)
    if place is not None:
        identify(peer, place)
    peer.subscribe(b"t", b"c", rdy)
    return peer


def publish(peer, *bodies):
    for body in bodies:
        peer.send(b"PUB t\n%s%s" % (len(body).to_bytes(4, "big"), body))


def messages(peer):
    """(id, body) of what arrived."""
    return [(data[10:26], data[26:]) for kind, data in peer.receive() if kind == 2]


class Scene:
    def __init__(self, registry, dice):
        self.registry, self.dice = registry, dice
        self.model = NearestFirst()
        self.producer = Peer(registry)
        self.channel = registry.topics.ensure("t").channel("c")
        self.consumers = {}
        self.ids = {}
        self.published = 0
        self.is_ordered = True

    def publish(self):
        for _ in range(self.dice.choice([1, 1, 20])):
            body = b"%d" % self.published
            self.published += 1
            self.model.queue.append(body)
            publish(self.producer, body)

    def join(self):
        name, distance = self.published + len(self.ids) * 10000, self.dice.randrange(3)
        if name in self.consumers:
            return
        self.model.rdy[name] = self.dice.randrange(12)
        self.model.distance[name] = distance
        place = self.dice.choice(PLACES[distance])
        self.consumers[name] = subscribed(self.registry, place, self.model.rdy[name])

    def leave(self):
        if len(self.consumers) > 2:
            name = self.dice.choice(list(self.consumers))
            self.consumers.pop(name).close()
            self.model.leave(name)
            self.is_ordered = False

    def ready(self):
        if self.consumers:
            name = self.dice.choice(list(self.consumers))
            self.model.rdy[name] = self.dice.randrange(12)
            self.consumers[name].send(b"RDY %d\n" % self.model.rdy[name])

    def settle(self):
        if self.model.in_flight:
            body = self.dice.choice(list(self.model.in_flight))
            peer = self.consumers[self.model.in_flight[body]]
            if self.dice.random() < 0.8:
                del self.model.in_flight[body]
                peer.send(b"FIN %s\n" % self.ids[body])
            else:
                self.model.requeue(body)
                peer.send(b"REQ %s 0\n" % self.ids[body])

    def run_out_of_time(self):
        """All that is in flight times out at once; in which order it is queued again is not promised."""
        for peer in [self.producer, *self.consumers.values()]:
            peer.send(b"NOP\n")
        for body in list(self.model.in_flight):
            self.model.requeue(body)
        self.is_ordered = False
        self.registry.timers.run(let_pass(11 * SECOND_NS))

    def look(self):
        arrived = []
        for name, peer in self.consumers.items():
            for message_id, body in messages(peer):
                self.ids[body] = message_id
                arrived.append((name, body))
        self.model.deliver(arrived, self.is_ordered)
        assert self.channel.depth == len(self.model.queue)
        assert self.channel.in_flight_count == len(self.model.in_flight)
        if not self.model.queue:
            self.is_ordered = True


@pytest.mark.disk
@pytest.mark.parametrize("memory", [0, 3, 10000], ids=lambda n: f"mem={n}")
@pytest.mark.parametrize("seed", SEEDS, ids=lambda seed: f"seed={seed}")
def test_nearest_first_against_its_model(tmp_path, seed, memory):
    dice = random.Random(seed)
    registry = start(tmp_path, mem_queue_size=memory, msg_timeout_ns=10 * SECOND_NS)
    scene = Scene(registry, dice)
    # Mostly there is room somewhere, so that it matters who has some.
    steps = [scene.publish] * 4 + [scene.settle] * 24 + [scene.ready] * 2
    steps += [scene.join] * 2 + [scene.leave] * 2 + [scene.run_out_of_time]
    for _ in range(1200):
        dice.choice(steps)()
        scene.look()
    taken = scene.channel.taken_counts
    if memory == 10000:
        assert taken == tuple(scene.model.taken)
        assert all(taken)
    else:
        # What came from disk counts nowhere.
        assert all(count <= most for count, most in zip(taken, scene.model.taken, strict=True))
        assert (sum(taken) == 0) == (memory == 0)
    for peer in [*scene.consumers.values(), scene.producer]:
        peer.close()
    registry.topics.close()


@pytest.mark.parametrize("place", [("z", "r"), ("y", "r"), ("y", "s")])
def test_in_turn_among_those_equally_near(tmp_path, place):
    registry = start(tmp_path)
    producer = Peer(registry)
    peers = [subscribed(registry, place, 10) for _ in range(3)]
    others = [subscribed(registry, ("y", "s"), 0)]
    publish(producer, *[b"%d" % number for number in range(9)])
    got = [[body for _, body in messages(peer)] for peer in peers]
    assert got == [[b"0", b"3", b"6"], [b"1", b"4", b"7"], [b"2", b"5", b"8"]]
    assert messages(others[0]) == []
    registry.topics.close()


def test_the_first_identify_counts(tmp_path):
    registry = start(tmp_path)
    producer, moved = Peer(registry), Peer(registry)
    identify(moved, ("y", "s"))
    identify(moved, ("z", "r"))
    moved.subscribe(b"t", b"c", 5)
    near = subscribed(registry, ("y", "r"), 1)
    publish(producer, b"1", b"2")
    assert [body for _, body in messages(near)] == [b"1"]
    assert [body for _, body in messages(moved)] == [b"2"]
    assert registry.topics.ensure("t").channel("c").taken_counts == (0, 1, 1)
    registry.topics.close()


def test_two_empty_names_are_equal(tmp_path):
    registry = start(tmp_path, topology_zone="", topology_region="")
    producer, silent = Peer(registry), Peer(registry)
    silent.subscribe(b"t", b"c", 5)
    here = subscribed(registry, ("", ""), 1)
    publish(producer, b"1", b"2")
    assert [body for _, body in messages(here)] == [b"1"]
    assert [body for _, body in messages(silent)] == [b"2"]
    assert registry.topics.ensure("t").channel("c").taken_counts == (1, 0, 1)
    registry.topics.close()


@pytest.mark.parametrize("experiment", [[], ["topology"]])
def test_without_the_experiment_all_are_as_near(tmp_path, experiment):
    registry = start(tmp_path, enable_experiment=experiment)
    producer = Peer(registry)
    peers = [subscribed(registry, place, 10) for place in (("y", "s"), ("z", "r"))]
    publish(producer, *[b"%d" % number for number in range(6)])
    assert [len(messages(peer)) for peer in peers] == [3, 3]
    assert registry.topics.ensure("t").channel("c").taken_counts == (0, 0, 0)
    registry.topics.close()
