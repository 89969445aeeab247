"""What pages have of a living cluster of both kinds of nsqd: shares of nodes, and clients, who are asked for then."""

import pytest

from support.admin import LiveCluster, text_of, wait_until
from support.page_html import PageHtml
from support.web import get
from support.wire import Client

HOSTILE = '<img src=x onerror="alert(1)">'
# What waits for a node that does not answer waits for long.
FLAGS = ("--poll-interval=200ms", "--http-client-request-timeout=60s")
PAGES = (
    *("/", "/topics?q=orders&sort=-depth", "/topics/orders", "/topics/orders/billing", "/audit"),
    *("/topics/orders/billing?tab=clients", "/topics/orders/billing/messages", "/counter"),
    *("/topics/orders/billing/deferred", "/messages?topic=orders", "/nodes", "/nodes/{node}"),
    *("/lookup", "/problems", "/ui/live?view=/topics/orders/billing"),
    "/ui/series?key=channel/orders/billing",
)

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    with LiveCluster(tmp_path_factory.mktemp("pages"), ("nsqfast", "go"), ("nsqfast",)) as running:
        running.make("orders", "billing", "mail")
        running.publish("orders", 30, on=0)
        running.publish("orders", 12, on=1)
        yield running


@pytest.fixture(scope="module")
def admin(cluster):
    with cluster.admin("nsqfast", *FLAGS) as running:
        yield running


def page(admin, path):
    answer = get(admin.http, path)
    assert answer.status == 200, (path, answer)
    return PageHtml(answer.body.decode())


def wait_for(admin, path, holds):
    """Until the page is as it should be; then the page."""
    wait_until(lambda: holds(page(admin, path)), path)
    return page(admin, path)


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


def test_a_node_that_does_not_answer_delays_no_page_and_is_named(cluster, admin):
    path = "/topics/orders/billing?tab=clients"
    wait_for(admin, path, lambda html: html.hidden["silent-shown"])
    key = text_of(cluster.nsqds[0].http)
    depth = page(admin, "/nodes").rows["nodes"][key]["depth"]
    with cluster.nsqds[0].frozen():
        wait_for(admin, path, lambda html: key in html.texts["silent"])
        wait_for(admin, "/nodes", lambda html: html.rows["nodes"][key]["state"][:4] != "up")
        assert page(admin, "/nodes").rows["nodes"][key]["depth"] == depth
        for each in PAGES:  # one that waited for the node would take longer than we wait
            assert get(admin.http, each.format(node=key)).status == 200, each
        shown = get(admin.http, "/topics/orders/billing/messages").text
        assert f"{key} did not answer" in shown
    wait_for(admin, path, lambda html: html.hidden["silent-shown"])
