"""Deferred messages keep their deadline over a clean stop, and nothing else costs one of them."""

import time

import pytest

from support.lines import complaints, only_complaint
from support.server import start_nsqd
from support.topics import make
from support.waiting import eventually
from support.web import post, topic_stats
from support.wire import Client

LONG_MS = 60_000
SHORT_MS = 300
IN_MEMORY, ON_DISK = "--mem-queue-size=10000", "--mem-queue-size=0"
BODIES = {b"deferred", b"requeued", b"ready"}

memory = pytest.mark.parametrize("memory", [IN_MEMORY, ON_DISK])


def defer(client, topic, body, delay_ms):
    assert client.ask("DPUB", topic, str(delay_ms), body=body) == b"OK"


def leave_deferred(server, delay_ms=LONG_MS, topic="t"):
    """In its channel c: a deferred message, one that was requeued with that delay, and one that is ready."""
    make(server, topic)
    with Client(server.tcp) as client:
        client.pub(topic, b"requeued")
        client.sub(topic, "c", 1)
        message = client.read_message()
        assert (message.body, message.attempts) == (b"requeued", 1)
        client.command("RDY", "0")
        client.command("REQ", message.id, str(delay_ms))
        client.barrier()
    with Client(server.tcp) as client:
        defer(client, topic, b"deferred", delay_ms)
        client.pub(topic, b"ready")


def counts(server, channel="c", topic="t"):
    """(depth, deferred)"""
    found = topic_stats(server.http, topic)["channels"][channel]
    return found["depth"], found["deferred_count"]


def take(server, count, channel="c", topic="t"):
    """{body: attempts} of the next ones, which are finished."""
    with Client(server.tcp) as client:
        client.sub(topic, channel, count)
        messages = client.read_messages(count)
        for message in messages:
            client.fin(message)
        client.ask("CLS")
    assert len({message.body for message in messages}) == count
    return {message.body: message.attempts for message in messages}


def path_of(folder, queue="t:c"):
    return folder / f"{queue}.diskqueue.deferred.dat"


def test_a_clean_stop_where_the_first_of_them_begins_a_file(tmp_path):
    """The file before it, at whose end it was to be, is finished, and so removed."""
    flags = (ON_DISK, "--max-bytes-per-file=100")
    with start_nsqd("nsqfast", tmp_path, *flags) as server:
        make(server, "t")
        with Client(server.tcp) as client:
            defer(client, "t", b"x" * 60, LONG_MS)
        assert counts(server) == (0, 1)
    with start_nsqd("nsqfast", tmp_path, *flags) as server:
        assert counts(server) == (0, 1)
        assert complaints(server) == []


@memory
def test_a_clean_stop(tmp_path, memory):
    with start_nsqd("nsqfast", tmp_path, memory) as server:
        leave_deferred(server)
        assert counts(server) == (1, 2)
    for _ in range(2):  # a second stop in between changes nothing
        with start_nsqd("nsqfast", tmp_path, memory) as server:
            assert counts(server) == (1, 2)
            assert not path_of(tmp_path).exists()  # it counts once
            assert complaints(server) == []
        assert path_of(tmp_path).exists()
    with start_nsqd("nsqfast", tmp_path, memory) as server:
        assert take(server, 1) == {b"ready": 1}
        assert counts(server) == (0, 2)


@memory
def test_a_delay_that_ends_later(tmp_path, memory):
    """Not before its time, which goes on while the broker is down; with its attempts."""
    delay_ms = 1500
    begun = time.monotonic()
    with start_nsqd("nsqfast", tmp_path, memory) as server:
        leave_deferred(server, delay_ms)
    with start_nsqd("nsqfast", tmp_path, memory) as server, Client(server.tcp) as client:
        client.sub("t", "c", 3)
        found = {}
        while len(found) < 3:
            message = client.read_message()
            # Counted from before it was asked for.
            assert message.body == b"ready" or time.monotonic() - begun >= delay_ms / 1000
            found[message.body] = message.attempts
            client.fin(message)
        client.barrier()
        assert found == {b"ready": 1, b"deferred": 1, b"requeued": 2}


