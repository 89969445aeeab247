"""More queues on disk than descriptors: each takes messages and delivers them, and operators can connect."""

import resource

import pytest

from support.server import start_nsqd
from support.web import get, stats
from support.wire import Client

QUEUES, LIMIT = 300, 100


def lower():
    resource.setrlimit(resource.RLIMIT_NOFILE, (LIMIT, LIMIT))


def start(folder, *flags):
    return start_nsqd("nsqfast", folder, "--mem-queue-size=0", *flags, prepare=lower)


def publish(server, body):
    """One to each topic."""
    with Client(server.tcp) as client:
        for number in range(QUEUES):
            client.pub(f"t{number}", body)
        assert get(server.http, "/ping").body == b"OK"


def depths(server):
    found = {topic["topic_name"]: topic["depth"] for topic in stats(server.http)["topics"]}
    return [found[f"t{number}"] for number in range(QUEUES)]


def take(server, number):
    with Client(server.tcp) as client:
        client.sub(f"t{number}", "c", 10)
        messages = client.read_messages(3)
        for message in messages:
            client.fin(message)
        client.ask("CLS")
    return [message.body for message in messages]


@pytest.mark.soak
@pytest.mark.slow
@pytest.mark.parametrize("flags", [(), ("--sync-every=1",)])
def test_more_queues_than_descriptors(tmp_path, flags):
    with start(tmp_path, *flags) as server:
        publish(server, b"1")
        publish(server, b"2")
        server.kill()
    with start(tmp_path, *flags) as server:
        assert depths(server) == [2] * QUEUES
        publish(server, b"3")
        assert depths(server) == [3] * QUEUES
    with start(tmp_path, *flags) as server:
        assert depths(server) == [3] * QUEUES
        for number in range(QUEUES):
            assert take(server, number) == [b"1", b"2", b"3"]
        assert get(server.http, "/ping").body == b"OK"
    assert "too many open files" not in server.stderr
