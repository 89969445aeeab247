"""Messages in a browser: their bodies, the search that goes on, deferred ones, the tail. By real nsqd of both kinds."""

import functools
import json
import re
import urllib.error
import urllib.request
from pathlib import Path
from urllib.parse import urlencode

import pytest
from playwright.sync_api import expect

from nsqfast.client.sync import Config, Consumer
from nsqfast.nsqadmin.messages import routes
from nsqfast.nsqadmin.messages.tail import TIME_MAX_S, Tails
from support.access import probed
from support.admin import LiveCluster, told, wait_until
from support.server import go_folder
from support.web import topic_stats

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(go_folder() is None, reason="no NSQ programs written in Go"),
]

BAD = '<img src=x onerror=alert(1)>"><script>alert(2)</script>'
BINARY = bytes(range(256)) * 3
LINES = "\n first\r\nsecond \u20ac\n"
DOCUMENT = {"id": 12345678901234567890, "name": BAD, "deep": {"er": [{"est": None}]}}


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    folder = tmp_path_factory.mktemp("messages")
    with LiveCluster(folder, ("nsqfast", "go"), ("nsqfast",)) as made:
        made.make("bodies", "c")
        for body in (json.dumps(DOCUMENT).encode(), LINES.encode(), BINARY, BAD.encode()):
            told(made.nsqds[0], "/pub?topic=bodies", body)
        for topic in ("deferred", "tailed", "searched", "held"):
            made.make(topic, "c")
        yield made


@pytest.fixture(scope="module")
def url(cluster):
    with cluster.admin("nsqfast") as admin:
        yield "http://{}:{}".format(*admin.http)


def open_page(page, address):
    """As soon as nsqadmin knows what it is about."""
    page.goto(address)
    page.wait_for_selector("main")
    assert page.locator("main .crumbs").count() == 1, page.title()


def is_known(url, topic):
    try:
        urllib.request.urlopen(f"{url}/topics/{topic}/c/messages").close()
    except urllib.error.HTTPError:
        return False
    return True


@pytest.fixture(scope="module", autouse=True)
def known(cluster, url):
    """nsqadmin has seen all topics."""

    topics = ("bodies", "deferred", "tailed", "searched", "held")
    wait_until(lambda: all(is_known(url, topic) for topic in topics), "all topics are known")


def body_at(page, index):
    return page.locator("tbody[data-id]").nth(index)


def test_json_is_a_tree_that_keeps_every_digit_and_all_markup_is_text(url, page):
    open_page(page, f"{url}/topics/bodies/c/messages")
    tree = body_at(page, 0).locator(".tree")
    tree.locator("summary", has_text="0: {1}").click()
    tree.get_by_text("est").wait_for()
    text = tree.inner_text()
    assert "id: 12345678901234567890" in text
    assert json.dumps(BAD) in text
    assert "est: null" in text
    assert body_at(page, 3).locator("pre").inner_text() == BAD
    assert page.locator("main img, main script").count() == 0
    assert body_at(page, 2).locator("pre").inner_text().startswith("00000000  00 01 02")


def test_large_branches_open_when_they_are_asked_to(cluster, url, page):
    body = {"rows": [{"n": number} for number in range(200)]}
    told(cluster.nsqds[0], "/pub?topic=held", json.dumps(body).encode())
    page.goto(f"{url}/topics/held/c/messages?filter=rows")
    tree = page.locator(".tree").first
    assert tree.locator("details").count() == 2
    tree.locator("summary", has_text="rows").click()
    tree.locator("details").nth(201).wait_for(state="attached")
    assert tree.locator("details").count() == 202
    assert "199: {1}" in tree.inner_text()


@pytest.mark.soak
def test_the_view_stands_in_the_address(url, page, watch):
    open_page(page, f"{url}/topics/bodies/c/messages")
    page.get_by_role("link", name="Hex").click()
    page.wait_for_url("**view=hex")
    fresh = watch.page()
    fresh.goto(page.url)
    assert body_at(fresh, 3).locator("pre").inner_text().startswith("00000000  3c 69 6d 67")
    fresh.get_by_role("link", name="Text", exact=True).click()
    assert json.loads(body_at(fresh, 0).locator("pre").inner_text()) == DOCUMENT