@memory
def test_a_delay_that_ends_while_the_broker_is_down(tmp_path, memory):
    with start_nsqd("nsqfast", tmp_path, memory) as server:
        leave_deferred(server, SHORT_MS)
        asked = time.monotonic()
    with start_nsqd("nsqfast", tmp_path, memory) as server:
        assert take(server, 3) == {b"ready": 1, b"deferred": 1, b"requeued": 2}
        assert time.monotonic() - asked >= SHORT_MS / 1000
        assert counts(server) == (0, 0)


@memory
def test_a_topic_without_channel(tmp_path, memory):
    with start_nsqd("nsqfast", tmp_path, memory) as server, Client(server.tcp) as client:
        defer(client, "t", b"deferred", LONG_MS)
        client.pub("t", b"ready")
    with start_nsqd("nsqfast", tmp_path, memory) as server:
        post(server.http, "/channel/create?topic=t&channel=c")
        assert take(server, 1) == {b"ready": 1}
        assert counts(server) == (0, 1)
        assert complaints(server) == []
    with start_nsqd("nsqfast", tmp_path, memory) as server:
        assert counts(server) == (0, 1)


def test_a_kill(tmp_path):
    """They are due at once, and those that were requeued keep their attempts."""
    with start_nsqd("nsqfast", tmp_path, ON_DISK) as server:
        leave_deferred(server)
        server.kill()
    with start_nsqd("nsqfast", tmp_path, ON_DISK) as server:
        assert counts(server) == (3, 0)
        assert take(server, 3) == {b"ready": 1, b"deferred": 1, b"requeued": 2}


def test_a_kill_of_what_is_on_disk_alone(tmp_path):
    """With default flags, too, what a channel does not keep in memory is there afterwards."""
    count, kept = 1200, 1000
    with start_nsqd("nsqfast", tmp_path, IN_MEMORY) as server:
        make(server, "t")
        with Client(server.tcp) as client:
            for number in range(count):
                defer(client, "t", b"%d" % number, 10 * LONG_MS)
        assert counts(server) == (0, count)
        eventually(lambda: path_of(tmp_path).with_name("t:c.diskqueue.000000.dat").exists())
        with Client(server.tcp) as client:
            defer(client, "t", b"last", 10 * LONG_MS)
        # What the answer to a later request follows was stored in turns before it.
        assert counts(server) == (0, count + 1)
        server.kill()
    with start_nsqd("nsqfast", tmp_path, IN_MEMORY) as server:
        depth, deferred = counts(server)
        assert deferred == 0
        assert count - kept <= depth <= count + 1


@memory
def test_a_kill_after_a_clean_stop(tmp_path, memory):
    """What the file said counted for the start before."""
    with start_nsqd("nsqfast", tmp_path, memory) as server:
        leave_deferred(server)
    with start_nsqd("nsqfast", tmp_path, memory) as server:
        assert counts(server) == (1, 2)
        server.kill()
    with start_nsqd("nsqfast", tmp_path, memory) as server:
        assert counts(server) == (3, 0)
        assert take(server, 3) == {b"ready": 1, b"deferred": 1, b"requeued": 2}


@pytest.mark.go
@memory
def test_a_go_broker_in_between(tmp_path, memory):
    """It knows of no deadlines, and changes the files."""
    with start_nsqd("nsqfast", tmp_path, memory) as server:
        leave_deferred(server)
    with start_nsqd("go", tmp_path, memory) as server, Client(server.tcp) as client:
        assert counts(server) == (3, 0)
        client.pub("t", b"from Go")
        client.sub("t", "c", 1)
        message = client.read_message()
        client.command("RDY", "0")
        client.fin(message)
        client.ask("CLS")
    with start_nsqd("nsqfast", tmp_path, memory) as server:
        if message.body == b"from Go":
            # It came from Go's memory: the files are as our broker left them, and so are the deadlines.
            assert counts(server) == (1, 2)
            assert take(server, 1).keys() == {b"ready"}
        else:
            assert counts(server) == (3, 0)
            assert take(server, 3).keys() == {*BODIES, b"from Go"} - {message.body}
            assert counts(server) == (0, 0)
        assert complaints(server) == []


