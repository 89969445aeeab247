"""Messages in a browser: their bodies, the search that goes on, deferred ones, the tail. By real nsqd of both kinds."""

import functools
import json
import re
from pathlib import Path
from urllib.parse import urlencode

import pytest
from playwright.sync_api import expect

from nsqfast.nsqadmin.messages import pages as routes
from nsqfast.nsqadmin.messages.tail import TIME_MAX_S, Tails
from support.access import run_admin
from support.admin import LiveCluster, text_of, told, wait_for_channel
from support.server import go_folder
from support.waiting import wait_until
from support.web import topic_stats

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(go_folder() is None, reason="no NSQ programs written in Go"),
]

BAD = '<img src=x onerror=alert(1)>"><script>alert(2)</script>'
BINARY = bytes(range(256)) * 3
LINES = "\n first\r\nsecond \u20ac\n"
TOPICS = ("bodies", "deferred", "searched", "tailed", "timed")
DOCUMENT = {"id": 12345678901234567890, "name": BAD, "deep": {"er": [{"est": None}]}}


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    folder = tmp_path_factory.mktemp("messages")
    with LiveCluster(folder, ("nsqfast", "go"), ("nsqfast",)) as made:
        for topic in TOPICS:
            made.make(topic, "c")
        for body in (json.dumps(DOCUMENT).encode(), LINES.encode(), BINARY, BAD.encode()):
            told(made.nsqds[0], "/pub?topic=bodies", body)
        yield made


@pytest.fixture(scope="module")
def url(cluster):
    with cluster.admin("nsqfast") as admin:
        for topic in TOPICS:
            wait_for_channel(admin, topic, "c", 2)
        yield f"http://{text_of(admin.http)}"


def body_at(page, index):
    """A message, which is opened."""
    row = page.locator("tbody[data-id]").nth(index)
    if row.locator("details").first.get_attribute("open") is None:
        row.locator("summary.preview").click()
    return row


def test_json_is_a_tree_that_keeps_every_digit_and_all_markup_is_text(url, page):
    page.goto(f"{url}/topics/bodies/c/messages")
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


def test_download_and_copy_give_the_bytes(url, page, watch):
    page.goto(f"{url}/topics/bodies/c/messages")
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


def test_rows_are_folded_and_opened_with_keys(url, page):
    page.goto(f"{url}/topics/bodies/c/messages")
    rows = page.locator("tbody[data-id]")
    assert rows.nth(1).locator("summary.preview").inner_text() == "first second \u20ac"
    assert not rows.nth(1).locator("pre").is_visible()
    page.keyboard.press("j")
    page.keyboard.press("j")
    page.keyboard.press("Enter")
    expect(rows.nth(1).locator("pre, .tree").first).to_be_visible()
    page.keyboard.press("x")
    expect(rows.nth(1).get_by_role("checkbox")).to_be_checked()
    expect(page.get_by_role("region", name="Picked messages")).to_contain_text("1 selected")


def test_deferred_messages_are_requeued_and_dropped(cluster, url, page):
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
    rows.first.get_by_role("checkbox").click()
    page.get_by_role("button", name="Requeue 1 selected").click()
    page.locator("#action").get_by_role("button", name="Requeue 1 selected").click()
    page.get_by_text("1 message requeued").wait_for()
    assert rows.count() == 2
    wait_until(lambda: counts() == (1, 2), "one is ready")
    page.locator("[data-pick-all]").click()
    opener = page.get_by_role("button", name="Drop… 2 selected")
    opener.click()
    dialog = page.locator("#action")
    expect(dialog.get_by_role("button", name="Cancel")).to_be_focused()
    page.keyboard.press("Enter")
    expect(opener).to_be_focused()
    assert counts() == (1, 2)
    # Somebody else was faster.
    last = rows.first.get_attribute("data-id")
    told(cluster.nsqds[0], f"/channel/deferred/cancel?topic=deferred&channel=c&id={last}")
    opener.click()
    dialog.get_by_role("button", name="Drop 2 selected").click()
    dialog.get_by_text("1 of them are not there any more").wait_for()
    assert counts() == (1, 0)


