"""Open pages follow the cluster without a reload, do not move what somebody points at, and stop when nobody looks."""

import re
from urllib.parse import unquote

import pytest
from playwright.sync_api import expect

from nsqfast.nsqadmin.cluster.model import Rates
from support import admin_history
from support.admin_cluster import AT, example_cluster, make_channel, make_cluster, make_topic
from support.admin_history import change_counts
from support.admin_pages import AdminPages, example_pages

pytestmark = [pytest.mark.slow, pytest.mark.soak]

HIDE = """(hidden) => {
    Object.defineProperty(document, "hidden", { value: hidden, configurable: true });
    document.dispatchEvent(new Event("visibilitychange"));
}"""


def cluster(tick, depths):
    topics = [
        make_topic(name, [make_channel(name, "c", depth=depth, client_count=1)])
        for name, depth in depths.items()
    ]
    return make_cluster(topics, tick=tick, at=AT + 2 * tick)


@pytest.fixture
def site():
    with AdminPages(cluster(1, {"a": 30, "b": 20, "c": 10})) as pages:
        yield pages


def rows(page):
    return page.locator("[data-table=topics] tbody tr")


def names(page):
    return rows(page).locator("th a").all_text_contents()


def test_rows_come_go_and_move(site, page):
    page.goto(site.url + "/topics?sort=-depth")
    assert names(page) == ["a", "b", "c"]
    site.publish(cluster(2, {"a": 5, "b": 20, "new": 15}))
    expect(rows(page).locator("th a")).to_have_text(["b", "new", "a"])
    expect(page.locator("[data-key=new] [data-col=depth]")).to_have_text("15")
    expect(page.locator("[data-key=new] th a")).to_have_attribute("href", "/topics/new")
    expect(page.locator("[data-text='topics.total']")).to_have_text("3")


def test_rows_below_the_pointer_or_the_focus_change_but_do_not_move_and_stay_picked(site, page):
    page.goto(site.url + "/topics?sort=-depth")
    apply = page.get_by_role("button", name="Order changed, apply")
    page.locator("[data-key=b] input").check()
    page.locator("[data-key=b] th").hover()
    site.publish(cluster(2, {"a": 1, "b": 20, "c": 10}))
    expect(page.locator("[data-key=a] [data-col=depth]")).to_have_text("1")
    expect(apply).to_be_visible()
    assert names(page) == ["a", "b", "c"]
    apply.click()
    expect(rows(page).locator("th a")).to_have_text(["b", "c", "a"])
    expect(apply).to_be_hidden()
    page.locator("[data-key=b] th a").focus()
    page.locator("h1").hover()
    site.publish(cluster(3, {"a": 30, "b": 20, "c": 10}))
    expect(apply).to_be_visible()
    page.locator(".brand").focus()
    expect(rows(page).locator("th a")).to_have_text(["a", "b", "c"])
    expect(page.locator("[data-key=b] input")).to_be_checked()
    expect(page.locator("[data-key=a] input")).not_to_be_checked()


def test_paused_and_hidden_pages_ask_nothing(site, page):
    asked = []
    page.on("request", lambda request: asked.append(request.url))
    page.clock.install()
    page.goto(site.url + "/")  # charts and numbers
    page.wait_for_event("request", lambda request: "/ui/live" in request.url)
    page.get_by_role("button", name="Pause live numbers").click()
    expect(page.get_by_role("status").first).to_have_text("Paused")
    asked.clear()
    page.clock.run_for(15_000)  # many times the interval at which it would ask
    assert asked == []
    with page.expect_request(lambda request: "/ui/live" in request.url):
        page.keyboard.press("r")
    expect(page.get_by_role("status").first).to_have_text("Live 2 s")
    page.evaluate(HIDE, True)
    asked.clear()
    page.clock.run_for(15_000)
    assert asked == []
    with page.expect_request(lambda request: "/ui/live" in request.url):
        page.evaluate(HIDE, False)


def test_a_lost_connection_is_said_once_and_mends_itself(site, page, watch):
    page.clock.install()
    page.goto(site.url + "/topics")
    status = page.get_by_role("status").first
    page.evaluate(
        """() => {
            window.spoken = 0;
            new MutationObserver(() => window.spoken++).observe(
                document.getElementById("live-state"), { childList: true, characterData: true, subtree: true });
        }"""
    )
    page.route("**/ui/live*", lambda route: route.abort())
    expect(status).to_contain_text("No connection since")
    for _ in range(2):  # what the first failure changed is there when the second has come
        with page.expect_event("requestfailed"):
            page.clock.run_for(5000)
    assert page.evaluate("() => window.spoken") == 1
    page.unroute("**/ui/live*")
    page.clock.run_for(10_000)
    expect(status).to_have_text("Live 2 s")
    assert page.evaluate("() => window.spoken") == 2
    assert all("ERR_FAILED" in fault for fault in watch.take_faults())


