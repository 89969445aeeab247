"""Pages while a part of the cluster does not answer: quick, with the last numbers, and saying so."""

import re
import time

import pytest
from playwright.sync_api import expect

from support.admin import LiveCluster, text_of, wait_until
from support.web import request

pytestmark = [pytest.mark.go, pytest.mark.slow, pytest.mark.soak]

ANSWER_S_MAX = 0.3
TRIES = 5
# What is shown of a node or nsqlookupd that does not answer.
PAGES = (
    "/",
    "/topics",
    "/topics?q=orders&sort=-depth",
    "/topics/orders",
    "/topics/orders/billing",
    "/topics/orders/billing?tab=clients",
    "/topics/orders/billing/messages",
    "/topics/orders/billing/deferred",
    "/messages?topic=orders",
    "/nodes",
    "/nodes/{node}",
    "/lookup",
    "/counter",
    "/problems",
    "/audit",
    "/ui/live?view=/topics/orders/billing",
    "/ui/series?key=channel/orders/billing",
)


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    with LiveCluster(tmp_path_factory.mktemp("trouble")) as running:
        running.make("orders", "billing")
        for number in range(3):
            running.publish("orders", 5, on=number)
        yield running


@pytest.fixture
def admin(cluster):
    with cluster.admin("nsqfast") as running:
        wait_until(
            lambda: b">15<" in ask(running, "/topics/orders/billing").body, "all messages are known"
        )
        yield running


def ask(admin, path):
    return request(admin.http, "GET", path, headers={"Accept": "text/html"})


def least_s(admin, path):
    """Of several tries: others may have had the processor meanwhile."""
    durations = []
    for _ in range(TRIES):
        began = time.monotonic()
        answer = ask(admin, path)
        durations.append(time.monotonic() - began)
        assert answer.status == 200, (path, answer)
        if durations[-1] < ANSWER_S_MAX:
            break
    return min(durations)


def test_a_frozen_node_delays_no_page_and_its_numbers_are_marked_stale(cluster, admin, page):
    node = cluster.nsqds[1]
    key = text_of(node.http)
    page.goto(f"http://{text_of(admin.http)}/nodes")
    row = page.locator(f"[data-table=nodes] [data-key='{key}']")
    expect(row.locator(".chip").first).to_have_text("up")
    with node.frozen():
        expect(row.locator(".chip").first).to_have_text(re.compile(r"^stale \d+ s$"))
        expect(row.locator("[data-col=depth]")).to_have_text("5")
        durations = {path: least_s(admin, path.format(node=key)) for path in PAGES}
        print("seconds with a frozen node:", durations)
        assert max(durations.values()) < ANSWER_S_MAX
        page.goto(f"http://{text_of(admin.http)}/topics/orders/billing/messages")
        frozen = page.locator(f"section[data-node='{key}']")
        expect(frozen).to_contain_text(f"{key} did not answer")
        expect(page.locator("tbody[data-id]")).to_have_count(5)  # of the other one of ours


def test_without_any_nsqlookupd_the_last_data_are_shown_and_said_to_be_old(
    cluster, admin, page, watch
):
    url = f"http://{text_of(admin.http)}"
    page.goto(url + "/topics")
    expect(page.locator("[data-table=topics] [data-key=orders] [data-col=depth]")).to_have_text(
        "15"
    )
    for lookupd in cluster.lookupds:
        lookupd.kill()
    banner = page.get_by_role("alert").locator("li:visible")
    expect(banner).to_have_count(3)
    expect(banner.first).to_have_text(
        "No nsqlookupd answers: the list of nodes is the last that was known"
    )
    for number, lookupd in enumerate(cluster.lookupds, 1):
        words = rf"nsqlookupd {text_of(lookupd.http)} has not answered since \d\d:\d\d:\d\d: ."
        expect(banner.nth(number)).to_have_text(re.compile(words))
    key = text_of(cluster.nsqds[0].http)
    durations = {path: least_s(admin, path.format(node=key)) for path in PAGES}
    print("seconds without nsqlookupd:", durations)
    assert max(durations.values()) < ANSWER_S_MAX
    for path in PAGES[:-2]:
        text = ask(admin, path.format(node=key)).body.decode()
        assert "<h1" in text
        assert '<div role="alert" data-shown="banner">' in text
    page.goto(url + "/topics/orders/billing")
    expect(page.locator("[data-text=depth]")).to_have_text("15")
    cluster.publish("orders", 2)
    expect(page.locator("[data-text=depth]")).to_have_text("17")
    page.goto(url + "/nodes")
    for lookupd in cluster.lookupds:
        row = page.locator(f"[data-table=lookupds] [data-key='{text_of(lookupd.http)}']")
        expect(row.locator(".chip").first).to_have_text("down")
    assert watch.take_faults() == []