def test_all_that_a_search_finds_is_moved(cluster, url, page):
    for number in range(30):
        told(cluster.nsqds[0], "/pub?topic=searched", b"bad %d" % number)
    told(cluster.nsqds[0], "/pub?topic=searched", b"good")
    page.goto(f"{url}/topics/searched/c/messages?filter=bad")
    page.locator("tbody[data-id]").first.get_by_role("checkbox").click()
    page.get_by_role("button", name="Move… all that the search finds").click()
    dialog = page.locator("#action")
    go = dialog.get_by_role("button", name="Move all that the search finds")
    dialog.get_by_label("Topic").fill("searched.failed")
    expect(go).to_be_disabled()
    dialog.get_by_label("Type the channel's name").fill("c")
    go.click()
    dialog.get_by_text("cannot do this").wait_for()  # Go's
    dialog.get_by_text("30 messages moved").wait_for()
    assert topic_stats(cluster.nsqds[0].http, "searched.failed")["depth"] == 30
    assert topic_stats(cluster.nsqds[0].http, "searched")["channels"]["c"]["depth"] == 1


def test_a_time_is_typed_in_the_zone_of_the_browser(cluster, url, watch):
    for body in (b"one", b"two"):
        told(cluster.nsqds[0], "/pub?topic=timed", body)
    page = watch.page(timezone_id="Asia/Kolkata")
    page.goto(f"{url}/topics/timed/c/messages")
    field = page.get_by_label("Since")
    field.fill("2020-02-29T05:30:03")
    page.get_by_role("button", name="Search", exact=True).click()
    page.wait_for_url("**since=2020-02-29T00%3A00%3A03.000Z*")
    expect(field).to_have_value("2020-02-29T05:30:03")
    page.get_by_text("2 matches, scanned 2 of 2").wait_for()
    page.locator("tbody[data-id]").first.get_by_role("checkbox").click()
    page.get_by_role("button", name="Drop… all that the search finds").click()
    page.get_by_text("that came at 2020-02-29 05:30:03 or later").wait_for()
    page.get_by_role("button", name="Cancel").click()
    field.fill("")
    page.get_by_role("button", name="Search", exact=True).click()
    page.wait_for_url(lambda url: "since" not in url)
    page.get_by_text("1 to 2 of 2").wait_for()


def channels(cluster):
    return [sorted(topic_stats(node.http, "tailed")["channels"]) for node in cluster.nsqds]


def start_tail(page, url):
    page.goto(f"{url}/topics/tailed/c/messages")
    page.get_by_role("button", name="Start the tail").click()
    page.get_by_text("on 2 nsqd").wait_for()


def test_tail_shows_what_comes_and_ends_with_a_click_and_when_its_page_is_hidden(
    cluster, url, page
):
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
    start_tail(page, url)
    page.evaluate(
        """() => {
            Object.defineProperty(document, "hidden", { value: true });
            document.dispatchEvent(new Event("visibilitychange"));
        }"""
    )
    page.get_by_text("Stopped, because this page was hidden.").wait_for()
    wait_until(lambda: channels(cluster) == [["c"], ["c"]], "the tail's channel is gone")


def test_tail_ends_when_its_time_is_over(cluster, page, monkeypatch, visiting):
    assert TIME_MAX_S == 300
    monkeypatch.setattr(routes, "Tails", functools.partial(Tails, time_max_s=3))
    flags = [f"--nsqd-http-address={text_of(node.http)}" for node in cluster.nsqds]
    with visiting(run_admin(*flags)) as admin:
        wait_for_channel(admin, "tailed", "c", 2)
        start_tail(page, f"http://{text_of(admin.http)}")
        assert [len(names) for names in channels(cluster)] == [2, 2]
        page.get_by_text("0.05 minutes are over.").wait_for()
        assert page.get_by_role("button", name="Start the tail").is_visible()
        wait_until(lambda: channels(cluster) == [["c"], ["c"]], "the tail's channel is gone")