def test_a_topic_that_is_deleted_meanwhile_is_said(site, page, watch):
    page.goto(site.url + "/topics/a")
    site.publish(cluster(2, {"b": 20}))
    expect(page.get_by_role("status").first).to_have_text("No longer there")
    assert all("404" in fault for fault in watch.take_faults())


def test_news_an_action_and_the_theme_stay_below_a_prefix(page, visiting):
    """On a name that has to be quoted in every address."""
    with visiting(AdminPages(example_cluster(), "--base-path=/nsq/admin")) as site:
        topic = "x#ephemeral"
        page.goto(site.url + "/topics")
        page.get_by_role("link", name=topic, exact=True).click()
        page.wait_for_url(lambda url: unquote(url) == f"{site.url}/topics/{topic}")
        site.publish(example_cluster(tick=2, at=AT + 2))
        expect(page.locator("#clock")).to_have_text("22:13:22")
        page.locator(".actions summary", has_text="More").click()
        page.get_by_role("button", name=f"Empty topic {topic}…", exact=True).click()
        dialog = page.locator("#action")
        dialog.get_by_label("Type the name").fill(topic)
        # One of all nodes is down, so nobody knows what it has.
        dialog.get_by_role("button", name=f"Empty {topic}: lose at least 0 messages").click()
        expect(dialog.get_by_text("done on some nodes only")).to_be_visible()
        assert site.context.upstream.told == [("10.0.0.1:4151", "/topic/empty?topic=x%23ephemeral")]
        page.keyboard.press("Escape")
        page.keyboard.press("t")
        assert page.context.cookies()[0]["path"] == "/nsq/admin/"
        page.goto(site.url + "/nodes")
        expect(page.locator("html")).to_have_attribute("data-theme", "dark")


# ---- charts


def drawn(page, chart):
    """The locator of its plot, once it has points."""
    plot = page.locator(f"[data-chart={chart}] .plot")
    expect(plot).to_have_attribute("aria-label", re.compile(", last .*: "))
    return plot


def test_a_chart_is_said_and_has_a_table_with_its_marks(page, axe, visiting):
    with visiting(example_pages()) as site:
        page.goto(site.url + "/topics/orders/archive")
        assert re.fullmatch(
            r"Depth, last 1 h: Memory [\d,.]+( k)? now, highest [\d,.]+( k)? at \d\d:\d\d:\d\d; Disk .*\."
            r" Events: 22:03:20 pause orders/archive\.",
            drawn(page, "depth").get_attribute("aria-label"),
        )
        drawn(page, "rates")
        chart = page.locator("[data-chart=rates]")
        chart.get_by_text("As table").click()
        rows = chart.locator("tbody tr")
        expect(rows).to_have_count(60)
        cells = [row.split("\t") for row in rows.all_inner_texts()]
        assert 3 <= len([row for row in cells if row[1] == "–"]) <= 5
        assert not [row for row in cells if row[1] == "0/s"]
        assert [row[-1] for row in cells if row[-1].strip()] == ["pause orders/archive"]
        assert axe.check(page) == []


def test_new_points_come_without_a_reload(page, visiting):
    with visiting(example_pages()) as site:
        asked = []
        page.on("request", lambda request: asked.append(request.url))
        page.goto(site.url + "/topics/clicks/etl")
        plot = drawn(page, "depth")
        expect(plot).to_have_attribute("aria-label", re.compile(r"Disk 0 now"))
        news = site.context.poller.cluster
        for step in range(1, 4):
            at, depth = AT + 10 * step + 5, 5000 * step
            later = change_counts(
                news, "clicks", "etl", 1 + step, at, depth=depth, backend_depth=depth
            )
            site.call(take(site, later))
            site.publish(later)
            words = re.compile(rf"Disk ({5 * step},000|{5 * step} k) now")
            expect(plot).to_have_attribute("aria-label", words)
        points = ["since=" in each for each in asked if "/ui/series" in each]
        assert points == [False, True, True, True]
        assert page.evaluate("() => performance.getEntriesByType('navigation').length") == 1


async def take(site, cluster):
    admin_history.take(site.context.history, cluster)


def test_the_counter_runs_on_unless_less_motion_is_wanted(watch, visiting):
    channel = make_channel("t", "c", message_count=1_000_000, rates=Rates(500.0))
    with visiting(AdminPages(make_cluster([make_topic("t", [channel])]))) as site:
        still, moving = watch.page(), watch.page(reduced_motion="no-preference")
        for page in (still, moving):
            page.goto(site.url + "/counter")
        moving.wait_for_function(
            "() => Number(document.querySelector('.count').textContent.replaceAll(',', '')) > 1000100"
        )
        assert still.locator(".count").text_content().strip() == "1,000,000"
        channel = make_channel("t", "c", message_count=1_003_000, rates=Rates(500.0))
        site.publish(make_cluster([make_topic("t", [channel])], tick=2, at=AT + 2))
        expect(still.locator(".count")).to_have_text("1,003,000")
