"""Times are the browser's, also of what comes while a page is open, with the server's on hover and without scripts."""

import re
import time

import pytest
from playwright.sync_api import expect

from nsqfast.nsqadmin.cluster.model import NodeState
from support import admin_history
from support.admin_cluster import (
    AT,
    make_cluster,
    make_entry,
    make_lookupd,
    make_node,
    make_problem,
)
from support.admin_history import change_counts
from support.admin_pages import AdminPages, example_pages

pytestmark = [pytest.mark.slow, pytest.mark.soak]

TOKYO = {"timezone_id": "Asia/Tokyo"}  # 9 h later than UTC: 22:13:20 is on the day after
EVIDENCE = "nobody since 2023-11-14 22:10 UTC: <b>no</b>"


def there(at):
    """How the server writes a time that is its own."""
    return time.strftime("%Y-%m-%d %H:%M:%S %Z", time.localtime(at))


SINCE = there(AT - 840)


@pytest.fixture
def site():
    nodes = [make_node(), make_node(1, NodeState.DOWN)]
    cluster = make_cluster(nodes=nodes, lookupds=[make_lookupd()])
    problems = [make_problem(text=EVIDENCE, since=AT - 840)]
    with AdminPages(cluster, problems=problems, entries=[make_entry()]) as pages:
        yield pages


def read(element):
    """What its time shows, and its title."""
    found = element.locator("time").first
    return found.text_content(), found.get_attribute("title")


def cell(page, column, key="p0"):
    return page.locator(f"[data-key={key}] [data-col={column}]")


def test_a_page_has_the_time_of_its_reader_and_the_servers_on_hover(site, watch):
    page = watch.page(**TOKYO)
    page.goto(site.url + "/problems")
    assert read(cell(page, "since")) == ("2023-11-15 06:59:20", SINCE)
    assert read(cell(page, "text")) == ("2023-11-15 07:10", "2023-11-14 22:10 UTC")
    assert cell(page, "text").text_content() == "nobody since 2023-11-15 07:10: <b>no</b>"
    down = page.locator("[data-text='banner.0']").first
    assert read(down) == ("2023-11-15 06:13:20", there(AT - 3600))
    assert down.locator("time").first.get_attribute("datetime") == "2023-11-14T21:13:20Z"
    expect(page.locator("#clock")).to_have_text("07:13:20")
    page.goto(site.url + "/audit")
    at = page.locator("[data-col=time]")
    assert read(at) == ("2023-11-15 07:00:00", "2023-11-14 22:00:00 UTC")
    page.goto(site.url + "/nodes/10.0.0.2:4151")
    assert read(page.locator("p.errors")) == ("2023-11-15 06:13:20", there(AT - 3600))
    page.goto(site.url + "/nodes")
    since = page.locator("[data-table=lookupds] [data-col=since]")
    assert read(since) == ("2023-11-15 07:03:20", there(AT - 600))


def test_what_comes_while_a_page_is_open_has_them_too(site, watch):
    page = watch.page(**TOKYO)
    page.goto(site.url + "/problems")
    clock = page.locator("#clock")
    expect(clock).to_have_text("07:13:20")
    later = "nobody since 2023-11-14 23:59 UTC"
    problems = [make_problem(text=later), make_problem(1, text=EVIDENCE)]
    site.context.problems.found = problems
    site.publish(make_cluster(tick=2, at=AT + 2))
    expect(cell(page, "text", "p1")).to_have_text("nobody since 2023-11-15 07:10: <b>no</b>")
    assert read(cell(page, "text", "p1")) == ("2023-11-15 07:10", "2023-11-14 22:10 UTC")
    assert read(cell(page, "since", "p1")) == ("2023-11-15 06:59:20", SINCE)
    assert cell(page, "text").text_content() == "nobody since 2023-11-15 08:59"
    expect(clock).to_have_text("07:13:22")
    assert read(clock)[1].startswith(time.strftime("%H:%M:%S UTC", time.localtime(AT + 2)))


def test_without_scripts_a_page_has_the_servers_time(site, watch):
    page = watch.page(java_script_enabled=False, **TOKYO)
    page.goto(site.url + "/problems")
    assert cell(page, "text").text_content() == EVIDENCE
    since = cell(page, "since").locator("time")
    assert read(cell(page, "since")) == (SINCE[11:19], SINCE)
    assert since.get_attribute("datetime") == "2023-11-14T21:59:20Z"


# ---- charts


def points(page):
    """Of each chart: where its plot is from left to right within its figure, and what it says the time is."""
    return page.evaluate(
        """() => [...document.querySelectorAll(".chart")].map((figure) => {
            const [own, plot] = [figure, figure.querySelector(".u-over")].map((each) => each.getBoundingClientRect());
            return [plot.left - own.left, plot.width, figure.querySelector("[data-when]").textContent];
        })"""
    )


def test_all_charts_are_as_wide_and_show_the_time_under_the_pointer_in_one(watch, visiting):
    page = watch.page(**TOKYO)
    with visiting(example_pages()) as site:
        page.goto(site.url + "/topics/orders/archive")
        plots = page.locator(".chart .plot")
        for plot in plots.all():
            expect(plot).to_have_attribute("aria-label", re.compile(": "))
        assert plots.count() >= 3
        assert len({(left, width) for left, width, _ in points(page)}) == 1
        values = page.locator(".chart [data-value]")
        last = values.all_text_contents()
        over = page.locator(".chart .u-over").nth(1)
        over.hover(position={"x": over.bounding_box()["width"] * 0.25, "y": 40})
        when = page.locator(".chart [data-when] time")
        expect(when).to_have_count(plots.count())
        (shown,) = set(when.all_text_contents())
        assert re.fullmatch(r"06:2\d:\d\d", shown)  # a quarter of the hour until 07:13:20
        assert set(when.evaluate_all("(all) => all.map((each) => each.title.slice(2, 8))")) == {
            shown[2:8]
        }
        assert values.all_text_contents() != last
        # New points do not take them away.
        now = site.context.poller.cluster
        later = change_counts(now, "orders", "archive", 2, AT + 15, depth=5000)
        site.call(take(site, later))
        site.publish(later)
        expect(page.locator("[data-chart=depth] .plot")).to_have_attribute(
            "aria-label", re.compile(r"Memory 5,000 now")
        )
        assert when.count() == plots.count()
        page.locator("h1").hover()
        expect(when).to_have_count(0)
        expect(page.locator("[data-chart=depth] [data-value]").first).to_have_text("5,000")


async def take(site, cluster):
    admin_history.take(site.context.history, cluster)
