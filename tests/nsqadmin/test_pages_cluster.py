"""The pages of a living cluster of both kinds of nsqd: their numbers are the sums of /stats."""

from urllib.parse import quote

import pytest

from support.admin import LiveCluster, text_of, wait_until
from support.page_html import PageHtml
from support.web import get, post, stats
from support.wire import Client

HOSTILE = '<img src=x onerror="alert(1)">'
QUICK = "--poll-interval=200ms"

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    with LiveCluster(tmp_path_factory.mktemp("pages"), ("nsqfast", "go"), ("nsqfast",)) as running:
        running.make("orders", "billing", "mail", "tail#ephemeral")
        running.make("clicks", "etl", on=[1])
        running.publish("orders", 30, on=0)
        running.publish("orders", 12, on=1)
        running.publish("clicks", 7, on=1)
        yield running


@pytest.fixture(scope="module", params=["lookupd", "direct"])
def admin(cluster, request):
    with cluster.admin("nsqfast", QUICK, direct=request.param == "direct") as running:
        yield running


def page(admin, path):
    answer = get(admin.http, path)
    assert answer.status == 200, (path, answer)
    return PageHtml(answer.body.decode())


def channel_sums(cluster, topic, channel):
    """What the nodes say, added up."""
    sums = dict.fromkeys(("depth", "message_count", "in_flight_count", "client_count"), 0)
    for node in cluster.nsqds:
        for each in stats(node.http, topic=topic, channel=channel)["topics"] or ():
            for found in each["channels"] or ():
                for name in sums:
                    sums[name] += found[name]
    return sums


def wait_for(admin, path, holds):
    """Until the page is as it should be; then the page."""
    wait_until(lambda: holds(page(admin, path)), path)
    return page(admin, path)


def test_pages_have_the_sums_of_the_nodes(cluster, admin):
    whole = channel_sums(cluster, "orders", "billing")
    assert whole["depth"] == 42
    html = wait_for(
        admin,
        "/topics/orders",
        lambda html: html.rows.get("channels", {}).get("billing", {}).get("depth") == "42",
    )
    for name in ("billing", "mail", "tail#ephemeral"):
        sums = channel_sums(cluster, "orders", name)
        row = html.rows["channels"][name]
        assert row["depth"] == f"{sums['depth']:,}"
        assert row["messages"] == f"{sums['message_count']:,}"
        assert row["in_flight"] == f"{sums['in_flight_count']:,}"
        assert row["consumers"] == f"{sums['client_count']:,}"
    nodes = page(admin, "/topics/orders/billing").rows["nodes"]
    assert {row["depth"] for row in nodes.values()} == {"30", "12"}
    assert set(nodes) == {text_of(node.http) for node in cluster.nsqds}
    overview = page(admin, "/")
    known = [("orders", name) for name in ("billing", "mail", "tail#ephemeral")] + [
        ("clicks", "etl")
    ]
    sums = [channel_sums(cluster, *names) for names in known]
    assert overview.texts["depth"] == str(sum(each["depth"] for each in sums))
    assert overview.texts["nodes"] == "2 of 2"
    assert overview.rows["worst"]["clicks/etl"]["depth"] == "7"
    total = sum(each["message_count"] for each in sums)
    assert page(admin, "/counter").texts["count"] == str(total) == str(3 * 42 + 7)


def test_the_clients_of_a_channel(cluster, admin):
    with Client(cluster.nsqds[0].tcp) as ours, Client(cluster.nsqds[1].tcp) as theirs:
        ours.identify(client_id=HOSTILE, hostname="w1", user_agent=HOSTILE, sample_rate=20)
        theirs.identify(client_id="w2", hostname="w2", user_agent="go-nsq/1.1.0")
        ours.sub("orders", "mail", 5)
        theirs.sub("orders", "mail", 7)
        for consumer in (ours, theirs):
            consumer.fin(consumer.read_message())
        path = "/topics/orders/mail?tab=clients"
        html = wait_for(
            admin,
            path,
            lambda html: (
                [row["finished"] for row in html.rows.get("clients", {}).values()] == ["1", "1"]
            ),
        )
        text = get(admin.http, path).body.decode()
        assert "<img" not in text
        rows = {row["rdy"]: row for row in html.rows["clients"].values()}
        port = ours.socket.getsockname()[1]
        assert rows["5"]["host"] == f"w1:{port} ({HOSTILE})"
        assert rows["5"]["user_agent"] == HOSTILE
        assert rows["5"]["attributes"] == "sampled 20 %"
        assert rows["5"]["node"] == text_of(cluster.nsqds[0].http)
        assert rows["7"]["host"].startswith("w2:")
        assert rows["7"]["host"].count("w2") == 1
        assert rows["7"]["user_agent"] == "go-nsq/1.1.0"
        assert html.hidden["silent-shown"] is True
    wait_for(admin, path, lambda html: "clients" not in html.rows)


