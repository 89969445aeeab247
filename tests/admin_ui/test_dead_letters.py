"""Dead letters in a browser, at a real nsqd: looked at, sent back, deleted, and copied with changes."""

import pytest
from playwright.sync_api import expect

from nsqadmin.test_commit_log import start_admin
from nsqadmin.test_dead_letters import make, reject
from support.admin import text_of, wait_for_channel
from support.server import start_nsqd
from support.web import get, post, topic_stats

pytestmark = pytest.mark.slow

WIDTHS = (1300, 375)
SCHEMES = ("light", "dark")
PAGE = "topics/orders/billing/dead"
MARKUP = "<script>alert(1)</script><img src=x onerror=alert(2)>"


def test_dead_letters_are_looked_at_and_sent_back(tmp_path, page, watch, visiting, axe):
    with start_nsqd("nsqfast", tmp_path) as broker:
        make(broker, "orders", "billing")
        reject(
            broker,
            "no such customer",
            MARKUP,
            topic="orders",
            channel="billing",
            body=b'{"order": 7}',
        )
        with visiting(start_admin(text_of(broker.http))) as admin:
            wait_for_channel(admin, "orders", "billing", 1)
            page.goto(f"http://{text_of(admin.http)}/topics/orders/billing")
            page.get_by_role("navigation", name="Parts of the channel").get_by_role(
                "link", name="Dead"
            ).click()
            expect(page.get_by_role("heading", level=1)).to_have_text("Dead letters of billing")
            why = page.get_by_role("table", name="Dead letters of the sample by reason and error")
            expect(why).to_contain_text("no such customer")
            expect(why).to_contain_text(MARKUP)
            assert page.locator("main img, main script").count() == 0
            page.locator("summary.preview").first.click()
            expect(page.locator(".tree").first).to_contain_text("order")
            for width in WIDTHS:
                page.set_viewport_size({"width": width, "height": 900})
                over = page.evaluate(
                    "() => document.scrollingElement.scrollWidth - window.innerWidth"
                )
                assert over <= 0
                assert axe.check(page) == []
            page.get_by_role("button", name="Redrive", exact=True).click()
            expect(page.get_by_role("alert")).to_contain_text("type billing to confirm")
            assert all("409" in fault for fault in watch.take_faults())
            page.get_by_label("To confirm").fill("billing")
            page.get_by_role("button", name="Redrive", exact=True).click()
            told = page.get_by_role("table", name="Results by node")
            expect(told.locator("tbody tr")).to_have_count(1)
            page.get_by_role("link", name="Look again").click()
            where = page.get_by_role("table", name="Dead letters by node")
            expect(where).to_contain_text("2 moved")
            expect(page.get_by_text("No dead letter waits.")).to_be_visible()
        assert topic_stats(broker.http, "orders")["channels"]["billing"]["depth"] == 2


@pytest.fixture
def broker(tmp_path):
    with start_nsqd("nsqfast", tmp_path) as server:
        make(server, "orders", "billing")
        yield server


@pytest.fixture
def site(broker, visiting):
    with visiting(start_admin(text_of(broker.http))) as admin:
        wait_for_channel(admin, "orders", "billing", 1)
        yield f"http://{text_of(admin.http)}/{PAGE}"


def depth(broker, topic, channel=""):
    found = topic_stats(broker.http, topic)
    return (found["channels"][channel] if channel else found)["depth"]


