"""GET /api/*: the same as from Go's nsqadmin at the same cluster, but for its faults."""

import contextlib
import re

import pytest

from support.admin import LiveCluster, text_of, told
from support.alike import alike, keys_in_order, without
from support.waiting import wait_until
from support.web import stats
from support.wire import Client

pytestmark = [pytest.mark.go, pytest.mark.slow]

LATENCY = "--e2e-processing-latency-percentile=1.0,0.99,0.5"
LATENCY_WINDOW = "--e2e-processing-latency-window-time=10m"
MODES = ("lookupd", "direct", "base path")
LONG = "x" * 54 + "#ephemeral"
HEADERS = {
    "Content-Type": "application/json; charset=utf-8",
    "X-NSQ-Content-Type": "nsq; version=1.0",
}


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    """Topics with and without channels and messages, consumers of several kinds, one topic that no nsqd has."""
    folder = tmp_path_factory.mktemp("api")
    with LiveCluster(
        folder, ("nsqfast", "nsqfast", "go"), ("nsqfast", "go"), LATENCY, LATENCY_WINDOW
    ) as made:
        made.make("orders", "billing", "mail")
        made.make("clicks", "etl", on=[0, 2])
        made.make("alone", on=[1])
        made.make(LONG, "gone#ephemeral", on=[0])
        for number in range(3):
            made.publish("orders", 5 + number, on=number)
        made.publish("clicks", 4, on=2)
        told(made.nsqds[1], "/topic/pause?topic=alone")
        told(made.nsqds[2], "/channel/pause?topic=orders&channel=mail")
        for lookupd in made.lookupds:
            told(lookupd, "/topic/create?topic=unborn")
            told(lookupd, "/channel/create?topic=unborn&channel=later")
        with contextlib.ExitStack() as stack:
            for number, nsqd in enumerate(made.nsqds):
                stack.enter_context(consumer(nsqd, number))
            yield made


@contextlib.contextmanager
def consumer(nsqd, number):
    """Finishes three messages, and has one more in flight."""
    with Client(nsqd.tcp) as client:
        client.identify(
            client_id=f"id-{number}",
            hostname=f"host-{2 - number}",
            user_agent='<img src=x onerror="alert(1)">/1.0',
            sample_rate=0,
            heartbeat_interval=60000,
            msg_timeout=600_000,
        )
        client.sub("orders", "billing", 1)
        for _ in range(3):
            client.fin(client.read_message())
        client.read_message()

        def is_settled():
            (topic,) = stats(nsqd.http, topic="orders", channel="billing")["topics"]
            (channel,) = topic["channels"]
            return channel["clients"][0]["finish_count"] == 3 and channel["in_flight_count"] == 1

        wait_until(is_settled, "three messages finished, one in flight")
        yield


@pytest.fixture(scope="module", params=MODES)
def both(request, cluster):
    """Ours and Go's, and what stands before each path."""
    base = "/nsq/admin" if request.param == "base path" else ""
    flags = ["--base-path=nsq/admin/"] if base else []
    with cluster.admins(*flags, direct=request.param == "direct") as pair:

        def ask(target):
            return pair.get(base + target)

        ask.mode = request.param
        yield ask


def same(both, target):
    """Both say the same; what ours says."""
    ours, theirs = both(target)
    assert ours.status == theirs.status == 200, (ours, theirs)
    for name in ("Content-Type", "X-NSQ-Content-Type"):
        assert HEADERS[name] == ours.headers[name] == theirs.headers.get(name, HEADERS[name])
    assert alike(ours.json()) == alike(theirs.json())
    # The counter's members are not sorted: at a hundred thousand that would take longer than all the rest.
    assert keys_in_order(without(ours.json(), "stats")) == keys_in_order(
        without(theirs.json(), "stats")
    )
    return ours.json()


def test_topics_and_the_counter(both):
    unborn = [] if both.mode == "direct" else ["unborn"]
    topics = sorted(["orders", "clicks", "alone", LONG, *unborn])
    for query in ("", "?inactive=True", "?inactive=", "?inactive=1"):
        assert same(both, f"/api/topics{query}") == {"topics": topics, "message": ""}
    inactive = {} if both.mode == "direct" else {"unborn": ["later"]}
    assert same(both, "/api/topics?inactive=true") == {"topics": inactive, "message": ""}
    found = same(both, "/api/counter")
    assert sum(one["message_count"] for one in found["stats"].values()) == 2 * 18 + 4


def test_nodes(both, cluster):
    nodes = same(both, "/api/nodes")["nodes"]
    assert {(one["broadcast_address"], one["http_port"]) for one in nodes} == {
        one.http for one in cluster.nsqds
    }
    known_by = 0 if both.mode == "direct" else 2
    assert all(len(one["remote_addresses"] or ()) == known_by for one in nodes)
    assert not any(one["out_of_date"] for one in nodes)
    for nsqd in cluster.nsqds:
        found = same(both, f"/api/nodes/{text_of(nsqd.http)}")
        assert found["total_clients"] == 1
        assert found["total_messages"] == sum(one["message_count"] for one in found["topics"])


