"""A publish goes to all channels or to none: after an error and a retry each of them has it once."""

import pytest
from nsqfast._ext.dev.probes import let_pass
from nsqfast._ext.dev.structures import put_all

from nsqfast.errors import PublishError
from support.core import Peer, make_registry, sync

OK = (0, b"OK")
SECOND_NS = 1_000_000_000


def sized(body):
    return len(body).to_bytes(4, "big") + body


def many(*bodies):
    return len(bodies).to_bytes(4, "big") + b"".join(map(sized, bodies))


COMMANDS = {
    "PUB": b"PUB t\n" + sized(b"new"),
    "MPUB": b"MPUB t\n" + sized(many(b"new", b"newer")),
    "DPUB": b"DPUB t 1\n" + sized(b"new"),
}
BODIES = {"PUB": [b"new"], "MPUB": [b"new", b"newer"], "DPUB": [b"new"]}
MODES = {
    "disk": {"mem_queue_size": 0},
    "durable": {"mem_queue_size": 0, "durable": "always"},
    "memory": {"mem_queue_size": 2},
}


class Scene:
    """A topic with channels a, b and c; the queue of b cannot be written while a folder is in its file's place."""

    def __init__(self, folder, mode):
        self.registry = make_registry(folder, **MODES[mode])
        self.topic = self.registry.topics.ensure("t")
        self.channels = {name: self.topic.channel(name) for name in "abc"}
        self.obstacle = folder / "t:b.diskqueue.000000.dat"
        self.obstacle.mkdir()
        if mode == "memory":
            # a and c have room in memory, b has none left.
            assert self.send(COMMANDS["PUB"] * 2) == [OK, OK]
            for name in "ac":
                assert self.drain(name) == [b"new"] * 2

    def send(self, data):
        peer = Peer(self.registry)
        peer.send(data)
        sync(self.registry)
        return peer.decode_all()

    def drain(self, name):
        """Everything in the channel, what is deferred included; finished."""
        peer = Peer(self.registry)
        peer.subscribe(b"t", name.encode(), 100)
        self.registry.timers.run(let_pass(SECOND_NS))  # what is deferred is due
        got = [data for kind, data in peer.receive() if kind == 2]
        for data in got:
            peer.send(b"FIN " + data[10:26] + b"\n")
        peer.close()
        return [data[26:] for data in got]

    def counts(self):
        """As /stats has them."""
        channels = [
            (channel.message_count, channel.depth + channel.deferred_count)
            for channel in self.channels.values()
        ]
        return self.topic.message_count, self.topic.message_bytes, channels


@pytest.fixture(params=MODES)
def scene(request, tmp_path):
    made = Scene(tmp_path, request.param)
    yield made
    if made.obstacle.is_dir():
        made.obstacle.rmdir()
    made.registry.topics.close()


@pytest.mark.parametrize("command", COMMANDS)
def test_a_refused_publish_is_in_no_channel(scene, command):
    if command == "DPUB" and scene.registry.settings.mem_queue_size != 0:
        pytest.skip("what is deferred stands in memory")
    before = scene.counts()
    for _ in range(3):
        [(kind, text)] = scene.send(COMMANDS[command])
        assert kind == 1
        assert text.startswith(b"E_%s_FAILED %s failed open " % ((command.encode(),) * 2))
        assert scene.counts() == before
    assert scene.registry.durability.health().startswith("NOK - open ")
    scene.obstacle.rmdir()
    assert scene.send(COMMANDS[command]) == [OK]
    assert scene.registry.durability.health() == "OK"
    old = [b"new"] * 2 if scene.registry.settings.mem_queue_size else []
    size = sum(map(len, old + BODIES[command]))
    assert scene.counts()[:2] == (len(old) + len(BODIES[command]), size)
    assert {count for count, _ in scene.counts()[2]} == {scene.topic.message_count}
    assert scene.drain("a") == scene.drain("c") == BODIES[command]
    assert scene.drain("b") == old + BODIES[command]


@pytest.mark.parametrize("kind", ["put", "deferred", "lines", "binary"])
def test_over_http(scene, kind):
    if kind == "deferred" and scene.registry.settings.mem_queue_size != 0:
        pytest.skip("what is deferred stands in memory")
    puts = {
        "put": lambda: scene.topic.put(b"new"),
        "deferred": lambda: scene.topic.put(b"new", 1),
        "lines": lambda: put_all(scene.topic, b"new\n\nnewer\n", False),
        "binary": lambda: put_all(scene.topic, many(b"new", b"newer"), True),
    }

    def publish():
        answers = []
        try:
            ticket = puts[kind]()
        except PublishError as error:
            return str(error)
        scene.registry.durability.when_durable(ticket, answers.append)
        sync(scene.registry)
        return answers[0]

    before = scene.counts()
    assert publish().startswith("open ")
    assert scene.counts() == before
    scene.obstacle.rmdir()
    assert publish() is None
    bodies = BODIES["MPUB" if kind in ("lines", "binary") else "PUB"]
    assert scene.topic.message_count == before[0] + len(bodies)
    assert scene.drain("a") == scene.drain("c") == bodies
    assert scene.drain("b")[-len(bodies) :] == bodies


