"""The first page and the channel page of a living cluster: numbers that move, a node that dies, rates that are true."""

import re
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest
from playwright.sync_api import expect

from support.admin import LiveCluster, start_nsqadmin, text_of, wait_until
from support.admin_actions import start_again
from support.server import Server, start_nsqd
from support.simulated_cluster import SimulatedCluster
from support.web import get, post
from support.wire import Client

POLL_S = 0.5
STEP_S = 10  # of charts of an hour
QUICK = f"--poll-interval={int(POLL_S * 1000)}ms"
SHOWN = re.compile(r"Out [\d.,]+/s now, highest (\d+)/s at")
TICK_MS = 2000  # the shortest interval of nsqadmin when nothing else is said

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    with LiveCluster(tmp_path_factory.mktemp("overview")) as running:
        yield running


def url_of(admin):
    return f"http://{text_of(admin.http)}"


@pytest.mark.usefixtures("working")
def test_publishing_changes_the_totals_of_an_open_page(cluster, page, visiting):
    cluster.make("orders", "billing")
    with visiting(cluster.admin("nsqfast")) as admin:
        page.goto(url_of(admin) + "/")
        page.evaluate("() => { window.sameDocument = true }")
        expect(page.locator("[data-text=nodes]")).to_have_text("3 of 3")
        expect(page.locator("[data-text=depth]")).to_have_text("0")
        clock = page.locator("#clock").text_content()
        cluster.publish("orders", 321)
        expect(page.locator("[data-text=depth]")).to_have_text("321", timeout=2 * TICK_MS + 1000)
        expect(page.locator("[data-table=worst] [data-key='orders/billing']")).to_be_visible()
        assert page.locator("#clock").text_content() != clock
        assert page.evaluate("() => window.sameDocument")


@pytest.mark.soak
@pytest.mark.usefixtures("working")
def test_a_node_that_dies_is_named_and_its_chart_has_a_gap(cluster, page, visiting):
    cluster.make("orders", "billing")
    dead = cluster.nsqds[1]
    key = text_of(dead.http)
    with visiting(cluster.admin("nsqfast", QUICK)) as admin:
        page.goto(url_of(admin) + "/")
        expect(page.locator("[data-text=nodes]")).to_have_text("3 of 3")
        banner = page.get_by_role("alert").locator("li:visible")
        expect(banner).to_have_count(0)
        began = time.time()
        dead.kill()
        expect(banner).to_have_count(1, timeout=10_000)
        assert time.time() - began < 10
        words = rf"nsqd \S+ \({re.escape(key)}\) has been down since \d\d:\d\d:\d\d: .*[Cc]onnect"
        expect(banner).to_have_text(re.compile(words))
        expect(page.locator("[data-text=nodes]")).to_have_text("2 of 3")
        # A whole step of history passes without an answer.
        wait_until(lambda: has_gap(admin, key), "a gap in the chart", 25)
        page.goto(f"{url_of(admin)}/nodes/{key}")
        chart = page.locator("[data-chart=clients]")
        expect(chart.locator("[data-value]")).to_have_text("–")
        expect(chart.locator(".plot")).to_have_attribute(
            "aria-label", re.compile("Clients unknown now, highest")
        )
        page.goto(url_of(admin) + "/")
        start_again(cluster, 1)
        expect(banner).to_have_count(0, timeout=15_000)
        expect(page.locator("[data-text=nodes]")).to_have_text("3 of 3")
        found = node_points(admin, key)
        assert None in found
        assert found[-1] == 0


def node_points(admin, key):
    target = f"/ui/series?key=node/{key}&columns=clients&range=15m"
    answer = get(admin.http, target).json()
    known = [at for at, value in enumerate(answer["series"][0]["clients"]) if value is not None]
    return answer["series"][0]["clients"][known[0] :] if known else []


def has_gap(admin, key):
    # The last point is that of a step which is not over.
    return None in node_points(admin, key)[:-1]


def consume(server, finished, stop):
    """Finishes 200 a second and notes when."""
    with Client(server.tcp) as consumer:
        consumer.sub("orders", "billing", 5)
        while not stop.is_set():
            consumer.fin(consumer.read_message())
            finished.append(time.time())
            stop.wait(0.005)


def out_points(admin):
    answer = get(admin.http, "/ui/series?key=channel/orders/billing&columns=out_s&range=15m").json()
    return answer["times"], answer["series"][0]["out_s"]


def whole_steps(admin, finished):
    """(begin, out_s) of the steps within which the consumer was at work all the time."""
    times, values = out_points(admin)
    if not finished:
        return []
    begins = [(at - STEP_S, value) for at, value in zip(times[:-1], values, strict=False)]
    return [each for each in begins if each[0] > finished[0] + 1 and each[1] is not None]


class Working(NamedTuple):
    """A consumer is at work, while a message waits in another topic."""

    folder: Path
    nsqd: Server
    admin: Server
    published: float  # unix time of the message that waits
    finished: list[float]  # unix times
    stop: Callable[[], None]  # the consumer