def test_what_cannot_be_read_or_is_not_there(both):
    for query in ("%zz", "inactive=%a", "a;b", "x=%", "inactive=true;"):
        ours, theirs = both(f"/api/topics?{query}")
        assert (ours.status, ours.body) == (400, theirs.body), query
    ours, theirs = both("/api/nodes/127.0.0.1:1")
    assert (ours.status, ours.body) == (404, b'{"message":"NODE_NOT_FOUND"}')
    assert (theirs.status, theirs.body) == (404, ours.body)
    for path in ("nobody", "nobody/knows"):
        ours, theirs = both(f"/api/topics/{path}")
        assert ours.status == theirs.status == 502
        assert ours.json() == theirs.json()
    ours, theirs = both("/api/topics/orders/nobody")
    assert (ours.status, ours.body) == (404, b'{"message":"CHANNEL_NOT_FOUND"}')
    assert (theirs.status, theirs.body) == (200, b'{"message":""}')


def test_topics_and_channels_without_clients(both):
    for path in ("orders/mail", "clicks/etl", f"{LONG.replace('#', '%23')}/gone%23ephemeral"):
        found = same(both, f"/api/topics/{path}")
        assert (found["clients"], found["paused"]) == (None, path == "orders/mail")
    for topic in ("orders", "clicks", "alone", LONG.replace("#", "%23")):
        ours, theirs = both(f"/api/topics/{topic}")
        hidden = ("channels", "min")
        assert without(alike(ours.json()), *hidden) == without(alike(theirs.json()), *hidden)
        assert ours.json()["paused"] is (topic == "alone")


def test_a_channel_with_clients(both):
    ours, theirs = both("/api/topics/orders/billing")
    # Go's smallest value is that of the node it merged last.
    assert without(alike(ours.json()), "min") == without(alike(theirs.json()), "min")
    assert keys_in_order(without(ours.json(), "percentiles")) == keys_in_order(
        without(theirs.json(), "percentiles")
    )
    found = ours.json()
    assert (found["depth"], found["in_flight_count"], found["message_count"]) == (6, 3, 18)
    assert [one["hostname"] for one in found["clients"]] == ["host-0", "host-1", "host-2"]


def test_the_channels_of_a_topic_are_added_up_without_changing_those_of_a_node(both):
    """Go's first node shows the sums of all nodes, and its sum lacks that node among its parts."""
    ours, theirs = both("/api/topics/orders")
    names = ("node", "nodes", "clients", "hostname", "e2e_processing_latency")
    assert without(alike(ours.json())["channels"], *names) == without(
        alike(theirs.json())["channels"], *names
    )
    for channel in ours.json()["channels"]:
        name = channel["channel_name"]
        right = without(both(f"/api/topics/orders/{name}").theirs.json(), "clients", "min")
        shown = without(channel, "clients", "min")
        assert alike(shown) == without(alike(right), "message")
        parts = [
            one
            for node in ours.json()["nodes"]
            for one in node["channels"]
            if one["channel_name"] == name
        ]
        assert alike(without(parts, "clients", "min")) == alike({"nodes": right["nodes"]})["nodes"]


def test_a_topic_that_no_nsqd_has_is_empty(both):
    ours, theirs = both("/api/topics/unborn")
    if both.mode == "direct":
        # Nobody could know of it.
        assert (ours.status, ours.body) == (502, theirs.body)
        return
    assert (theirs.status, theirs.json()["message"]) == (
        502,
        "UPSTREAM_ERROR: failed to query any nsqd: ",
    )
    assert ours.status == 200
    found = [ours.json()[name] for name in ("topic_name", "nodes", "depth", "message")]
    assert found == ["unborn", None, 0, ""]
    assert both("/api/topics/unborn/later").ours.json()["channel_name"] == "later"
    assert both("/api/topics/unborn/other").ours.status == 404


def test_a_tombstone_is_seen(cluster):
    with cluster.admins() as pair:
        nsqd = text_of(cluster.nsqds[0].http)
        for lookupd in cluster.lookupds:
            told(lookupd, f"/topic/tombstone?topic=clicks&node={nsqd}")
        found = same(pair.get, "/api/nodes")
        hidden = [
            (one["http_port"], topic["topic"])
            for one in found["nodes"]
            for topic in one["topics"]
            if topic["tombstoned"]
        ]
        assert hidden == [(cluster.nsqds[0].http[1], "clicks")]


def test_nothing_at_all(tmp_path):
    """Without nodes and topics the lists are null, as Go has them; a counter of nothing is no error."""
    with LiveCluster(tmp_path, (), ("nsqfast",)) as cluster, cluster.admins() as pair:
        for target in ("/api/topics", "/api/nodes"):
            ours, theirs = pair.get(target)
            assert ours.body == theirs.body
            assert re.search(rb'":null,"message":""', ours.body)
        ours, theirs = pair.get("/api/counter")
        assert theirs.status == 502
        assert (ours.status, ours.json()) == (200, {"stats": {}, "message": ""})
        told(cluster.lookupds[0], "/topic/create?topic=bare")
        for answer in pair.get("/api/topics?inactive=true"):
            assert answer.json() == {"topics": {"bare": None}, "message": ""}
