"""A folder that brokers take one after the other, Go's and ours with and without a commit log, each after a clean stop.

A naive model knows what is in each queue, in order: groups of messages, where the order within a group is anybody's.
"""

import itertools

import pytest

from support.server import start_nsqd
from support.topics import make
from support.waiting import wait_until
from support.web import post, topic_stats
from support.wire import Client

GO, OFF, ALWAYS, INTERVAL = "go", "nsqfast", "always", "interval"
OURS = (OFF, ALWAYS, INTERVAL)
IN_FILES, IN_MEMORY = "--mem-queue-size=0", "--mem-queue-size=10000"
FILES = "--max-bytes-per-file=2000"
LONG_MS = "600000"
TAKEN = 12
AT_ONCE = 30

FEW = [(IN_MEMORY, (GO, ALWAYS, GO)), (IN_FILES, (INTERVAL, GO, INTERVAL))]
MANY = [
    *((GO, mode, GO) for mode in OURS),
    *((mode, GO, mode) for mode in OURS),
    *((GO, *pair, GO) for pair in itertools.permutations(OURS, 2)),
    (GO, ALWAYS, INTERVAL, OFF, ALWAYS, GO, OFF, INTERVAL, GO),
]

pytestmark = [pytest.mark.go, pytest.mark.slow]


class Folder:
    """What is in its queues.

    `ready` and `deferred`: sets of channel c of topic t. A stop writes again what was answered out of order, so its
    order is anybody's. `delayed`: that of topic d, whose messages are deferred by their publisher; Go delivers these at
    once. `order`: the two other channels of t, of which one is paused; `waiting`: a topic that is paused.
    """

    def __init__(self, path, memory):
        self.path, self.memory = path, memory
        self.ready, self.deferred, self.delayed, self.is_due = set(), set(), set(), False
        self.order, self.waiting = [], []
        self.numbers = itertools.count()
        self.attempts = {}

    def bodies(self, count):
        return [b"%06d" % next(self.numbers) for _ in range(count)]

    def start(self, program):
        # In Go's a message may overtake others if some are in memory.
        memory = IN_FILES if program == GO else self.memory
        return start_nsqd(program, self.path, memory, FILES)


def counts(server, topic, channel=None):
    """(depth, in flight, deferred, paused) of a channel, or (depth, paused) of a topic."""
    found = topic_stats(server.http, topic)
    if channel is None:
        return found["depth"], found["paused"]
    found = found["channels"][channel]
    return found["depth"], found["in_flight_count"], found["deferred_count"], found["paused"]


def await_counts(server, wanted, *place):
    """Go's topics hand on to their channels in the background."""
    wait_until(
        lambda: counts(server, *place) == wanted, lambda: (wanted, counts(server, *place), place)
    )


def prepare(server):
    for topic, channel in (("t", "c"), ("t", "idle"), ("t", "paused"), ("d", "c"), ("p", "c")):
        make(server, topic, channel)
    post(server.http, "/channel/pause?topic=t&channel=paused")
    post(server.http, "/topic/pause?topic=p")


def see(folder, server, in_flight=()):
    """Nothing is missing, and nothing is there twice."""
    wanted = (len(folder.ready), len(in_flight), len(folder.deferred), False)
    await_counts(server, wanted, "t", "c")
    await_counts(server, (len(folder.order), 0, 0, False), "t", "idle")
    await_counts(server, (len(folder.order), 0, 0, True), "t", "paused")
    await_counts(server, (0, False), "t")
    count = len(folder.delayed)
    wanted = (count, 0, 0, False) if folder.is_due else (0, 0, count, False)
    await_counts(server, wanted, "d", "c")
    await_counts(server, (len(folder.waiting), True), "p")
    await_counts(server, (0, 0, 0, False), "p", "c")


