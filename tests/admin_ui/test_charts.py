"""Charts in a browser: lines, gaps, marks, themes and sizes, the table beside them, new points without a reload."""

import copy
import re
from urllib.parse import quote

import pytest
from playwright.sync_api import expect

from nsqfast.nsqadmin.live.model import Rates
from support.admin_cluster import AT, example_cluster, make_channel, make_cluster, make_topic
from support.admin_history import GAP, POINTS, STEP_S, fill_history
from support.admin_pages import AdminPages

HOSTILE = "<img src=x onerror=alert(1)>"
HIDE = """(hidden) => {
    Object.defineProperty(document, "hidden", { value: hidden, configurable: true });
    document.dispatchEvent(new Event("visibilitychange"));
}"""
# How many points of each column of the plot have about this colour; the axes and the labels are left out.
COUNT_COLOUR = """([id, colour]) => {
    const chart = document.querySelector(`[data-chart="${id}"]`);
    const over = chart.querySelector(".u-over");
    const canvas = chart.querySelector("canvas");
    const ratio = canvas.width / canvas.clientWidth;
    const sides = [over.offsetLeft, over.offsetTop, over.offsetWidth, over.offsetHeight];
    const box = sides.map((side) => Math.round(side * ratio));
    const copy = document.createElement("canvas");
    [copy.width, copy.height] = [canvas.width, canvas.height];
    const pen = copy.getContext("2d", { willReadFrequently: true });
    pen.drawImage(canvas, 0, 0);
    const { data, width, height } = pen.getImageData(...box);
    const wanted = [1, 3, 5].map((at) => parseInt(colour.slice(at, at + 2), 16));
    const counts = new Array(width).fill(0);
    for (let y = 0; y < height; y++)
        for (let x = 0; x < width; x++) {
            const at = 4 * (y * width + x);
            const isNear = wanted.every((part, index) => Math.abs(part - data[at + index]) < 24);
            if (isNear && data[at + 3] > 200) counts[x]++;
        }
    return counts;
}"""
LIGHT, DARK = "#0067a5", "#56b4e9"

pytestmark = [pytest.mark.slow, pytest.mark.soak]


def drawn(page, chart):
    """The locator of its plot, once it has points."""
    plot = page.locator(f"[data-chart={chart}] .plot")
    expect(plot).to_have_attribute("aria-label", re.compile(", last .*: "))
    return plot


def count_colour(page, chart, colour):
    return page.evaluate(COUNT_COLOUR, [chart, colour])


def fresh_site(**changes):
    """One that a test may change."""
    return AdminPages(example_cluster(), fill=fill_history, **changes)


def test_a_chart_says_what_it_shows(site, page):
    page.goto(site.url + "/topics/orders/billing")
    plot = drawn(page, "depth")
    assert plot.get_attribute("role") == "img"
    assert re.fullmatch(
        r"Depth, last 1 h: Memory [\d,.]+( k)? now, highest [\d,.]+ k at \d\d:\d\d:\d\d; "
        r"Disk [\d.]+ k now, highest [\d.]+ k at \d\d:\d\d:\d\d\.",
        plot.get_attribute("aria-label"),
    )
    values = page.locator("[data-chart=depth] [data-value]").all_text_contents()
    assert len(values) == 2
    assert all(re.fullmatch(r"[\d,.]+( k)?", value) for value in values)


def test_what_is_not_known_is_a_gap(site, page):
    page.goto(site.url + "/")
    drawn(page, "rates")
    counts = count_colour(page, "rates", LIGHT)
    width = len(counts)
    begin = width * (1 - (POINTS - 1 - GAP.start) * STEP_S / 3600)
    end = width * (1 - (POINTS - 1 - GAP.stop) * STEP_S / 3600)
    edge = width * 2 * STEP_S / 3600 + 4
    inside = counts[int(begin + edge) : int(end - edge)]
    assert len(inside) > 10
    assert sum(inside) == 0
    assert all(counts[int(width * 0.1) : int(begin - edge)])
    assert all(counts[int(end + edge) : int(width * 0.98)])


