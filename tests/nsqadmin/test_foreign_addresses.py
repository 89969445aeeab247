"""Whom nsqadmin asks: the nodes of its cluster, at addresses that are some."""

import asyncio
from urllib.parse import quote

import pytest

from nsqfast.nsqadmin.cluster.client import trouble_of
from nsqfast.nsqadmin.cluster.model import NodeState
from nsqfast.wire.gotext import join_host_port
from nsqfast.wire.refusals import REFUSED
from support.access import run_admin
from support.fake_stats import FakeStats
from support.polling import Polling
from support.web import get, request


def told(victim):
    """What a node may say that it is; asked there, `victim` would hear of it."""
    host, port = "127.0.0.1", victim.port
    return [
        (f"{host}:{port}/topic/delete?topic=x#", 1),
        (f"user@{host}", port),
        (f"{host}\r\nX: y", port),
        (f"{host}/a", port),
        (f"{host}?", port),
        (f"\\{host}", port),
        (f" {host}", port),
        ("x" * 300, port),
        ("", port),
        (host, 0),
        (host, -port),
        (host, 65536 + port),
    ]


def producers(victim, topics):
    return [
        {
            "broadcast_address": host,
            "hostname": "h",
            "remote_address": "r",
            "tcp_port": port,
            "http_port": port,
            "version": "1.3.0",
            "topics": topics,
            "tombstones": [False] * len(topics),
        }
        for host, port in told(victim)
    ]


def lookupd(victim):
    """An nsqlookupd that believes all of them."""

    def answer(path, _query):
        known = {"topics": ["t"], "channels": ["c"], "producers": producers(victim, ["t"])}
        wanted = {"/topics": ["topics"], "/channels": ["channels"], "/nodes": ["producers"]}
        return {name: known[name] for name in wanted.get(path, known)}

    return FakeStats(answer)


@pytest.fixture
def victim():
    with FakeStats(lambda *_: {}) as fake:
        yield fake
        assert fake.asked == []


def test_an_address_that_is_none_is_a_problem_of_its_node(victim):
    async def watch(address):
        async with Polling(nsqlookupd_http_addresses=[address]) as polling:
            return await polling.until(lambda c: c.tick > 1, "asked")

    with lookupd(victim) as fake:
        nodes = asyncio.run(watch(fake.address)).nodes
    assert set(nodes) == {join_host_port(*each) for each in told(victim)}
    for node in nodes.values():
        assert node.state is NodeState.DOWN
        assert "is no HOST:PORT, so it is not asked" in node.error


def test_neither_does_a_script_make_nsqadmin_ask_there(victim):
    with lookupd(victim) as fake, run_admin(f"--lookupd-http-address={fake.address}") as admin:
        for path in ("/api/topics/t", "/api/topics/t/c", "/api/counter"):
            answer = get(admin.http, path)
            assert answer.status == 502
            assert "is no HOST:PORT" in answer.json()["message"]
        for method, body in (("POST", b'{"action":"empty"}'), ("DELETE", None)):
            answer = request(admin.http, method, "/api/topics/t/c", body)
            assert answer.status == 200
            assert "is no HOST:PORT" in answer.json()["message"]


@pytest.mark.parametrize("is_direct", [False, True])
def test_a_tombstone_is_for_a_node_of_the_cluster(victim, is_direct):
    with FakeStats(lambda *_: {"producers": [], "topics": []}) as fake:
        before = REFUSED["unknown_node"]
        flag = "--nsqd-http-address" if is_direct else "--lookupd-http-address"
        with run_admin(f"{flag}={fake.address}") as admin:
            for node in (victim.address, f"{victim.address}/x?", "localhost:1"):
                path = f"/api/nodes/{quote(node, safe='')}"
                answer = request(admin.http, "DELETE", path, b'{"topic":"t"}')
                assert (answer.status, answer.json()) == (404, {"message": "NODE_NOT_FOUND"})
            assert REFUSED["unknown_node"] == before + 3
            assert b'nsq_refused_total{reason="unknown_node"}' in get(admin.http, "/metrics").body
            assert [path for path, _ in fake.asked if "tombstone" in path] == []


def test_what_is_an_address():
    for good in (
        "nsqd-1.example:4151",
        "my_nsqd:1",
        "10.0.0.1:65535",
        "[::1]:1",
        "[fe80::1%eth0]:4151",
    ):
        assert trouble_of(good) == ""
