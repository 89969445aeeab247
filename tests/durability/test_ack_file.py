"""The file of acknowledgements is cut, damaged, replaced or cannot be written: no message is lost by that."""

import contextlib
import os
import random
import shutil

import pytest

from durability.blocks import loop
from support.lines import complaints, only_complaint, wait_for_ping
from support.server import start_nsqd
from support.web import post, stats, topic_stats
from support.wire import Client

FLAGS = ("--mem-queue-size=0", "--sync-timeout=100ms")
# A file of one page, and one of several.
SMALL, LARGE = 1000, 100_000
IN_MEMORY = "DISKQUEUE(t:c.diskqueue.acks.dat) acknowledgements are kept in memory only - "
AGAIN = "DISKQUEUE(t:c.diskqueue.acks.dat) acknowledgements are kept on disk again"
DAMAGED = "DISKQUEUE(t:c.diskqueue.acks.dat) acknowledgements are damaged, finished messages may come again"


def path_of(folder):
    return folder / "t:c.diskqueue.acks.dat"


def publish(server, count, first=0):
    """Bodies are numbers."""
    post(server.http, "/topic/create?topic=t")
    post(server.http, "/channel/create?topic=t&channel=c")
    with Client(server.tcp) as client:
        for start in range(first, first + count, 10_000):
            end = min(start + 10_000, first + count)
            client.mpub("t", [b"%d" % number for number in range(start, end)])


def finish(client, count):
    """The numbers of so many messages, every one of which is finished."""
    numbers = set()
    for _ in range(count):
        message = client.read_message()
        numbers.add(int(message.body))
        client.fin(message)
    return numbers


@contextlib.contextmanager
def consumer(server, ready_count=100):
    with Client(server.tcp) as client:
        client.sub("t", "c", ready_count)
        yield client
        client.ask("CLS")


def drain(server, wanted):
    """All that is wanted comes; something else may."""
    missing = set(wanted)
    with consumer(server, 2500) as client:
        while missing:
            missing -= finish(client, 1)