def test_those_that_a_search_shows_are_deleted(broker, site, page, watch, axe):
    for user in (17, 170, 17):
        body = b'{"status": "failed", "user": {"id": %d}}' % user
        post(broker.http, "/pub?topic=orders.billing.dead", body)
    page.goto(site)
    page.get_by_label("Search in bodies").fill("status:failed user.id:17")
    page.get_by_role("button", name="Search", exact=True).click()
    letters = page.locator("section.messages summary.preview")
    expect(letters).to_have_count(2)
    expect(page.get_by_label("That this search finds")).to_have_value("status:failed user.id:17")
    page.get_by_role("button", name="Delete", exact=True).click()
    expect(page.get_by_role("alert")).to_contain_text("Nothing brings them back: type billing")
    assert all("409" in fault for fault in watch.take_faults())
    assert depth(broker, "orders.billing.dead") == 3
    expect(letters).to_have_count(2)
    page.get_by_label("To confirm").fill("billing")
    page.get_by_role("button", name="Delete", exact=True).click()
    expect(page.get_by_role("heading", name="Deletion")).to_be_visible()
    page.get_by_role("link", name="Look again").click()
    expect(page.get_by_role("table", name="Dead letters by node")).to_contain_text("2 deleted")
    expect(letters).to_have_count(0)
    assert (depth(broker, "orders", "billing"), depth(broker, "orders.billing.dead")) == (0, 1)
    page.get_by_label("Search in bodies").fill('"not closed')
    page.get_by_role("button", name="Search", exact=True).click()
    expect(page.get_by_role("alert")).to_have_text("That is no search: a quote is not closed.")
    assert axe.check(page) == []


def test_a_copy_is_edited_and_published(broker, site, page, axe):
    """The letter stays, and each channel of the topic gets the copy."""
    make(broker, "orders", "audit")
    text = '\n{"order": 7,\n "name": "<b>René</b>"}'
    reject(broker, "why", topic="orders", channel="billing", body=text.encode())
    post(broker.http, "/channel/empty?topic=orders&channel=audit")
    page.goto(site)
    page.locator("summary.preview").click()
    edit = page.get_by_role("button", name="Edit a copy…")
    edit.click()
    dialog = page.get_by_role("dialog", name="Edit a copy")
    expect(dialog).to_contain_text("all channels of topic orders get it")
    body = dialog.get_by_label("Body", exact=True)
    expect(body).to_have_value(text)
    for scheme in SCHEMES:
        page.emulate_media(color_scheme=scheme)
        for width in WIDTHS:
            page.set_viewport_size({"width": width, "height": 900})
            assert axe.check(page) == []
    body.fill(text.replace("7", "8"))
    dialog.get_by_role("button", name="Close").click()
    edit.click()
    expect(body).to_have_value(text)
    body.fill(text.replace("7", "8"))
    dialog.get_by_role("button", name="Publish to orders").click()
    expect(dialog).to_be_hidden()
    for channel in ("billing", "audit"):
        found = get(broker.http, f"/channel/peek?topic=orders&channel={channel}").json()["messages"]
        assert [each["body"] for each in found] == [text.replace("7", "8")]
    assert depth(broker, "orders.billing.dead") == 1


@pytest.mark.parametrize("letter", [b"\x00\xff", b"two\r\nlines"])
def test_what_a_text_field_would_change_is_edited_in_a_file(broker, site, page, letter):
    post(broker.http, "/pub?topic=orders.billing.dead", letter)
    page.goto(site)
    page.locator("summary.preview").click()
    page.get_by_role("button", name="Edit a copy…").click()
    dialog = page.get_by_role("dialog", name="Edit a copy")
    expect(dialog).to_contain_text("download it, and choose the changed file")
    expect(dialog.get_by_label("Body", exact=True)).to_have_value("")
    changed = {"name": "letter", "mimeType": "application/octet-stream", "buffer": letter + b"\x01"}
    dialog.get_by_label("or a file instead").set_input_files([changed])
    dialog.get_by_role("button", name="Publish to orders").click()
    expect(dialog).to_be_hidden()
    assert depth(broker, "orders", "billing") == 1
    found = get(broker.http, "/channel/peek?topic=orders&channel=billing&filter=%01")
    assert len(found.json()["messages"]) == 1


def test_what_is_not_whole_cannot_be_edited(broker, site, page):
    post(broker.http, "/pub?topic=orders.billing.dead", b"x" * 70_000)
    page.goto(site)
    page.locator("summary.preview").click()
    expect(page.get_by_text("The first 64 KiB")).to_be_visible()
    expect(page.get_by_role("button", name="Edit a copy…")).to_have_count(0)
