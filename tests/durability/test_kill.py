"""kill -9 under load, again and again: what was answered by OK is there, what was finished is not.

The promise belongs to --mem-queue-size=0 --sync-every=1, where OK means "on the disk", and to --durable=always and
interval, where it means "in the log".
"""

import collections
import os
import random
import threading
import time

import pytest

from durability.crash import modes
from support.server import start_nsqd
from support.web import post, topic_stats
from support.wire import ERROR, HEARTBEAT, MESSAGE, Client, encode_command, encode_messages
from support.wire import decode_message as decode

ROUNDS = 20
FLAGS = (*modes.ALWAYS.flags, "--max-bytes-per-file=65536")
MODES = [modes.ALWAYS, modes.INTERVAL]
# Little memory, so that the files and the log both have a part.
LOG_FLAGS = ("--mem-queue-size=20", "--max-bytes-per-file=65536")
TOPIC = "kill"
CHANNELS = ("a", "b")
WINDOW = 20
DEFER_MS_MAX = 1500


class Ledger:
    """What the peers of the broker know; every promise is written down when it is heard."""

    def __init__(self):
        self.lock = threading.Lock()
        self.sent = set()
        self.accepted = set()
        self.fin_sent = {channel: set() for channel in CHANNELS}
        self.finished = {channel: set() for channel in CHANNELS}
        self.failures = []
        self.answers = 0
        self.kill_after = 0
        self.time_to_kill = threading.Event()

    def heard_ok(self, bodies):
        with self.lock:
            self.accepted.update(bodies)
            self.answers += 1
            if self.answers >= self.kill_after:
                self.time_to_kill.set()

    def delivered(self, channel, body):
        with self.lock:
            if body not in self.sent:
                self.failures.append(f"{channel}: {body!r} was never published")
            if body in self.finished[channel]:
                self.failures.append(f"{channel}: {body!r} came back after its FIN was processed")


class Publisher:
    """Keeps a window of PUB, MPUB and DPUB in the air."""

    def __init__(self, ledger, seed):
        self.ledger = ledger
        self.random = random.Random(seed)
        self.prefix = f"p{seed}".encode()
        self.number = 0
        self.waiting = collections.deque()

    def bodies(self, count):
        made = []
        for _ in range(count):
            self.number += 1
            padding = b"." * self.random.randrange(300)
            made.append(b"%s-%d-%s" % (self.prefix, self.number, padding))
        with self.ledger.lock:
            self.ledger.sent.update(made)
        return made

    def next_command(self):
        kind = self.random.random()
        if kind < 0.6:
            bodies = self.bodies(1)
            command = encode_command("PUB", TOPIC, body=bodies[0])
        elif kind < 0.8:
            bodies = self.bodies(self.random.randrange(1, 8))
            command = encode_command("MPUB", TOPIC, body=encode_messages(bodies))
        else:
            bodies = self.bodies(1)
            delay = str(self.random.randrange(DEFER_MS_MAX))
            command = encode_command("DPUB", TOPIC, delay, body=bodies[0])
        self.waiting.append(bodies)
        return command

    def run(self, address):
        with Client(address) as client:
            while True:
                missing = self.random.randrange(1, WINDOW + 1)
                if len(self.waiting) < WINDOW:
                    client.send(b"".join(self.next_command() for _ in range(missing)))
                assert client.read_response() == b"OK"
                self.ledger.heard_ok(self.waiting.popleft())


class Consumer:
    """Finishes most, requeues some now or later, keeps some; proves its FINs by later PUBs."""

    def __init__(self, ledger, channel, seed):
        self.ledger = ledger
        self.channel = channel
        self.random = random.Random(seed)
        self.prefix = f"e{seed}".encode()
        self.proofs = collections.deque()
        self.fins = []
        self.number = 0

    def answer(self, client, message):
        self.ledger.delivered(self.channel, message.body)
        choice = self.random.random()
        if choice < 0.7:
            with self.ledger.lock:
                self.ledger.fin_sent[self.channel].add(message.body)
            client.fin(message)
            self.fins.append(message.body)
        elif choice < 0.8:
            client.command("REQ", message.id, "0")
        elif choice < 0.9:
            client.command("REQ", message.id, str(self.random.randrange(1, DEFER_MS_MAX)))
        if self.random.random() < 0.1:
            self.prove(client)

    def prove(self, client):
        """When this is answered, the FINs before it were processed."""
        self.number += 1
        body = b"%s-%d" % (self.prefix, self.number)
        with self.ledger.lock:
            self.ledger.sent.add(body)
        self.proofs.append((body, self.fins))
        self.fins = []
        client.command("PUB", TOPIC, body=body)

    def run(self, address):
        with Client(address) as client:
            client.sub(TOPIC, self.channel, 200)
            while True:
                frame = client.read_frame()
                assert frame.kind != ERROR, frame
                if frame.kind == MESSAGE:
                    self.answer(client, decode(frame.data))
                elif frame.data != HEARTBEAT:
                    body, fins = self.proofs.popleft()
                    self.ledger.heard_ok([body])
                    with self.ledger.lock:
                        self.ledger.finished[self.channel].update(fins)


def until_killed(ledger, run, address):
    try:
        run(address)
    except (EOFError, ConnectionError):
        pass
    except Exception as error:
        ledger.failures.append(repr(error))
        ledger.time_to_kill.set()


def flags_of(mode):
    return (*mode.flags, *LOG_FLAGS) if mode.has_log else FLAGS