def test_clients_are_searched_and_exported_like_any_table(cluster, admin):
    with Client(cluster.nsqds[0].tcp) as one, Client(cluster.nsqds[0].tcp) as two:
        one.identify(client_id="first", hostname="=1+1", user_agent="a")
        two.identify(client_id="second", hostname="w", user_agent="b")
        one.sub("orders", "billing", 0)
        two.sub("orders", "billing", 0)
        path = "/topics/orders/billing?tab=clients&q=first+rdy%3D0"
        wait_for(admin, path, lambda html: html.texts["clients.total"] == "1 of 2")
        answer = get(admin.http, f"/ui/export?view={quote(path, safe='')}&table=clients&format=csv")
        lines = answer.body.decode().splitlines()
        assert len(lines) == 2
        assert lines[1].startswith("'=1+1:")


def test_unknown_names_are_404_with_those_that_are_like_them(cluster, admin):
    for path, near in [
        ("/topics/order", "/topics/orders"),
        ("/topics/orders/bill", "/topics/orders/billing"),
        ("/topics/orders/tail", "/topics/orders/tail%23ephemeral"),
    ]:
        answer = get(admin.http, path)
        assert answer.status == 404
        html = PageHtml(answer.body.decode())
        assert near in html.links.values()


@pytest.mark.soak
def test_a_frozen_node_delays_no_page_and_is_named(cluster, admin):
    import time

    path = "/topics/orders/billing?tab=clients"
    wait_for(admin, path, lambda html: html.hidden["silent-shown"])
    with cluster.nsqds[0].frozen():
        for _ in range(5):
            begun = time.monotonic()
            page(admin, path)
            assert time.monotonic() - begun < 1.0
        html = wait_for(admin, path, lambda html: not html.hidden["silent-shown"])
        assert text_of(cluster.nsqds[0].http) in html.texts["silent"]
    wait_for(admin, path, lambda html: html.hidden["silent-shown"])


def test_latencies_are_shown_where_nsqd_measures_them(tmp_path):
    flags = [
        "--e2e-processing-latency-percentile=0.5,0.99",
        "--e2e-processing-latency-window-time=1m",
    ]
    with LiveCluster(tmp_path, ("nsqfast", "go"), ("nsqfast",), *flags) as cluster:
        cluster.make("t", "c")
        for number, node in enumerate(cluster.nsqds):
            cluster.publish("t", 3, on=number)
            with Client(node.tcp) as consumer:
                consumer.sub("t", "c", 3)
                for message in consumer.read_messages(3):
                    consumer.fin(message)
                consumer.barrier()
        with cluster.admin("nsqfast", QUICK) as admin:
            html = wait_for(
                admin,
                "/topics/t/c",
                lambda html: all("p99" in row for row in html.rows.get("nodes", {"": {}}).values()),
            )
            for row in html.rows["nodes"].values():
                assert row["p50"].endswith(" ms")
                assert row["p99"].endswith(" ms")
                assert "p95" not in row


def test_a_channel_that_is_deleted_is_gone(cluster, admin):
    cluster.make("short", "lived")
    wait_until(lambda: get(admin.http, "/topics/short/lived").status == 200, "the channel")
    for node in cluster.nsqds:
        post(node.http, "/topic/delete?topic=short")
    for lookupd in cluster.lookupds:
        post(lookupd.http, "/topic/delete?topic=short")
    wait_until(lambda: get(admin.http, "/topics/short/lived").status == 404, "its end")
    answer = get(admin.http, "/ui/live?view=/topics/short/lived&since=1")
    assert answer.status == 404