def test_download_and_copy_give_the_bytes(url, page, watch):
    open_page(page, f"{url}/topics/bodies/c/messages")
    for index, wanted in ((1, LINES.encode()), (2, BINARY)):
        with page.expect_download() as begun:
            body_at(page, index).get_by_role("button", name="Download").click()
        assert Path(begun.value.path()).read_bytes() == wanted
    page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    body_at(page, 3).get_by_role("button", name="Copy").click()
    page.get_by_text("Body copied").wait_for()
    assert page.evaluate("() => navigator.clipboard.readText()") == BAD
    # As over plain http.
    plain = watch.page()
    plain.add_init_script("Object.defineProperty(navigator, 'clipboard', {value: undefined})")
    plain.goto(f"{url}/topics/bodies/c/messages")
    body_at(plain, 0).get_by_role("button", name="Copy").click()
    plain.get_by_text("Selected: copy it with Ctrl+C").wait_for()
    assert json.loads(plain.evaluate("() => getSelection().toString()")) == DOCUMENT


def test_bodies_are_read_without_scripts(url, watch):
    page = watch.page(java_script_enabled=False)
    page.goto(f"{url}/topics/bodies/c/messages")
    assert json.loads(body_at(page, 0).locator("pre").inner_text()) == DOCUMENT
    assert "first" in body_at(page, 1).locator("pre").inner_text()
    assert page.get_by_role("button", name="Copy").count() == 0
    page.get_by_label("Text in the body").fill("second")
    page.get_by_role("button", name="Search", exact=True).click()
    assert page.locator("tbody[data-id]").count() == 1
    assert "1 match, scanned 4 of 4" in page.locator("main").inner_text()


def test_a_search_goes_on_until_something_is_found(cluster, url, page):
    lines = [b"hay"] * 12_500
    lines[11_000] = b"needle"
    for start in range(0, len(lines), 2500):
        told(cluster.nsqds[0], "/mpub?topic=searched", b"\n".join(lines[start : start + 2500]))

    def has_all():
        stats = topic_stats(cluster.nsqds[0].http, "searched")
        return stats["channels"]["c"]["depth"] == len(lines)

    wait_until(has_all, "the channel has all")
    page.goto(f"{url}/topics/searched/c/messages?filter=needle")
    assert "0 matches, scanned 10,000 of 12,500" in page.locator("main").inner_text()
    page.get_by_role("button", name="Search on until something is found").click()
    page.wait_for_url("**offset=10000")
    assert page.locator("pre[data-payload]").inner_text() == "needle"
    assert "scanned 12,500 of 12,500" in page.locator("main").inner_text()


def test_who_holds_a_message_is_text(cluster, url, page):
    address = "{}:{}".format(*cluster.nsqds[0].tcp)
    told(cluster.nsqds[0], "/pub?topic=held", b"in somebody's hands")
    with Consumer(
        "held", "c", nsqd=address, config=Config(client_id=BAD, hostname=BAD)
    ) as consumer:
        assert consumer.get(timeout_s=10) is not None
        page.goto(f"{url}/topics/held/c/messages?state=in_flight")
        assert page.locator("tbody[data-id]").count() == 1
        assert BAD in page.locator("tbody[data-id]").inner_text()
        assert page.locator("main img").count() == 0


def test_deferred_messages_are_run_and_cancelled(cluster, url, page, watch):
    for number in range(3):
        query = urlencode({"topic": "deferred", "defer": 600_000 + number})
        told(cluster.nsqds[0], f"/pub?{query}", b"later %d" % number)

    def counts():
        channel = topic_stats(cluster.nsqds[0].http, "deferred")["channels"]["c"]
        return channel["depth"], channel["deferred_count"]

    wait_until(lambda: counts() == (0, 3), "three are deferred")
    page.goto(f"{url}/topics/deferred/c/deferred")
    rows = page.locator("tbody[data-id]")
    assert rows.count() == 3
    assert re.search(r"in (9|10) min", rows.first.inner_text())
    rows.first.get_by_role("button", name="Run now").click()
    page.get_by_text("is queued now").wait_for()
    assert rows.count() == 2
    wait_until(lambda: counts() == (1, 2), "one is run")
    opener = rows.first.get_by_role("button", name="Cancel message")
    identity = rows.first.get_attribute("data-id")
    opener.click()
    dialog = page.locator("#cancel-dialog")
    assert identity in dialog.inner_text()
    assert page.evaluate("() => document.activeElement.textContent") == "Keep it"
    page.keyboard.press("Enter")
    dialog.wait_for(state="hidden")
    assert opener.evaluate("(button) => button === document.activeElement")
    assert counts() == (1, 2)
    opener.click()
    dialog.get_by_role("button", name="Drop this message").click()
    page.get_by_text("is dropped", exact=False).and_(page.locator(".toast")).wait_for()
    assert counts() == (1, 1)
    # Somebody else was faster.
    last = rows.first.get_attribute("data-id")
    told(cluster.nsqds[0], f"/channel/deferred/cancel?topic=deferred&channel=c&id={last}")
    rows.first.get_by_role("button", name="Run now").click()
    page.get_by_text("it is not deferred any more").wait_for()
    assert all("502" in fault for fault in watch.take_faults())