def one_round(folder, ledger, source, flags):
    with start_nsqd("nsqfast", folder, *flags) as server:
        for channel in CHANNELS:
            post(server.http, f"/topic/create?topic={TOPIC}")
            post(server.http, f"/channel/create?topic={TOPIC}&channel={channel}")
        peers = [Publisher(ledger, source.getrandbits(32)) for _ in range(2)]
        peers += [Consumer(ledger, channel, source.getrandbits(32)) for channel in CHANNELS]
        ledger.time_to_kill.clear()
        ledger.kill_after = ledger.answers + source.randrange(1, 500)
        threads = [
            threading.Thread(target=until_killed, args=(ledger, peer.run, server.tcp))
            for peer in peers
        ]
        for thread in threads:
            thread.start()
        in_time = ledger.time_to_kill.wait(20)
        server.kill()
        for thread in threads:
            thread.join()
        assert in_time, "no answers any more:\n" + server.stderr
    assert not ledger.failures, ledger.failures[:5]


def drain(server, ledger, channel):
    """Everything that is left in the channel, deferred messages included."""
    wanted = ledger.accepted - ledger.fin_sent[channel]
    end = time.monotonic() + 15
    with Client(server.tcp) as client:
        client.identify(heartbeat_interval=1000)
        client.sub(TOPIC, channel, 2000)
        while time.monotonic() < end:
            frame = client.read_frame()
            if frame.kind == MESSAGE:
                message = decode(frame.data)
                ledger.delivered(channel, message.body)
                wanted.discard(message.body)
                client.fin(message)
                continue
            client.command("NOP")  # a heartbeat: the channel had nothing for a while
            left = topic_stats(server.http, TOPIC)["channels"][channel]
            if left["depth"] + left["in_flight_count"] + left["deferred_count"] == 0:
                break
    return wanted


@pytest.mark.soak
@pytest.mark.slow
@pytest.mark.timeout(150)
@pytest.mark.parametrize("mode", MODES, ids=lambda mode: mode.name)
def test_nothing_accepted_is_lost_and_nothing_finished_returns(tmp_path, mode):
    kill_again_and_again(tmp_path, 0, mode)


@pytest.mark.trust
@pytest.mark.timeout(300)
@pytest.mark.parametrize("mode", MODES, ids=lambda mode: mode.name)
@pytest.mark.parametrize("batch", range(1, 26))
def test_five_hundred_kills(tmp_path, batch, mode):
    kill_again_and_again(tmp_path, batch, mode)


def kill_again_and_again(tmp_path, batch, mode):
    seed = int(os.environ.get("NSQFAST_SEED", random.randrange(1 << 32)))
    print(f"NSQFAST_SEED={seed}")
    source = random.Random(seed + batch)
    ledger = Ledger()
    for _ in range(ROUNDS):
        one_round(tmp_path, ledger, source, flags_of(mode))
    with start_nsqd("nsqfast", tmp_path, *flags_of(mode)) as server:
        for channel in CHANNELS:
            missing = drain(server, ledger, channel)
            assert not missing, f"{channel}: {len(missing)} lost: {sorted(missing)[:5]}"
    assert not ledger.failures, ledger.failures[:5]
    assert len(ledger.accepted) > ROUNDS
    assert all(ledger.finished.values())
    assert list(tmp_path.glob("*.bad")) == []
    finished = sum(map(len, ledger.finished.values()))
    print(f"{ROUNDS} kills, {len(ledger.accepted)} accepted, {finished} finished")


@pytest.mark.slow
@pytest.mark.parametrize("mode", MODES, ids=lambda mode: mode.name)
def test_killed_with_everything_in_flight_or_deferred(tmp_path, mode):
    """The smallest form of the promise, without load: each kind of waiting once."""
    flags = flags_of(mode)
    with start_nsqd("nsqfast", tmp_path, *flags) as server, Client(server.tcp) as client:
        client.sub(TOPIC, "a", 3)
        client.mpub(TOPIC, [b"finished", b"requeued", b"deferred", b"flying", b"queued"])
        first = {message.body: message for message in client.read_messages(3)}
        assert sorted(first) == [b"deferred", b"finished", b"requeued"]
        client.command("RDY", "1")
        client.command("REQ", first[b"requeued"].id, "0")
        client.command("REQ", first[b"deferred"].id, "60000")
        client.fin(first[b"finished"])
        assert client.read_message().body == b"flying"
        assert client.ask("DPUB", TOPIC, "100", body=b"published late") == b"OK"
        client.barrier()
        client.pub(TOPIC, b"proof")
        server.kill()
    expected = {b"requeued", b"flying", b"queued", b"published late", b"proof", b"deferred"}
    with start_nsqd("nsqfast", tmp_path, *flags) as server, Client(server.tcp) as client:
        counts = topic_stats(server.http, TOPIC)["channels"]["a"]
        assert counts["depth"] + counts["deferred_count"] == len(expected)
        client.sub(TOPIC, "a", 100)
        now = expected - {b"deferred"} if counts["deferred_count"] else expected
        got = set()
        while not now <= got:
            got.add(client.read_message().body)
        assert got <= expected


@pytest.mark.parametrize("flags", [("--mem-queue-size=0",), FLAGS], ids=["off", "always"])
def test_a_kill_before_anybody_wrote_the_names_down(tmp_path, flags):
    """The OK to a first message may be there before its topic is in nsqd.dat."""
    with start_nsqd("nsqfast", tmp_path, *flags) as server:
        (tmp_path / "nsqd.dat").unlink()
        (tmp_path / "nsqd.dat").mkdir()  # so that it cannot be written
        with Client(server.tcp) as client:
            client.sub("t", "c")
            client.pub("t", b"accepted")
            server.kill()
    (tmp_path / "nsqd.dat").rmdir()
    with start_nsqd("nsqfast", tmp_path, *flags) as server, Client(server.tcp) as client:
        if flags is not FLAGS:  # the log knows the names
            assert "messages of channel c of topic t are here" in server.stderr
        client.sub("t", "c", 1)
        assert client.read_message().body == b"accepted"
