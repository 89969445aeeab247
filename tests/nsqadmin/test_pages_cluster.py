"""What pages have of a living cluster of both kinds of nsqd: shares of nodes, and clients, who are asked for then."""

import json
import random
import re

import pytest

from nsqfast.nsqadmin.options import Options
from support.access import Running
from support.admin import LiveCluster, text_of
from support.fake_stats import FakeStats
from support.page_html import PageHtml
from support.seeds import seeds
from support.waiting import wait_until
from support.web import get, topic_stats
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

# No nsqd can have these.
LIES = (-(1 << 63), -(1 << 31), -1, 0, 1, 1 << 31, 1 << 53, (1 << 63) - 1)
FIGURES = ("NaN", "-Inf", "+Inf", "-1", "0", "1e-300", "9e18", "1e300", HOSTILE, "")
NO_FIGURE = re.compile(r"\b(?:nan|inf|infinity)\b", re.IGNORECASE)

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


def test_a_consumer_that_hangs_while_another_works_is_named(cluster):
    cluster.make("held", "c", on=[0])
    where = cluster.nsqds[0].tcp
    with (
        cluster.admin("nsqfast", "--poll-interval=200ms", "--problem-stuck=1s") as admin,
        Client(where) as stuck,
        Client(where) as busy,
    ):
        stuck.identify(client_id="hangs")
        stuck.sub("held", "c", 1)
        busy.pub("held", b"x")
        stuck.read_message()
        busy.sub("held", "c", 1)
        address, node = map(text_of, (stuck.socket.getsockname(), cluster.nsqds[0].http))

        def is_named():
            busy.pub("held", b"x")
            busy.fin(busy.read_message())
            found = get(admin.http, "/ui/problems").json()["problems"]
            texts = [one["text"] for one in found if one["rule"] == "consumer_stuck"]
            return any(
                text.startswith(f"{address} (hangs) on {node} holds 1 message, none finished since")
                for text in texts
            )

        wait_until(is_named, "the consumer is named")


def test_the_oldest_message_is_as_old_as_nsqd_says(cluster, admin):
    """Go's does not say it."""
    for number, expected in enumerate((r"\d+ s", r"(≥ )?\d+ s est\.")):
        topic = f"aged-{number}"
        cluster.make(topic, "c", on=[number])
        cluster.publish(topic, 1, on=number)

        def oldest(topic=topic):
            found = get(admin.http, f"/ui/live?view=/topics/{topic}/c").json()
            return found["texts"]["oldest"] if "texts" in found else ""

        wait_until(lambda one=oldest, wanted=expected: re.fullmatch(wanted, one()), topic)


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


def lie(dice, said):
    """The same, with other numbers and texts; names are left, so that pages have it."""
    if isinstance(said, dict):
        return {
            name: value if name in ("topic_name", "channel_name") else lie(dice, value)
            for name, value in said.items()
        }
    if isinstance(said, list):
        return [lie(dice, each) for each in said]
    if isinstance(said, bool) or said is None:
        return said
    if isinstance(said, str):
        return dice.choice([said, HOSTILE, "", "x" * 5000])
    return dice.choice([said, dice.choice(LIES)])


@pytest.mark.parametrize("seed", seeds("liar", 3))
def test_a_node_that_lies_spoils_no_page_and_no_other_node(cluster, seed, caplog):
    """About its disk, its time, its version, and whatever else it says of itself."""
    dice, ours = random.Random(seed), cluster.nsqds[0]

    def answer(path, query):
        target = path + "?" + "&".join(f"{name}={value}" for name, value in query.items())
        said = get(ours.http, target).body
        if path != "/metrics":
            return lie(dice, json.loads(said))
        lines = said.decode().splitlines(keepends=True)
        return "".join(
            re.sub(r" \S+$", f" {dice.choice(FIGURES)}", line) if dice.random() < 0.5 else line
            for line in lines
        ).encode()

    with Client(ours.tcp) as consumer, FakeStats(answer) as liar:
        consumer.sub("orders", "billing", 3)
        consumer.read_messages(3)
        honest = text_of(ours.http)
        nodes = [honest, liar.address]
        options = Options(
            http_address="127.0.0.1:0", nsqd_http_addresses=nodes, poll_interval_ns=200_000_000
        )
        with Running(options) as admin:
            for _ in range(3):
                asked = len(liar.asked)
                wait_until(lambda asked=asked: len(liar.asked) > asked + 3, "it is polled again")
                for path in (*PAGES, "/metrics", f"/nodes/{liar.address}", "/api/topics"):
                    found = get(admin.http, path.format(node=honest))
                    assert found.status == 200, (path, found)
                    text = found.body.decode()
                    if text.startswith("<!doctype html>"):
                        assert "<img" not in text, path
                        assert not NO_FIGURE.search(re.sub(r"<[^>]*>", " ", text)), path
                said = topic_stats(ours.http, "orders")
                depth = said["depth"] + sum(each["depth"] for each in said["channels"].values())
                wanted = {"depth": str(depth), "messages": "30"}
                wait_for(
                    admin,
                    f"/nodes/{honest}",
                    lambda html, wanted=wanted: (
                        wanted.items() <= html.rows["topics"]["orders"].items()
                    ),
                )
    assert [record for record in caplog.records if record.exc_info] == []
