"""The audit page: what was done stands there at the next tick, with what each node said, and can be searched."""

import pytest
from playwright.sync_api import expect

from support.admin_cluster import AT, example_cluster, example_entries
from support.admin_pages import AdminPages

pytestmark = pytest.mark.slow


@pytest.fixture
def site():
    with AdminPages(example_cluster(), entries=example_entries()) as pages:
        yield pages


def cells(page, column):
    return page.locator(f"[data-table=audit] tbody [data-col={column}]")


def test_what_was_done_comes_first_and_without_a_reload(site, page, watch):
    page.goto(site.url + "/audit")
    expect(cells(page, "action")).to_have_text(["export", "login", "pause_channel"])
    other = watch.page()
    other.goto(site.url + "/topics/orders/archive")
    other.locator(".actions summary", has_text="Pause").click()
    other.get_by_role("button", name="Unpause channel archive", exact=True).click()
    expect(other.locator("#action .results")).to_be_visible()
    site.publish(example_cluster(tick=2, at=AT + 2))
    expect(cells(page, "action").first).to_have_text("unpause_channel")
    expect(cells(page, "target").first).to_have_text("topic orders, channel archive")
    expect(cells(page, "outcome").first).to_have_text("partial")
    expect(cells(page, "results").first).to_have_text("10.0.0.3:4151: connection refused")
    expect(cells(page, "role").first).to_have_text("admin")
    expect(cells(page, "ip").first).to_have_text("127.0.0.1")


@pytest.mark.soak
def test_it_is_searched_filtered_and_sorted_by_its_address(site, page, watch):
    page.goto(site.url + "/audit")
    page.get_by_role("link", name="refused").click()
    expect(cells(page, "action")).to_have_text(["login"])
    expect(cells(page, "user")).to_have_text(["bob"])
    page.goto(site.url + "/audit?q=orders")
    expect(cells(page, "action")).to_have_text(["pause_channel"])
    page.goto(site.url + "/audit")
    head = page.get_by_role("columnheader", name="Action", exact=True)
    head.get_by_role("link").click()
    expect(head).to_have_attribute("aria-sort", "ascending")
    fresh = watch.page()
    fresh.goto(page.url)
    expect(cells(fresh, "action")).to_have_text(["export", "login", "pause_channel"])


def test_it_is_exported_and_that_is_a_line_of_its_own(site, page):
    page.goto(site.url + "/audit?q=is%3Arefused")
    page.locator("[data-table=audit] summary", has_text="Export").click()
    with page.expect_download() as waiting:
        page.get_by_role("link", name="CSV, 1 row").click()
    with open(waiting.value.path(), encoding="utf-8", newline="") as file:
        head, line = file.read().splitlines()
    assert head.startswith("time,action,target,outcome,user")
    assert ",login,,refused,bob" in line
    page.goto(site.url + "/audit")
    expect(cells(page, "action").first).to_have_text("export")