@pytest.mark.go
@memory
def test_a_go_broker_that_delivers_everything(tmp_path, memory):
    with start_nsqd("nsqfast", tmp_path, memory) as server:
        leave_deferred(server)
    with start_nsqd("go", tmp_path, memory) as server:
        assert take(server, 3) == {b"ready": 1, b"deferred": 1, b"requeued": 2}
    with start_nsqd("nsqfast", tmp_path, memory) as server:
        assert counts(server) == (0, 0)
        post(server.http, "/pub?topic=t", b"next")
        assert take(server, 1) == {b"next": 1}
        assert complaints(server) == []


@pytest.mark.go
@memory
def test_a_go_broker_without_consumers(tmp_path, memory):
    with start_nsqd("nsqfast", tmp_path, memory) as server:
        leave_deferred(server)
    with start_nsqd("go", tmp_path, memory) as server:
        assert counts(server) == (3, 0)
    with start_nsqd("nsqfast", tmp_path, memory) as server:
        assert sum(counts(server)) == 3
        assert complaints(server) == []
        server.kill()  # where nothing was changed, the deadlines hold
    with start_nsqd("nsqfast", tmp_path, memory) as server:
        assert take(server, 3) == {b"ready": 1, b"deferred": 1, b"requeued": 2}


def flipped(data, at):
    return data[:at] + bytes((data[at] ^ 0x10,)) + data[at + 1 :]


DAMAGES = {
    "magic": lambda data: flipped(data, 0),
    "check": lambda data: flipped(data, 9),
    "count": lambda data: flipped(data, 16),
    "file": lambda data: flipped(data, 33),
    "position": lambda data: flipped(data, 41),
    "id": lambda data: flipped(data, 48),
    "due": lambda data: flipped(data, 60),
    "no-head": lambda data: data[:20],
    "no-entries": lambda data: data[:48],
    "half-an-entry": lambda data: data[:-7],
    "longer": lambda data: data + data[-16:],
    "empty": lambda _: b"",
    "zeros": lambda data: bytes(len(data)),
    "of-another-program": lambda _: b"SQLite format 3\0" * 256,
}


@memory
def test_damaged_files(tmp_path, memory):
    """Everything is due at once, which one line says of each."""
    with start_nsqd("nsqfast", tmp_path, memory) as server:
        for how in DAMAGES:
            leave_deferred(server, topic=how)
    for how, damage in DAMAGES.items():
        path = path_of(tmp_path, f"{how}:c")
        path.write_bytes(damage(path.read_bytes()))
    with start_nsqd("nsqfast", tmp_path, memory) as server:
        assert sorted(line.partition(" WARNING: ")[2] for line in complaints(server)) == sorted(
            f"DISKQUEUE({how}:c) deferred messages are due at once, "
            f"{path_of(tmp_path, f'{how}:c')} is damaged"
            for how in DAMAGES
        )
        for how in DAMAGES:
            assert counts(server, topic=how) == (3, 0), how
            assert not path_of(tmp_path, f"{how}:c").exists(), how
            assert take(server, 3, topic=how) == {b"ready": 1, b"deferred": 1, b"requeued": 2}, how


@memory
def test_a_file_of_an_earlier_stop(tmp_path, memory):
    """Someone put it back: the records it speaks of are not there."""
    with start_nsqd("nsqfast", tmp_path, memory) as server:
        leave_deferred(server)
    earlier = path_of(tmp_path).read_bytes()
    with start_nsqd("nsqfast", tmp_path, memory) as server:
        take(server, 1)
        with Client(server.tcp) as client:
            client.mpub("t", [b"1", b"2"])
    path_of(tmp_path).write_bytes(earlier)
    with start_nsqd("nsqfast", tmp_path, memory) as server:
        assert only_complaint(server).endswith(" due at once, they are not where they were")
        assert counts(server) == (4, 0)
        assert take(server, 4) == {b"deferred": 1, b"requeued": 2, b"1": 1, b"2": 1}


def test_a_file_that_cannot_be_read(tmp_path):
    with start_nsqd("nsqfast", tmp_path) as server:
        leave_deferred(server)
    path_of(tmp_path).unlink()
    path_of(tmp_path).mkdir()
    with start_nsqd("nsqfast", tmp_path) as server:
        assert only_complaint(server).endswith(f"{path_of(tmp_path)} - Is a directory")
        assert take(server, 3) == {b"ready": 1, b"deferred": 1, b"requeued": 2}