def channels(cluster):
    return [sorted(topic_stats(node.http, "tailed")["channels"]) for node in cluster.nsqds]


def start_tail(page, url):
    page.goto(f"{url}/topics/tailed/c/messages")
    page.get_by_role("button", name="Start the tail").click()
    page.get_by_text("on 2 nsqd").wait_for()


def test_tail_shows_what_comes_and_ends_with_a_click(cluster, url, page):
    start_tail(page, url)
    assert "makes a channel" in page.locator("#tail").inner_text()
    told(cluster.nsqds[0], "/pub?topic=tailed", BAD.encode())
    told(cluster.nsqds[1], "/pub?topic=tailed", b'{"from": "go"}')
    page.locator("#tail-list li").nth(1).wait_for()
    text = page.locator("#tail-list").inner_text()
    assert BAD in text
    assert 'from: "go"' in text
    assert page.locator("main img, main script").count() == 0
    assert all(len(names) == 2 for names in channels(cluster))
    page.get_by_role("button", name="Stop").click()
    assert page.locator("#tail-state").inner_text() == "Stopped."
    wait_until(lambda: channels(cluster) == [["c"], ["c"]], "the tail's channel is gone")


@pytest.mark.parametrize("way", ["hide", "leave"])
def test_tail_ends_when_its_page_is_hidden_or_left(cluster, url, page, way):
    start_tail(page, url)
    if way == "hide":
        page.evaluate(
            """() => {
                Object.defineProperty(document, "hidden", { value: true });
                document.dispatchEvent(new Event("visibilitychange"));
            }"""
        )
        page.get_by_text("Stopped, because this page was hidden.").wait_for()
    else:
        page.goto(f"{url}/topics")
    wait_until(lambda: channels(cluster) == [["c"], ["c"]], "the tail's channel is gone")


def test_tail_ends_when_its_time_is_over(cluster, page, monkeypatch, visiting):
    assert TIME_MAX_S == 300
    monkeypatch.setattr(routes, "Tails", functools.partial(Tails, time_max_s=3))
    addresses = ["{}:{}".format(*node.http) for node in cluster.nsqds]
    with visiting(probed(monkeypatch, lambda *_: None, nsqd_http_addresses=addresses)) as address:
        own = "http://{}:{}".format(*address)
        wait_until(lambda: is_known(own, "tailed"), "the topic is known")
        start_tail(page, own)
        assert [len(names) for names in channels(cluster)] == [2, 2]
        page.get_by_text("0.05 minutes are over.").wait_for()
        assert page.get_by_role("button", name="Start the tail").is_visible()
        wait_until(lambda: channels(cluster) == [["c"], ["c"]], "the tail's channel is gone")


def test_tail_that_cannot_be_says_why(cluster, url, page, watch):
    cluster.make("bare")
    wait_until(lambda: page.goto(f"{url}/messages?topic=bare").ok, "the topic is known")
    page.get_by_role("button", name="Start the tail").click()
    page.get_by_text("has no channel there").wait_for()
    assert page.get_by_role("button", name="Start the tail").is_visible()
    # Chromium reports answers of status 404, and 409.
    assert all("409" in fault or "404" in fault for fault in watch.take_faults())


@pytest.mark.soak
def test_tabs_of_a_channel_lead_to_its_messages_and_back(url, page):
    page.goto(f"{url}/topics/bodies/c")
    page.locator(".tabs").get_by_role("link", name="Messages").click()
    expect(page).to_have_url(f"{url}/topics/bodies/c/messages")
    page.get_by_role("link", name="Deferred 0", exact=True).click()
    expect(page).to_have_url(f"{url}/topics/bodies/c/deferred")
    page.get_by_role("link", name="Clients 0").click()
    expect(page).to_have_url(f"{url}/topics/bodies/c?tab=clients")