def test_the_table_beside_a_chart_is_one_and_short(site, page, axe):
    page.goto(site.url + "/topics/orders/archive")
    drawn(page, "rates")
    chart = page.locator("[data-chart=rates]")
    chart.get_by_text("As table").click()
    rows = chart.locator("tbody tr")
    expect(rows).to_have_count(60)
    heads = chart.locator("thead th").all_text_contents()
    assert re.fullmatch(r"Until \(highest of \d+ points\)", heads[0])
    assert heads[1:] == ["In", "Out", "Requeued", "Timed out", "Event"]
    cells = [row.split("\t") for row in rows.all_inner_texts()]
    unknown = [row for row in cells if row[1] == "–"]
    assert 3 <= len(unknown) <= 5
    assert not [row for row in cells if row[1] == "0/s"]
    events = [row[-1] for row in cells if row[-1].strip()]
    assert events == ["pause orders/archive"]
    assert axe.check(page) == []


def test_a_mark_is_spoken_and_drawn(site, page):
    page.goto(site.url + "/topics/orders/archive")
    label = drawn(page, "depth").get_attribute("aria-label")
    assert label.endswith(" Events: 22:03:20 pause orders/archive.")
    page.goto(site.url + "/topics/clicks/etl")
    assert "Events" not in drawn(page, "depth").get_attribute("aria-label")


def test_ranges_are_links(site, page):
    asked = []
    page.on(
        "request", lambda request: asked.append(request.url) if "/ui/series" in request.url else 0
    )
    page.goto(site.url + "/topics/orders/billing?tab=clients")
    drawn(page, "rates")
    page.get_by_role("navigation", name="Range of charts").get_by_text("6 h").click()
    page.wait_for_url("**/topics/orders/billing?*range=6h*")
    assert "tab=clients" in page.url
    assert ", last 6 h: " in drawn(page, "rates").get_attribute("aria-label")
    assert asked[-1].endswith("&range=6h")
    current = page.locator(".ranges [aria-current]")
    assert current.all_text_contents() == ["6 h"]


def test_new_points_come_without_a_reload(page, visiting):
    with visiting(fresh_site()) as site:
        asked = []
        page.on(
            "request",
            lambda request: asked.append(request.url) if "/ui/series" in request.url else 0,
        )
        page.goto(site.url + "/topics/clicks/etl")
        plot = drawn(page, "depth")
        expect(plot).to_have_attribute("aria-label", re.compile(r"Disk 0 now"))
        news = copy.deepcopy(site.context.poller.cluster)
        for step in range(1, 4):
            later = copy.deepcopy(news)
            later.tick, later.at = 1 + step, AT + 10 * step + 5
            counts = later.topics["clicks"].channels["etl"].counts
            counts.depth = counts.backend_depth = 5000 * step
            site.call(take(site, later))
            site.publish(later)
            words = re.compile(rf"Disk ({5 * step},000|{5 * step} k) now")
            expect(plot).to_have_attribute("aria-label", words)
        assert len(asked) == 4
        assert ["since=" in each for each in asked] == [False, True, True, True]
        assert page.evaluate("() => performance.getEntriesByType('navigation').length") == 1


async def take(site, cluster):
    site.context.history.take(cluster)


def test_nobody_asks_while_hidden_or_paused(page, visiting):
    with visiting(fresh_site()) as site:
        page.clock.install()
        page.goto(site.url + "/")
        drawn(page, "rates")
        page.evaluate(HIDE, True)
        # What was asked before it was hidden does not count, and on a busy machine there may be something.
        asked = []
        page.on("request", lambda request: asked.append(request.url))
        later = copy.deepcopy(site.context.poller.cluster)
        later.tick, later.at = 2, AT + 10
        site.publish(later)
        page.clock.run_for(30_000)
        assert asked == []
        page.evaluate(HIDE, False)
        expect(page.locator("#clock")).to_have_text("22:13:30")


def test_a_change_of_theme_redraws_in_its_colours(site, page):
    page.goto(site.url + "/")
    drawn(page, "depth")
    assert sum(count_colour(page, "depth", LIGHT)) > 100
    assert sum(count_colour(page, "depth", DARK)) == 0
    page.locator("#theme").click()
    page.wait_for_function("() => document.documentElement.dataset.theme === 'dark'")
    page.wait_for_function(f"() => ({COUNT_COLOUR})(['depth', '{DARK}']).some((count) => count)")
    assert sum(count_colour(page, "depth", LIGHT)) == 0