@pytest.mark.parametrize("count", [SMALL, LARGE])
@pytest.mark.parametrize("part", [0.0, 0.5])
def test_cut_while_messages_are_finished(tmp_path, count, part):
    with start_nsqd("nsqfast", tmp_path, *FLAGS) as server:
        publish(server, count)
        with consumer(server) as client:
            done = finish(client, count // 4)
            os.truncate(path_of(tmp_path), int(path_of(tmp_path).stat().st_size * part))
            done |= finish(client, count // 4)
            server.wait_for_line(AGAIN)
        first, second = complaints(server)
        assert first.endswith(IN_MEMORY + "the file could not be changed")
        assert second.endswith(AGAIN)
        wait_for_ping(server, 200)
        with consumer(
            server, 1
        ) as client:  # it is not the one that is kept that says what was finished
            done |= finish(client, 1)
        server.kill()
    with start_nsqd("nsqfast", tmp_path, *FLAGS) as server:
        assert "acknowledgements" not in server.stderr
        drain(server, {*range(count)} - done)


def test_removed(tmp_path):
    """A new one is written."""
    with start_nsqd("nsqfast", tmp_path, *FLAGS) as server:
        publish(server, SMALL)
        with consumer(server) as client:
            done = finish(client, 100)
            path_of(tmp_path).unlink()
            done |= finish(client, 100)
            server.wait_for_line(AGAIN)
        assert path_of(tmp_path).exists()
        server.kill()
    with start_nsqd("nsqfast", tmp_path, *FLAGS) as server:
        assert topic_stats(server.http, "t")["channels"]["c"]["depth"] <= SMALL - 200
        drain(server, {*range(SMALL)} - done)


@pytest.mark.slow
def test_a_full_disk_that_copies_on_write():
    """A store into the mapped file finds no room: without a guard that is the end of the process."""
    with loop.mounted("btrfs") as folder, start_nsqd("nsqfast", folder, *FLAGS) as server:
        publish(server, LARGE)
        with consumer(server) as client:
            done = finish(client, 1000)
        os.sync()
        filler = loop.fill(folder)
        with consumer(server) as client:
            for _ in range(20):
                done |= finish(client, 1000)
                os.sync()  # the next store has to copy the page
        server.wait_for_line(IN_MEMORY)
        assert wait_for_ping(server, 500).endswith("no space left on device")
        filler.unlink()
        os.sync()
        wait_for_ping(server, 200)
        publish(server, 10, LARGE)
        drain(server, {*range(LARGE + 10)} - done)
        complaints(server)


@pytest.fixture(scope="module")
def stopped(tmp_path_factory):
    """A folder in which every second message is finished, after a clean stop; what is left."""
    folder = tmp_path_factory.mktemp("stopped")
    with start_nsqd("nsqfast", folder, *FLAGS) as server:
        publish(server, SMALL)
        with Client(server.tcp) as client:
            client.sub("t", "c", SMALL)
            messages = client.read_messages(SMALL)
            for message in messages[::2]:
                client.fin(message)
            client.ask("CLS")
    return folder, {int(message.body) for message in messages[1::2]}


@pytest.fixture
def left(stopped, tmp_path):
    """What is left in `tmp_path`."""
    folder, numbers = stopped
    shutil.copytree(folder, tmp_path, dirs_exist_ok=True)
    return numbers


REGIONS = {
    "magic": (0, 8),
    "places": (16, 120),
    "header": (8, 512),
    "bits": (512, 2560),
}


@pytest.mark.parametrize("region", REGIONS)
def test_one_flipped_bit(tmp_path, left, region):
    """Whichever it is, all messages are there; where it matters, one line says so."""
    data = path_of(tmp_path).read_bytes()
    kept = {path.name: path.read_bytes() for path in tmp_path.iterdir() if path.is_file()}
    chosen = random.Random(16)
    for _ in range(6):
        for name, content in kept.items():
            (tmp_path / name).write_bytes(content)
        at = chosen.randrange(*REGIONS[region])
        damaged = bytearray(data)
        damaged[at] ^= 1 << chosen.randrange(8)
        path_of(tmp_path).write_bytes(damaged)
        with start_nsqd("nsqfast", tmp_path, *FLAGS) as server:
            lines = complaints(server)
            assert len(lines) <= 1
            assert all(line.endswith(DAMAGED) for line in lines)
            if region in ("magic", "bits"):
                assert lines, at
            drain(server, left)
            wait_for_ping(server, 200)


FOREIGN = {
    "empty": b"",
    "zeros": bytes(2560),
    "ones": b"\xff" * 2560,
    "text": b"not an ack file\n" * 160,
    "header alone": b"nsqacks2" + bytes(504),
    "capacity": b"nsqacks2" + (1 << 62).to_bytes(8, "little") + bytes(2544),
    "noise": random.Random(16).randbytes(2560),
    "huge": bytes(1 << 20),
}


@pytest.mark.parametrize("what", FOREIGN)
def test_a_foreign_file(tmp_path, left, what):
    path_of(tmp_path).write_bytes(FOREIGN[what])
    with start_nsqd("nsqfast", tmp_path, *FLAGS) as server:
        assert only_complaint(server).endswith(DAMAGED)
        drain(server, left)
        wait_for_ping(server, 200)


def test_a_folder_in_its_place(tmp_path, left):
    path_of(tmp_path).unlink()
    path_of(tmp_path).mkdir()
    with start_nsqd("nsqfast", tmp_path, *FLAGS) as server:
        drain(server, left)
        assert len(complaints(server)) == 2  # it cannot be read, and not be written
        server.kill()


def test_none(tmp_path, left):
    path_of(tmp_path).unlink()
    with start_nsqd("nsqfast", tmp_path, *FLAGS) as server:
        drain(server, left)
        assert complaints(server) == []


@pytest.mark.parametrize("position", ["0,999999", "7,0", "7,999999"])
def test_metadata_that_points_behind_everything(tmp_path, left, position):
    """Named in the log, and everything that is there is delivered."""
    meta = tmp_path / "t:c.diskqueue.meta.dat"
    lines = meta.read_text().splitlines()
    meta.write_text("\n".join([lines[0], position, position, *lines[3:], ""]))
    with start_nsqd("nsqfast", tmp_path, *FLAGS) as server:
        assert "metadata corruption, reading all files" in only_complaint(server)
        assert " ERROR: DISKQUEUE(t:c) readPos " in only_complaint(server)
        drain(server, left)
        assert stats(server.http)["health"] == "OK"
