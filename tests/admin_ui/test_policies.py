"""Policies as somebody sets them in a browser, at two real nsqd."""

import pytest
from playwright.sync_api import expect

from nsqadmin.test_commit_log import start_admin
from support.admin import text_of
from support.server import start_nsqd
from support.waiting import wait_until
from support.web import get, post

pytestmark = pytest.mark.slow

WIDTHS = (1300, 375)
THEMES = ("light", "dark")


@pytest.fixture(scope="module")
def brokers(tmp_path_factory):
    with (
        start_nsqd("nsqfast", tmp_path_factory.mktemp("a")) as a,
        start_nsqd("nsqfast", tmp_path_factory.mktemp("b")) as b,
    ):
        for broker in (a, b):
            post(broker.http, "/topic/create?topic=orders")
            post(broker.http, "/channel/create?topic=orders&channel=audit")
            post(broker.http, "/mpub?topic=orders", b"1\n2\n3")
        yield a, b


def test_a_policy_is_tried_set_and_removed(brokers, page, watch, visiting, axe):
    addresses = [text_of(broker.http) for broker in brokers]
    with visiting(start_admin(*addresses)) as admin:
        wait_until(
            lambda: len(get(admin.http, "/ui/policies").json()["nodes"]) == 2, "both are known"
        )
        page.goto(f"http://{text_of(admin.http)}/")
        page.get_by_role("navigation", name="Pages").get_by_role("link", name="Policies").click()
        expect(page.get_by_role("heading", level=1)).to_have_text("Policies")
        expect(page.get_by_text("No nsqd has a policy.")).to_be_visible()
        page.get_by_label("Name", exact=True).fill("newest")
        page.get_by_label("Topics", exact=True).fill("^orders$")
        page.get_by_label("Channels", exact=True).fill("^audit$")
        page.get_by_label("Limits").fill('{"max_messages": 2, "overflow": "drop_head"}')
        page.get_by_role("button", name="Try: what would it change?").click()
        told = page.get_by_role("table", name="Results by node")
        expect(told.locator("tbody tr")).to_have_count(2)
        expect(told).to_contain_text("orders/audit 1")
        assert look(page, axe) == []
        page.get_by_role("button", name="Set it", exact=True).click()
        expect(page.get_by_role("alert")).to_contain_text("of 2 queues may go at once")
        assert all("409" in fault for fault in watch.take_faults())
        page.get_by_label("type its name").fill("newest")
        page.get_by_role("button", name="Set it", exact=True).click()
        row = page.get_by_role("table", name="Policies").locator("tbody tr")
        expect(row).to_contain_text("on all nodes")
        assert look(page, axe) == []
        row.get_by_role("link", name="newest").click()
        expect(page.get_by_label("Topics", exact=True)).to_have_value("^orders$")
        page.get_by_role("button", name="Remove it", exact=True).click()
        expect(page.get_by_text("No nsqd has a policy.")).to_be_visible()


def look(page, axe):
    """What does not fit, or is against the guidelines, in both widths and themes."""
    found = []
    for width in WIDTHS:
        page.set_viewport_size({"width": width, "height": 900})
        over = page.evaluate("() => document.scrollingElement.scrollWidth - window.innerWidth")
        found += [f"{width}: {over} px too wide"] if over > 0 else []
        for theme in THEMES:
            page.evaluate("(theme) => { document.documentElement.dataset.theme = theme }", theme)
            found += [f"{width} {theme}: {line}" for line in axe.check(page)]
    return found
