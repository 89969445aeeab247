"""Reading needs no scripts: lists, filters, sorting, paging, a topic and a channel, the theme."""

import pytest
from playwright.sync_api import expect

from support.admin_cluster import many_topics
from support.admin_pages import AdminPages

pytestmark = pytest.mark.slow

FIRST_PAGE = [f"topic-{number:05d}" for number in range(100)]


@pytest.fixture(scope="module")
def many():
    with AdminPages(many_topics(250, seed=7)) as pages:
        yield pages


@pytest.fixture
def plain(watch):
    return watch.page(java_script_enabled=False)


def expect_names(page, names):
    """A page is shown while it is still being read: looks until all rows are there."""
    expect(page.locator("[data-table=topics] tbody th a")).to_have_text(names)


def test_topics_are_searched_sorted_and_paged(many, plain):
    plain.goto(many.url + "/topics")
    expect_names(plain, FIRST_PAGE)
    plain.get_by_role("link", name="Last", exact=True).click()
    expect_names(plain, [f"topic-{number:05d}" for number in range(200, 250)])
    field = plain.get_by_role("searchbox", name="Search topics")
    field.fill("topic-0012")
    field.press("Enter")
    expect_names(plain, [f"topic-0012{number}" for number in range(10)])
    plain.get_by_role("link", name="Depth", exact=True).click()
    expect(plain.get_by_role("columnheader", name="Depth", exact=True)).to_have_attribute(
        "aria-sort", "descending"
    )
    depths = plain.locator("tbody [data-col=depth]")
    expect(depths).to_have_count(10)
    values = [int(text.replace(",", "")) for text in depths.all_text_contents()]
    assert values == sorted(values, reverse=True)
    assert "q=topic-0012" in plain.url


def test_filters_are_links_that_toggle(many, plain):
    plain.goto(many.url + "/topics")
    plain.get_by_role("link", name="ephemeral").click()
    expect_names(plain, [])
    expect(plain.get_by_role("link", name="ephemeral")).to_have_attribute("aria-current", "true")
    plain.get_by_role("link", name="ephemeral").click()
    expect_names(plain, FIRST_PAGE)


def test_an_error_in_the_search_is_said_beside_it(many, plain):
    plain.goto(many.url + "/topics?q=depth>many+topic-00001")
    expect(plain.get_by_role("alert")).to_contain_text("write a number behind >")
    expect_names(plain, ["topic-00001"])


def test_topic_and_channel_are_read(site, plain):
    plain.goto(site.url + "/topics/orders")
    expect(plain.get_by_role("heading", level=1)).to_have_text("orders")
    plain.get_by_role("link", name="billing", exact=True).click()
    expect(plain.get_by_role("heading", level=1)).to_have_text("billing")
    expect(plain.locator(".tiles")).to_contain_text("184,201")
    expect(plain.locator("[data-table=nodes]")).to_contain_text("10.0.0.3:4151")


def test_controls_that_need_scripts_are_not_shown(site, plain):
    plain.goto(site.url + "/topics")
    for name in ("Pause live numbers", "Copy link", "Keys"):
        expect(plain.get_by_role("button", name=name)).to_have_count(0)


def test_theme_is_chosen_by_a_form(site, plain):
    plain.goto(site.url + "/topics?q=orders")
    plain.get_by_role("button", name="Theme: auto").click()
    assert plain.url == site.url + "/topics?q=orders"
    expect(plain.locator("html")).to_have_attribute("data-theme", "dark")
