"""A disk that has to be waited for holds up those who want what it has, and nobody else."""

import pytest

from support.bad_sectors import BadSectors
from support.topics import make
from support.web import get, post
from support.wire import Client

COUNT = 200
BODY = b"x" * 10_000

pytestmark = pytest.mark.slow


def publish(client):
    for number in range(COUNT):
        client.pub("t", b"%d " % number + BODY)


def take(client):
    """What the channel has, in order, finished one by one."""
    client.sub("t", "c", 10)
    taken = []
    for _ in range(COUNT):
        message = client.read_message()
        taken.append(int(message.body.split()[0]))
        client.fin(message)
    client.barrier()
    return taken


@pytest.mark.parametrize("channel_first", [True, False], ids=["channel", "topic"])
@pytest.mark.parametrize("flags", [(), ("--sync-every=1",)], ids=["plain", "durable"])
def test_the_loop_does_not_wait_for_a_read(tmp_path, channel_first, flags):
    """Neither for a channel's messages, nor for those of a topic that wait for its first channel."""
    disk, log = BadSectors(tmp_path), tmp_path / "log"
    folder = tmp_path / "data"
    folder.mkdir()
    flags = ("--mem-queue-size=0", *flags)
    with disk.nsqd(folder, *flags, cold=log) as server, Client(server.tcp) as publisher:
        if channel_first:
            post(server.http, "/channel/create?topic=t&channel=c")
        publish(publisher)
        with Client(server.tcp) as consumer:
            assert take(consumer) == list(range(COUNT))
        assert not log.exists(), log.read_text()


def test_what_is_read_while_the_queue_is_emptied_or_deleted_is_dropped(tmp_path):
    disk, log = BadSectors(tmp_path), tmp_path / "log"
    folder = tmp_path / "data"
    folder.mkdir()
    with disk.nsqd(folder, "--mem-queue-size=0", cold=log) as server:
        with Client(server.tcp) as publisher, Client(server.tcp) as consumer:
            post(server.http, "/channel/create?topic=t&channel=c")
            consumer.sub("t", "c", 10)
            for path in ("empty?topic=t&channel=c", "delete?topic=t&channel=c"):
                publish(publisher)
                consumer.read_message()  # a read of what comes next is on its way, or will be soon
                post(server.http, f"/channel/{path}")
        with Client(server.tcp) as publisher, Client(server.tcp) as consumer:
            consumer.sub("t", "c", 10)
            publisher.pub("t", b"last")
            bodies = {b""}
            while b"last" not in bodies:
                message = consumer.read_message()
                bodies.add(message.body)
                consumer.fin(message)
        assert not log.exists(), log.read_text()
        server.stop()


@pytest.mark.parametrize("flags", [(), ("--mem-queue-size=0",)], ids=["memory", "on disk"])
def test_what_is_deferred_on_disk_alone_is_waited_for_by_nobody_else(tmp_path, flags):
    disk, log = BadSectors(tmp_path), tmp_path / "log"
    folder = tmp_path / "data"
    folder.mkdir()
    count = 1200  # beyond the thousand that a channel keeps in memory
    with disk.nsqd(folder, *flags, cold=log) as server, Client(server.tcp) as client:
        make(server, "t")
        for number in range(count):
            assert client.ask("DPUB", "t", "3000000", body=b"%d " % number + BODY[:100]) == b"OK"
        peeked = get(
            server.http, "/channel/peek?topic=t&channel=c&state=deferred&limit=100&offset=1050"
        )
        assert len(peeked.json()["messages"]) == 100
        answer = post(
            server.http, "/channel/messages/requeue?topic=t&channel=c&state=deferred&filter=xx"
        )
        assert answer.json()["changed"] == count
        client.sub("t", "c", count)
        numbers = {int(message.body.split()[0]) for message in client.read_messages(count)}
        assert numbers == set(range(count))
        assert not log.exists(), log.read_text()
