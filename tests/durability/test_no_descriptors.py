"""No descriptor is left: an OK still means that the message is on the disk, and what cannot be kept is refused."""

import contextlib
import http.client
import os
import resource

import pytest

from support.prometheus import scrape
from support.server import start_nsqd
from support.web import get, post, topic_stats
from support.wire import Client

FLAGS = ("--mem-queue-size=0", "--sync-every=1")
CLIENTS = 10
PUBLISHES = 100


@contextlib.contextmanager
def no_descriptors(pid):
    """The process gets no further one: the lowest number that is free is beyond its limit."""
    before = resource.prlimit(pid, resource.RLIMIT_NOFILE)
    taken = {int(name) for name in os.listdir(f"/proc/{pid}/fd")}
    free = min(set(range(len(taken) + 1)) - taken)
    resource.prlimit(pid, resource.RLIMIT_NOFILE, (free, before[1]))
    try:
        yield
    finally:
        resource.prlimit(pid, resource.RLIMIT_NOFILE, before)


def committed_count(server):
    """Messages that were committed."""
    return scrape(server.http).value("nsqd_commit_log_messages_total")


def publish(clients):
    """One after the other; how many were accepted, and whether the last one was."""
    accepted, is_good = 0, False
    for _ in range(PUBLISHES):
        if not clients:
            break
        clients[-1].command("PUB", "t", body=b"x")
        is_good = clients[-1].read_frame().data == b"OK"
        accepted += is_good
        if not is_good:
            clients.pop()
    return accepted, is_good


@pytest.mark.slow
@pytest.mark.parametrize("channels", [(), ("a", "b")])
def test_every_ok_has_its_commit(tmp_path, channels):
    with contextlib.ExitStack() as stack:
        server = stack.enter_context(start_nsqd("nsqfast", tmp_path, *FLAGS))
        post(server.http, "/topic/create?topic=t")
        for name in channels:
            post(server.http, f"/channel/create?topic=t&channel={name}")
        post(server.http, "/topic/unpause?topic=t")  # answered when nsqd.dat knows them all
        clients = [stack.enter_context(Client(server.tcp)) for _ in range(CLIENTS)]
        for client in clients:
            client.barrier()
        clients[0].pub("t", b"x")  # its files are open
        watch = http.client.HTTPConnection(*server.http, timeout=10)
        stack.callback(watch.close)
        before = committed_count(server)
        watch.request("GET", "/ping")  # answered behind the end of the connection before
        assert watch.getresponse().read() == b"OK"
        with no_descriptors(server.process.pid):
            accepted, is_good = publish(clients)
            watch.request("GET", "/ping")
            answer = watch.getresponse().read()
            assert (answer == b"OK") == is_good, answer
        after = committed_count(server)
        print(f"{accepted} OKs, {after - before:.0f} fsyncs")
        assert after - before >= accepted
        with Client(server.tcp) as client:
            client.pub("t", b"x")
        assert get(server.http, "/ping").body == b"OK"
        found = topic_stats(server.http, "t")
        assert found["message_count"] == accepted + 2
        for channel in found["channels"].values():
            assert channel["message_count"] == accepted + 2
