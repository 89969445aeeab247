"""Open pages follow the cluster without a reload, do not move what somebody points at, and stop when nobody looks."""

import time

import pytest
from playwright.sync_api import expect

from support.admin_cluster import AT, make_channel, make_cluster, make_topic
from support.admin_pages import AdminPages

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


def count_requests(page):
    """The list grows with each question for news."""
    asked = []
    page.on(
        "request", lambda request: asked.append(request.url) if "/ui/live" in request.url else 0
    )
    return asked


def test_numbers_totals_and_clock_change_without_a_reload(site, page):
    page.goto(site.url + "/")
    page.evaluate("() => { window.sameDocument = true }")
    expect(page.locator("[data-text=depth]")).to_have_text("60")
    expect(page.locator("#clock")).to_have_text("22:13:22")
    site.publish(cluster(2, {"a": 31, "b": 20, "c": 10}))
    expect(page.locator("[data-text=depth]")).to_have_text("61")
    expect(page.locator("#clock")).to_have_text("22:13:24")
    assert page.evaluate("() => window.sameDocument")


def test_rows_come_go_and_move(site, page):
    page.goto(site.url + "/topics?sort=-depth")
    assert names(page) == ["a", "b", "c"]
    site.publish(cluster(2, {"a": 5, "b": 20, "new": 15}))
    expect(rows(page).locator("th a")).to_have_text(["b", "new", "a"])
    expect(page.locator("[data-key=new] [data-col=depth]")).to_have_text("15")
    expect(page.locator("[data-key=new] th a")).to_have_attribute("href", "/topics/new")
    expect(page.locator("[data-text='topics.total']")).to_have_text("3")


def test_rows_below_the_pointer_change_but_do_not_move(site, page):
    page.goto(site.url + "/topics?sort=-depth")
    page.locator("[data-key=b] th").hover()
    site.publish(cluster(2, {"a": 1, "b": 20, "c": 10}))
    expect(page.locator("[data-key=a] [data-col=depth]")).to_have_text("1")
    apply = page.get_by_role("button", name="Order changed, apply")
    expect(apply).to_be_visible()
    assert names(page) == ["a", "b", "c"]
    apply.click()
    expect(rows(page).locator("th a")).to_have_text(["b", "c", "a"])
    expect(apply).to_be_hidden()


def test_rows_move_once_the_focus_has_left_the_table(site, page):
    page.goto(site.url + "/topics?sort=-depth")
    page.locator("[data-key=b] th a").focus()
    site.publish(cluster(2, {"a": 1, "b": 20, "c": 10}))
    expect(page.locator("[data-apply]")).to_be_visible()
    page.locator(".brand").focus()
    expect(rows(page).locator("th a")).to_have_text(["b", "c", "a"])


def test_picked_rows_stay_picked(site, page):
    page.goto(site.url + "/topics?sort=-depth")
    page.locator("[data-key=b] input").check()
    page.locator("h1").hover()
    page.locator(".brand").focus()
    site.publish(cluster(2, {"a": 1, "b": 20, "c": 10}))
    expect(rows(page).locator("th a")).to_have_text(["b", "c", "a"])
    expect(page.locator("[data-key=b] input")).to_be_checked()
    expect(page.locator("[data-key=a] input")).not_to_be_checked()


def test_nothing_is_sent_where_nothing_changed(site, page):
    with page.expect_response(lambda answer: "/ui/live" in answer.url) as first:
        page.goto(site.url + "/topics")
    assert first.value.status == 204
    site.publish(cluster(2, {"a": 30, "b": 20, "c": 10}))
    # The tick is another one, what the page shows is the same: the clock alone goes on.
    expect(page.locator("#clock")).to_have_text("22:13:24")


def test_paused_and_hidden_pages_ask_nothing(site, page):
    asked = count_requests(page)
    page.clock.install()
    page.goto(site.url + "/topics")
    page.wait_for_event("request", lambda request: "/ui/live" in request.url)
    page.get_by_role("button", name="Pause live numbers").click()
    expect(page.get_by_role("status").first).to_have_text("Paused")
    before = len(asked)
    page.clock.run_for(15_000)  # many times the interval at which it would ask
    assert len(asked) == before
    with page.expect_request(lambda request: "/ui/live" in request.url):
        page.keyboard.press("r")
    expect(page.get_by_role("status").first).to_have_text("Live 2 s")
    page.evaluate(HIDE, True)
    before = len(asked)
    page.clock.run_for(15_000)
    assert len(asked) == before
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


def test_an_expired_login_leads_to_the_login_page_and_back(site, page, watch):
    page.route("**/ui/live*", lambda route: route.fulfill(status=401))
    page.goto(site.url + "/topics?sort=-depth")
    expect(page).to_have_url(site.url + "/login?next=%2Ftopics%3Fsort%3D-depth")
    assert watch.take_faults() != []  # the 401, and that there is no login without --auth-file


def test_a_topic_that_is_deleted_meanwhile_is_said(site, page, watch):
    page.goto(site.url + "/topics/a")
    site.publish(cluster(2, {"b": 20}))
    expect(page.get_by_role("status").first).to_have_text("No longer there")
    assert all("404" in fault for fault in watch.take_faults())


def test_eight_tabs_load_and_follow(site, page):
    tabs = [page, *(page.context.new_page() for _ in range(7))]
    for tab in tabs:
        tab.goto(site.url + "/")
    started = time.monotonic()
    site.publish(cluster(2, {"a": 100, "b": 20, "c": 10}))
    for tab in tabs:
        expect(tab.locator("[data-text=depth]")).to_have_text("130")
    assert time.monotonic() - started < 8
