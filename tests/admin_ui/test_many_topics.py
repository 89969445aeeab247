"""Five thousand topics: found, sorted and paged in no time; the address is all that somebody else needs."""

import re
import time

import pytest
from playwright.sync_api import expect

from support.admin_cluster import many_topics
from support.admin_pages import AdminPages

pytestmark = pytest.mark.slow

COUNT = 5000
SEED = 20
ANSWER_S_MAX = 0.2
LABELS = ("Topic", "Depth", "In", "Out", "Oldest", "In flight", "Channels", "Consumers", "Trend")


@pytest.fixture(scope="module")
def many():
    with AdminPages(many_topics(COUNT, SEED)) as pages:
        yield pages


def rows(page):
    return page.locator("[data-table=topics] tbody tr").all_inner_texts()


def head(page, label):
    return page.get_by_role("columnheader", name=label, exact=True)


def least_s(page, url):
    """Of three requests for an address that nobody asked for before: what the browser waits for the server."""
    durations = []
    for number in range(3):
        fresh = f"{url}{'&' if '?' in url else '?'}t={number}"
        began = time.monotonic()
        answer = page.context.request.get(fresh, headers={"Accept": "text/html"})
        durations.append(time.monotonic() - began)
        assert answer.ok
    return min(durations)


@pytest.mark.soak
def test_each_column_sorts_both_ways_and_the_last_page_is_a_click_away(many, page, watch):
    page.goto(many.url + "/topics")
    expect(page.locator("[data-text='topics.total']")).to_have_text("5,000")
    durations = {}
    for label in LABELS:
        head(page, label).get_by_role("link").click()
        expect(head(page, label)).to_have_attribute("aria-sort", re.compile("ascending|desc"))
        # The same link sorts the other way next.
        other = head(page, label).get_by_role("link").evaluate("(link) => link.href")
        assert other != page.url
        for url in (page.url, other):
            durations[url] = least_s(page, url)
    shown = []
    for order in ("descending", "ascending"):
        head(page, "Depth").get_by_role("link").click()
        expect(head(page, "Depth")).to_have_attribute("aria-sort", order)
        shown.append(rows(page))
    assert shown[0] != shown[1]
    assert len(durations) == 2 * len(LABELS)
    page.get_by_role("link", name="Last", exact=True).click()
    assert "page=50" in page.url
    assert len(rows(page)) == 100
    durations[page.url] = least_s(page, page.url)
    page.get_by_role("searchbox", name="Search topics").fill("-012 depth>100")
    page.keyboard.press("Enter")
    page.wait_for_url("**/topics?*q=-012*")
    durations[page.url] = least_s(page, page.url)
    print("seconds by address:", durations)
    assert max(durations.values()) < ANSWER_S_MAX
    fresh = watch.page()
    fresh.goto(page.url)
    assert rows(fresh) == rows(page)
    assert 0 < len(rows(page)) <= 100


@pytest.mark.soak
def test_an_address_shows_everybody_the_same(many, page, watch):
    page.goto(many.url + "/topics?q=no%3Aconsumers&sort=-oldest&page=3")
    fresh = watch.page()
    fresh.goto(page.url)
    assert rows(fresh) == rows(page)
    assert len(rows(page)) == 100
    for each in (page, fresh):
        expect(head(each, "Oldest")).to_have_attribute("aria-sort", "descending")
        expect(each.get_by_role("searchbox", name="Search topics")).to_have_value("no:consumers")
        expect(each.get_by_role("link", name="no consumers")).to_have_attribute(
            "aria-current", "true"
        )