def test_a_chart_has_the_width_of_its_place(site, page):
    page.goto(site.url + "/topics/orders/billing")
    plot = drawn(page, "rates")
    for width in (1300, 375, 650):
        page.set_viewport_size({"width": width, "height": 900})
        page.wait_for_function(
            """() => [...document.querySelectorAll(".plot")].every(
                (place) => Math.abs(place.clientWidth - place.querySelector("canvas").clientWidth) <= 1)"""
        )
        assert page.evaluate("() => document.documentElement.scrollWidth <= innerWidth")
    assert plot.bounding_box()["width"] <= 650


def test_the_cursor_shows_the_values_of_its_time_in_all_charts(site, page):
    page.goto(site.url + "/topics/orders/billing")
    box = drawn(page, "depth").bounding_box()
    page.mouse.move(box["x"] + box["width"] * 0.3, box["y"] + box["height"] / 2)
    whens = page.locator("[data-when]")
    expect(whens.first).to_have_text(re.compile(r"\d\d:\d\d:\d\d"))
    assert len(set(whens.all_text_contents())) == 1
    page.mouse.move(5, 5)
    expect(whens.first).to_have_text("")


def test_a_single_point_is_seen(page, visiting):
    topic = make_topic(
        "t", [make_channel("t", "c", rates=Rates(5.0, 5.0), depth=3)], rates=Rates(5.0)
    )

    def fill(history, cluster):
        for at in (AT - 1800, AT - 900, AT):
            tick = copy.deepcopy(cluster)
            tick.at = at
            history.take(tick)

    with visiting(AdminPages(make_cluster([topic]), fill=fill)) as site:
        page.goto(site.url + "/topics/t/c")
        drawn(page, "depth")
        counts = count_colour(page, "depth", LIGHT)
        half, three = len(counts) // 2, len(counts) * 3 // 4
        assert sum(counts[half - 8 : half + 8]) > 0
        assert sum(counts[three - 8 : three + 8]) > 0
        assert sum(counts[half + 20 : three - 20]) == 0


def test_an_age_beyond_the_rings_is_said_to_be_a_minimum(page, visiting):
    topic = make_topic("t", [make_channel("t", "c", depth=7, message_count=7)])

    def fill(history, cluster):
        for ago_s in range(26 * 3600, -1, -600):
            tick = cluster if ago_s == 0 else copy.deepcopy(cluster)
            tick.at = AT - ago_s
            history.take(tick)

    with visiting(AdminPages(make_cluster([topic]), fill=fill)) as site:
        page.goto(site.url + "/topics/t/c")
        expect(page.locator("[data-text=oldest]")).to_have_text("≥ 1 d est.")
        page.goto(site.url + "/topics/t")
        oldest = page.locator("[data-table=channels] [data-key=c] [data-col=oldest]")
        expect(oldest).to_have_attribute("title", "at least")


def test_an_empty_history_says_so(page, visiting):
    with visiting(AdminPages(make_cluster([make_topic("t")]))) as site:
        page.goto(site.url + "/topics/t")
        expect(page.locator("[data-chart=rates] [data-none]")).to_be_visible()
        label = page.locator("[data-chart=rates] .plot").get_attribute("aria-label")
        assert label == "Published, last 1 h: In unknown."


def test_hostile_channel_names_are_text_in_charts(page, visiting):
    topic = make_topic("t", [make_channel("t", HOSTILE, depth=9, backend_depth=2)])
    with visiting(AdminPages(make_cluster([topic]), fill=fill_history)) as site:
        page.goto(site.url + "/topics/t")
        label = drawn(page, "depth").get_attribute("aria-label")
        assert re.search(re.escape(HOSTILE) + r" \d now", label)
        page.locator("[data-chart=depth]").get_by_text("As table").click()
        assert page.locator("[data-chart=depth] thead th").nth(1).text_content() == HOSTILE
        assert page.locator("main img").count() == 0
        page.goto(f"{site.url}/topics/t/{quote(HOSTILE, safe='')}")
        drawn(page, "depth")


def test_charts_work_below_a_base_path(page, visiting):
    with visiting(
        AdminPages(example_cluster(), "--base-path=/nsq/admin", fill=fill_history)
    ) as site:
        page.goto(site.url + "/")
        drawn(page, "rates")
        page.goto(site.url + "/topics/x%23ephemeral/c%23ephemeral")
        drawn(page, "rates")
        page.goto(site.url + "/topics/clicks/etl")
        drawn(page, "depth")
        assert sum(count_colour(page, "depth", LIGHT)) > 0


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