def take_some(folder, client):
    """They are in flight then."""
    client.sub("t", "c", TAKEN)
    messages = client.read_messages(TAKEN)
    client.command("RDY", "0")
    client.barrier()
    for message in messages:
        folder.ready.remove(message.body)
        assert message.attempts > folder.attempts.get(message.body, 0)
        folder.attempts[message.body] = message.attempts
    return messages


def answer(folder, client, messages):
    """Some are finished, some come back at once or later; return those that stay in flight."""
    for message in messages[2:7]:
        client.fin(message)
    for message in messages[7:9]:
        client.command("REQ", message.id, "0")
        folder.ready.add(message.body)
    for message in messages[9:11]:
        client.command("REQ", message.id, LONG_MS)
        folder.deferred.add(message.body)
    client.barrier()
    return {message.body for message in (*messages[:2], *messages[11:])}


def publish(folder, server, program):
    bodies, delayed, waiting = folder.bodies(AT_ONCE), folder.bodies(2), folder.bodies(5)
    with Client(server.tcp) as client:
        client.mpub("t", bodies)
        client.mpub("p", waiting)
        if program != GO:
            for body in delayed:
                assert client.ask("DPUB", "d", LONG_MS, body=body) == b"OK"
            folder.delayed |= set(delayed)
    folder.ready |= set(bodies)
    folder.order += bodies
    folder.waiting += waiting


def stay(folder, program, following, is_first):
    """One broker of the folder; `following` takes it next."""
    bad = set(folder.path.glob("*.bad"))
    with folder.start(program) as server:
        if is_first:
            prepare(server)
            publish(folder, server, program)
        see(folder, server)
        with Client(server.tcp) as client, Client(server.tcp) as other:
            if folder.is_due:
                take_all(other, "d", folder.delayed)
                folder.delayed, folder.is_due = set(), False
            in_flight = answer(folder, client, take_some(folder, client))
            publish(folder, server, program)
            see(folder, server, in_flight)
            server.stop()
    # Go's sets a file aside that it has just filled, if its reader is at the end of it.
    assert program == GO or set(folder.path.glob("*.bad")) == bad
    folder.ready |= in_flight
    if GO in (program, following):
        folder.ready |= folder.deferred
        folder.deferred = set()
        folder.is_due = True


def take_all(client, topic, bodies, channel="c"):
    """They and no others, each once; return them."""
    client.sub(topic, channel, 1)
    got = []
    for _ in bodies:
        message = client.read_message()
        got.append(message.body)
        client.fin(message)
    client.barrier()
    assert sorted(got) == sorted(bodies)
    return got


def finish(folder, program):
    with folder.start(program) as server:
        see(folder, server)
        post(server.http, "/channel/unpause?topic=t&channel=paused")
        post(server.http, "/topic/unpause?topic=p")
        queues = [
            ("t", "c", folder.ready),
            ("t", "idle", folder.order),
            ("t", "paused", folder.order),
        ]
        queues += [
            ("p", "c", folder.waiting),
            ("d", "c", folder.delayed if folder.is_due else set()),
        ]
        for topic, channel, bodies in queues:
            with Client(server.tcp) as client:
                got = take_all(client, topic, bodies, channel)
                assert got == bodies or isinstance(bodies, set)
        await_counts(server, (0, 0, len(folder.deferred), False), "t", "c")


def name(value):
    return "-".join(value) if isinstance(value, tuple) else value.strip("-")


@pytest.mark.parametrize(
    ("memory", "programs"),
    [
        *FEW,
        *(
            pytest.param(memory, programs, marks=pytest.mark.soak)
            for memory in (IN_FILES, IN_MEMORY)
            for programs in MANY
            if (memory, programs) not in FEW
        ),
    ],
    ids=name,
)
def test_nothing_is_lost_or_doubled(tmp_path, memory, programs):
    folder = Folder(tmp_path, memory)
    for number, (program, following) in enumerate(itertools.pairwise(programs)):
        stay(folder, program, following, number == 0)
    finish(folder, programs[-1])