@pytest.fixture(scope="module")
def working(tmp_path_factory):
    """The first tests ask for it, too: the step of the charts that others need goes by meanwhile."""
    folder = tmp_path_factory.mktemp("working")
    with (
        start_nsqd("nsqfast", folder) as nsqd,
        start_nsqadmin("nsqfast", QUICK, nsqds=[nsqd]) as admin,
    ):
        for topic, channel in (("orders", "billing"), ("slow", "stopped")):
            post(nsqd.http, f"/topic/create?topic={topic}")
            post(nsqd.http, f"/channel/create?topic={topic}&channel={channel}")
        post(nsqd.http, "/mpub?topic=orders", b"\n".join([b"x"] * 40_000))
        finished, is_over = [], threading.Event()
        worker = threading.Thread(target=consume, args=(nsqd, finished, is_over))

        def stop():
            is_over.set()
            worker.join()

        worker.start()
        try:
            wait_until(lambda: "slow" in get(admin.http, "/topics").body.decode(), "a tick")
            post(nsqd.http, "/pub?topic=slow", b"x")
            yield Working(folder, nsqd, admin, time.time(), finished, stop)
        finally:
            stop()


class Worked(NamedTuple):
    """What became of a whole step."""

    admin: Server
    rate: float  # messages a second that the consumer finished
    out_s: float  # what the chart has of the same step


@pytest.fixture(scope="module")
def worked(working):
    """The consumer has stopped."""
    admin, finished = working.admin, working.finished
    wait_until(lambda: whole_steps(admin, finished) != [], "a whole step", 30)
    start, out_s = whole_steps(admin, finished)[0]
    working.stop()
    rate = sum(start <= at < start + STEP_S for at in finished) / STEP_S
    return Worked(admin, rate, out_s)


@pytest.mark.soak
def test_out_is_what_consumers_finish(worked, page):
    assert worked.rate > 20
    assert abs(worked.out_s - worked.rate) <= 0.05 * worked.rate
    page.goto(url_of(worked.admin) + "/topics/orders/billing")
    plot = page.locator("[data-chart=rates] .plot")
    expect(plot).to_have_attribute("aria-label", SHOWN)
    highest = int(SHOWN.search(plot.get_attribute("aria-label"))[1])
    assert highest >= round(worked.out_s)


AGE = re.compile(r"^(?:≥ )?(\d+) (min|s) est\.$")


def test_the_oldest_age_is_that_of_what_waits(working, page):
    page.goto(url_of(working.admin) + "/topics/slow/stopped")
    oldest = page.locator("[data-text=oldest]")
    expect(oldest).to_have_text(AGE)
    number, unit = AGE.match(oldest.text_content()).groups()
    unit_s = {"min": 60, "s": 1}[unit]
    truth = time.time() - working.published
    assert abs(int(number) * unit_s - truth) <= STEP_S + POLL_S + unit_s


@pytest.mark.soak
def test_neither_an_empty_nor_a_restart_is_a_spike(working, worked, page):
    admin, nsqd = worked.admin, working.nsqd
    page.goto(url_of(admin) + "/topics/orders/billing")
    depth = page.locator("[data-text=depth]")
    expect(depth).not_to_have_text("0")
    emptied = post(admin.http, "/api/topics/orders/billing", b'{"action":"empty"}')
    assert emptied.status == 200
    expect(depth).to_have_text("0")
    # So that it begins anew with a depth of its own.
    post(nsqd.http, "/mpub?topic=orders", b"\n".join([b"x"] * 9000))
    expect(depth).to_have_text("9,000")
    nsqd.stop()
    flags = [f"--tcp-address={text_of(nsqd.tcp)}", f"--http-address={text_of(nsqd.http)}"]
    with start_nsqd("nsqfast", working.folder, *flags):
        plot = page.locator("[data-chart=rates] .plot")
        expect(plot).to_have_attribute("aria-label", re.compile("restarted"), timeout=15_000)
        expect(depth).to_have_text("9,000")
        end = time.time()
        wait_until(lambda: out_points(admin)[0][-2] > end, "the step of the restart", 25)
        peak = max(value for value in out_points(admin)[1] if value is not None)
        assert peak < 2 * worked.rate
        page.reload()
        expect(plot).to_have_attribute("aria-label", SHOWN)
        assert int(SHOWN.search(plot.get_attribute("aria-label"))[1]) < 2 * worked.rate


@pytest.mark.soak
@pytest.mark.timeout(120)
def test_the_first_page_of_a_large_cluster_is_there_within_a_second(page, visiting):
    with SimulatedCluster(nodes=100, topics=500) as large:
        flags = [f"--lookupd-http-address={address}" for address in large.lookupds]
        with visiting(start_nsqadmin("nsqfast", *flags)) as admin:
            wait_until(lambda: "100 of 100" in get(admin.http, "/").body.decode(), "all nodes", 60)
            durations = []
            for _ in range(3):
                began = time.monotonic()
                page.goto(url_of(admin) + "/")
                plot = page.locator("[data-chart=rates] .plot")
                expect(plot).to_have_attribute("aria-label", re.compile(", last 1 h: "))
                durations.append(time.monotonic() - began)
            print("seconds to the first page with charts:", durations)
            assert min(durations) < 1.0
            assert page.locator("[data-table=problems]").is_visible()
            assert page.locator(".tiles > div").count() == 6
            assert page.locator("canvas").count() == 2
