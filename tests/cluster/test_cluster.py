"""Three nsqd, two nsqlookupd, each on a network of its own: nodes die, links break, and no message is lost.

Network namespaces need root and `ip` (`apt install iproute2`); elsewhere these are skipped with one line.
"""

import contextlib
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from support.namespaces import Network, why_not
from support.server import Server, program
from support.waiting import wait_until
from support.web import get

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(bool(why_not()), reason=why_not()),
    pytest.mark.soak,
]

WORKER = str(Path(__file__).parent / "worker.py")
NODES = ("nsqd-a", "nsqd-b", "nsqd-c")
LOOKUPDS = ("lookupd-a", "lookupd-b")
TOPIC, CHANNEL = "orders", "billing"
SECONDS_MAX = 60


class Worker:
    """A process whose lines are counted as they come."""

    def __init__(self, command):
        self.numbers = {"ok": set(), "got": set()}
        self.lines = []
        self._changed = threading.Condition()
        self.process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE
        )
        self._errors = []
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()
        self._drain = threading.Thread(
            target=lambda: self._errors.extend(self.process.stderr), daemon=True
        )
        self._drain.start()

    def _read(self):
        for raw in self.process.stdout:
            word, *rest = raw.decode().split()
            with self._changed:
                self.lines.append(raw)
                if word in self.numbers:
                    self.numbers[word].add(int(rest[0]))
                self._changed.notify_all()

    def wait(self, reached, seconds_max=SECONDS_MAX):
        with self._changed:
            if not self._changed.wait_for(reached, seconds_max):
                raise AssertionError(f"not reached; {len(self.lines)} lines, {self.errors[-2000:]}")

    def wait_for_more(self, word, count):
        """So many numbers more than there are now."""
        wanted = len(self.numbers[word]) + count
        self.wait(lambda: len(self.numbers[word]) >= wanted)

    @property
    def errors(self):
        return b"".join(self._errors).decode()

    def close(self):
        """Whatever it was doing."""
        self.process.kill()
        self.process.wait()
        self._reader.join()
        self._drain.join()
        for pipe in (self.process.stdin, self.process.stdout, self.process.stderr):
            with contextlib.suppress(BrokenPipeError):
                pipe.close()

    def end(self):
        self.process.stdin.close()
        assert self.process.wait(SECONDS_MAX) == 0, self.errors


class Cluster:
    """Everything runs when it was made."""

    def __init__(self, folder, stack):
        self.network = stack.enter_context(Network())
        self.addresses = {name: self.network.add(name) for name in (*LOOKUPDS, *NODES, "client")}
        self._folder = folder
        self._stack = stack
        self.servers = {}
        for name in (*LOOKUPDS, *NODES):
            self.start(name)

    def start(self, name):
        address = self.addresses[name]
        if name in LOOKUPDS:
            command = program("nsqlookupd", "nsqfast")
            flags = [f"--tcp-address={address}:4160", f"--http-address={address}:4161"]
        else:
            data = self._folder / name
            data.mkdir(exist_ok=True)
            command = program("nsqd", "nsqfast")
            flags = [f"--tcp-address={address}:4150", f"--http-address={address}:4151"]
            flags += [f"--data-path={data}", "--mem-queue-size=0", "--sync-every=1"]
            flags += ["--msg-timeout=2s"]
            flags += [f"--lookupd-tcp-address={self.addresses[one]}:4160" for one in LOOKUPDS]
        flags.append(f"--broadcast-address={address}")
        self.servers[name] = self._stack.enter_context(
            Server(self.network.on(name, *command, *flags))
        )

    def kill(self, name):
        self.servers[name].kill()

    def worker(self, *words):
        worker = Worker(self.network.on("client", sys.executable, WORKER, *words))
        self._stack.callback(worker.close)
        return worker

    def listed_nodes(self, lookupd):
        """How many producers of the topic this nsqlookupd knows."""
        address = (self.addresses[lookupd], 4161)
        answer = self.network.call("client", lambda: get(address, f"/lookup?topic={TOPIC}"))
        return len(answer.json()["producers"]) if answer.status == 200 else 0

    def connections(self, name):
        """Consumers of the channel on a node."""
        address = (self.addresses[name], 4151)
        answer = self.network.call("client", lambda: get(address, "/stats?format=json"))
        return sum(
            channel["client_count"]
            for topic in answer.json()["topics"]
            for channel in topic["channels"]
        )


@pytest.fixture
def cluster(tmp_path):
    with contextlib.ExitStack() as stack:
        yield Cluster(tmp_path, stack)


@pytest.fixture
def workers(cluster):
    """(producer, consumer), when messages have come from every node."""
    nodes = ",".join(f"{cluster.addresses[name]}:4150" for name in NODES)
    lookupds = ",".join(f"{cluster.addresses[name]}:4161" for name in LOOKUPDS)
    producer = cluster.worker("publish", TOPIC, nodes)
    producer.wait_for_more("ok", 30)
    for lookupd in LOOKUPDS:
        wait_until(lambda lookupd=lookupd: cluster.listed_nodes(lookupd) == len(NODES))
    consumer = cluster.worker("consume", TOPIC, CHANNEL, lookupds)
    consumer.wait_for_more("got", 30)
    for name in NODES:
        wait_until(lambda name=name: cluster.connections(name) == 1)
    return producer, consumer


def finish(producer, consumer):
    """All that was acknowledged was consumed."""
    producer.end()
    accepted = producer.numbers["ok"]
    assert len(accepted) > 100
    consumer.wait(lambda: accepted <= consumer.numbers["got"])
    consumer.end()


def test_a_node_is_killed_and_comes_back(cluster, workers):
    producer, consumer = workers
    cluster.kill("nsqd-b")
    producer.wait_for_more("ok", 200)
    consumer.wait_for_more("got", 200)
    cluster.start("nsqd-b")
    wait_until(lambda: cluster.connections("nsqd-b") == 1)
    finish(producer, consumer)


def test_an_nsqlookupd_is_killed_and_comes_back(cluster, workers):
    producer, consumer = workers
    cluster.kill("lookupd-a")
    producer.wait_for_more("ok", 200)
    consumer.wait_for_more("got", 200)
    cluster.start("lookupd-a")
    wait_until(lambda: cluster.listed_nodes("lookupd-a") == len(NODES))
    finish(producer, consumer)


@pytest.mark.parametrize("seconds", [4, 20])
def test_a_link_is_cut_and_restored(cluster, workers, seconds):
    producer, consumer = workers
    cluster.network.cut("nsqd-c")
    begun = time.monotonic()
    # Other nodes go on; what was on its way to this one waits, or goes elsewhere.
    while time.monotonic() < begun + seconds:
        consumer.wait_for_more("got", 20)
    cluster.network.restore("nsqd-c")
    wait_until(lambda: cluster.connections("nsqd-c") == 1)
    finish(producer, consumer)


def test_a_new_node_is_taken_up_within_one_poll(cluster, workers):
    producer, consumer = workers
    address = cluster.network.add("nsqd-d")
    cluster.addresses["nsqd-d"] = address
    cluster.start("nsqd-d")
    extra = cluster.worker("publish", TOPIC, f"{address}:4150")
    extra.wait_for_more("ok", 10)
    begun = time.monotonic()
    wait_until(lambda: cluster.connections("nsqd-d") == 1)
    # The poll interval is 2 s, with up to 0.6 s of jitter at its start.
    assert time.monotonic() - begun < 2 + 0.6 + 5
    extra.end()
    finish(producer, consumer)