def test_a_file_that_cannot_be_begun(tmp_path):
    """The batch is in the files of a and c, and in the last file of b in part."""
    registry = make_registry(tmp_path, mem_queue_size=0, max_bytes_per_file=100)
    topic = registry.topics.ensure("t")
    channels = [topic.channel(name) for name in "abc"]
    topic.put(b"x" * 20)
    (tmp_path / "t:b.diskqueue.000001.dat").mkdir()
    with pytest.raises(PublishError):
        put_all(topic, many(*[b"%d" % n * 20 for n in range(9)]), True)
    assert [channel.depth for channel in channels] == [1, 1, 1]
    (tmp_path / "t:b.diskqueue.000001.dat").rmdir()
    put_all(topic, many(*[b"%d" % n * 20 for n in range(9)]), True)
    registry.topics.close()
    again = make_registry(tmp_path, mem_queue_size=0)
    assert [again.topics.ensure("t").channel(name).depth for name in "abc"] == [10, 10, 10]
    again.topics.close()


@pytest.fixture
def durable(tmp_path):
    made = Scene(tmp_path, "durable")
    yield made
    if made.obstacle.is_dir():
        made.obstacle.rmdir()
    made.registry.topics.close()


def test_others_are_not_refused_with_it(durable):
    """Neither those of another topic nor those whose write succeeded in an earlier turn."""
    registry = durable.registry
    registry.topics.ensure("u").channel("c")
    durable.obstacle.rmdir()
    early, other, late = (Peer(registry) for _ in range(3))
    early.send(COMMANDS["PUB"])
    registry.turn.end()  # written, its fsync is on the way
    blocked = durable.channels["b"]
    blocked.empty()  # its next record begins another file
    obstacle = durable.obstacle.with_name("t:b.diskqueue.000001.dat")
    obstacle.mkdir()
    other.send(b"PUB u\n" + sized(b"1"))
    late.send(COMMANDS["PUB"])
    answered = []
    registry.durability.when_durable(registry.topics.ensure("u").put(b"2"), answered.append)
    sync(durable.registry)
    assert early.decode_all() == other.decode_all() == [OK]
    assert late.decode_all()[0][0] == 1
    assert answered == [None]
    assert registry.topics.ensure("u").message_count == 2
    assert [count for count, _ in durable.counts()[2]] == [1, 1, 1]
    assert [durable.channels[name].depth for name in "abc"] == [1, 0, 1]
    obstacle.rmdir()


def test_a_refusal_stands_behind_the_answers_before_it(durable):
    """One connection: written in an earlier turn, then refused in this one."""
    peer = Peer(durable.registry)
    peer.send(b"PUB u\n" + sized(b"1"))
    durable.registry.turn.end()
    peer.send(COMMANDS["PUB"] + COMMANDS["MPUB"])
    sync(durable.registry)
    frames = peer.decode_all()
    assert frames[0] == OK
    assert [kind for kind, _ in frames] == [0, 1]
    assert frames[1][1].startswith(b"E_PUB_FAILED ")
    assert peer.session.pub_counts() == {"u": 1}
    assert durable.topic.message_count == 0


def test_a_refusal_spares_answers_to_the_same_topic_that_wait_for_the_same_fsync(durable):
    durable.obstacle.rmdir()
    peer = Peer(durable.registry)
    peer.send(b"PUB u\n" + sized(b"1"))
    durable.registry.turn.end()  # while its fsync is on the way, all that follows waits for the next one
    peer.send(COMMANDS["PUB"] * 2)
    durable.registry.turn.end()
    durable.channels["b"].empty()
    obstacle = durable.obstacle.with_name("t:b.diskqueue.000001.dat")
    obstacle.mkdir()
    peer.send(COMMANDS["PUB"])
    sync(durable.registry)
    assert [kind for kind, _ in peer.decode_all()] == [0, 0, 0, 1]
    assert peer.session.pub_counts() == {"u": 1, "t": 2}
    assert durable.topic.message_count == 2
    obstacle.rmdir()


def test_a_deferred_publish_is_not_refused_with_what_comes_behind_it(durable):
    durable.obstacle.rmdir()
    peer = Peer(durable.registry)
    peer.send(COMMANDS["DPUB"])
    durable.channels["b"].empty()
    obstacle = durable.obstacle.with_name("t:b.diskqueue.000001.dat")
    obstacle.mkdir()
    peer.send(COMMANDS["PUB"])
    sync(durable.registry)
    assert [kind for kind, _ in peer.decode_all()] == [0, 1]
    assert durable.topic.message_count == 1
    assert durable.drain("a") == [b"new"]
    obstacle.rmdir()
