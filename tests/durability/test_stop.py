"""A stop keeps what it can, and says in one line what it cannot."""

import os
import re
import signal

import pytest

from support.lines import complaints
from support.server import start_nsqd
from support.small_disk import small_disk
from support.web import post, stats
from support.wire import Client

SIZE = 8 << 20
ROOM = 256 << 10
LARGE_SIZE = ROOM
LARGE_COUNT, SMALL_COUNT = 8, 5
PAGE_SIZE, PAGE_COUNT = 4000, 400
NOT_USED = 96 << 10  # a write of 64 KiB that was refused, metadata and ack file
CHANNELS, EACH = 200, 50


@pytest.fixture(name="small_disk")
def mounted(tmp_path):
    with small_disk(tmp_path, SIZE) as folder:
        yield folder


def fill(folder, left):
    """So many bytes are left."""
    with (folder / "filler").open("wb", buffering=0) as file:
        try:
            while file.write(bytes(65536)):
                pass
        except OSError:
            file.truncate(file.tell() - left)


def publish(server, topic, bodies, channels=("c",)):
    post(server.http, f"/topic/create?topic={topic}")
    for channel in channels:
        post(server.http, f"/channel/create?topic={topic}&channel={channel}")
    with Client(server.tcp) as client:
        client.mpub(topic, bodies)


def take(server, topic, channel, count):
    with Client(server.tcp) as client:
        client.sub(topic, channel, 2500)
        messages = client.read_messages(count)
        for message in messages:
            client.fin(message)
        client.ask("CLS")
    return [message.body for message in messages]


def depths(server):
    return {
        f"{topic['topic_name']}:{channel['channel_name']}": channel["depth"]
        for topic in stats(server.http)["topics"]
        for channel in topic["channels"]
    }


def stop_badly(server):
    """Its last line."""
    server.process.send_signal(signal.SIGTERM)
    assert server.process.wait(30) == 1, server.stderr
    server.kill()
    lines = complaints(server)
    assert len([line for line in lines if "lost" in line]) == 1
    disk_lines = lines[:-1]
    assert " ERROR: DISK: write " in disk_lines[0]
    # The next channel is smaller.
    assert all(" WARNING: DISK: writing works again " in line for line in disk_lines[1:])
    return lines[-1]


@pytest.mark.parametrize("in_flight", [False, True])
def test_a_full_disk(small_disk, in_flight):
    """What comes after the channel that does not fit is flushed, where it fits."""
    large = [b"%04d" % number + os.urandom(LARGE_SIZE) for number in range(LARGE_COUNT)]
    small = [b"small %d" % number for number in range(SMALL_COUNT)]
    with start_nsqd("nsqfast", small_disk) as server:
        publish(server, "before", small)
        publish(server, "large", large, ("c", "other"))
        publish(server, "small", small)
        fill(small_disk, ROOM)
        with Client(server.tcp) as client:
            client.sub("large", "c", 3 * in_flight)
            client.read_messages(3 * in_flight)
            line = stop_badly(server)
        found = re.search(
            r"stopped, but messages lost: (\d+) of (\S+), (\d+) of (\S+) - (.*)", line
        )
        assert found, line
        assert {found[2], found[4]} == {"large:c", "large:other"}
        assert found[5].endswith("no space left on device")
        lost = {found[2]: int(found[1]), found[4]: int(found[3])}
    (small_disk / "filler").unlink()
    with start_nsqd("nsqfast", small_disk) as server:
        assert depths(server) == {
            "before:c": SMALL_COUNT,
            "small:c": SMALL_COUNT,
            **{name: LARGE_COUNT - count for name, count in lost.items()},
        }
        for channel in ("c", "other"):
            kept = LARGE_COUNT - lost[f"large:{channel}"]
            bodies = take(server, "large", channel, kept)
            assert len({*bodies}) == kept
            assert {*bodies} <= {*large}
        for topic in ("before", "small"):
            assert sorted(take(server, topic, "c", SMALL_COUNT)) == small
        assert complaints(server) == []


def test_what_fits_is_kept(small_disk):
    bodies = [b"%04d" % number + os.urandom(PAGE_SIZE) for number in range(PAGE_COUNT)]
    with start_nsqd("nsqfast", small_disk) as server:
        publish(server, "t", bodies)
        fill(small_disk, ROOM)
        line = stop_badly(server)
        kept = PAGE_COUNT - int(re.search(r"messages lost: (\d+) of t:c - ", line)[1])
    assert kept * PAGE_SIZE >= ROOM - NOT_USED
    (small_disk / "filler").unlink()
    with start_nsqd("nsqfast", small_disk) as server:
        assert take(server, "t", "c", kept) == bodies[:kept]


def test_a_full_disk_without_loss(small_disk):
    """What stands on disk already cannot be lost for want of room."""
    flags = ("--mem-queue-size=0",)
    bodies = [b"%04d" % number for number in range(PAGE_COUNT)]
    with start_nsqd("nsqfast", small_disk, *flags) as server:
        publish(server, "t", bodies)
        with Client(server.tcp) as client:
            client.sub("t", "c", 100)
            client.read_messages(100)
            fill(small_disk, 0)
            server.process.send_signal(signal.SIGTERM)
            status = server.process.wait(30)
        server.kill()
        assert "lost" not in server.stderr
        assert status in (0, 1)
        complaints(server)
    (small_disk / "filler").unlink()
    with start_nsqd("nsqfast", small_disk, *flags) as server:
        assert sorted({*take(server, "t", "c", PAGE_COUNT)}) == bodies


def test_many_channels(tmp_path):
    names = [f"channel-{number}" for number in range(CHANNELS)]
    bodies = [b"%02d" % number for number in range(EACH)]
    with start_nsqd("nsqfast", tmp_path) as server:
        publish(server, "t", bodies, names)
        assert depths(server) == {f"t:{name}": EACH for name in names}
    assert complaints(server) == []
    with start_nsqd("nsqfast", tmp_path) as server:
        assert depths(server) == {f"t:{name}": EACH for name in names}
        for name in names:
            assert take(server, "t", name, EACH) == bodies
        assert complaints(server) == []
