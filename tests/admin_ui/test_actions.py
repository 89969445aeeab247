"""Actions as somebody does them in a browser, at a living cluster of two nsqd of ours and one of Go's."""

import json
import re
from urllib.parse import quote

import pytest
from playwright.sync_api import expect

from support.admin import LiveCluster, text_of, wait_until
from support.admin_actions import (
    Acting,
    depths,
    paused,
    publish,
    start_again,
    topics_of,
)
from support.lookup import lookup, topics
from support.web import stats

pytestmark = [pytest.mark.go, pytest.mark.slow]

OFTEN = "--poll-interval=300ms"  # so that nobody waits for it
HOSTILE = '"><img src=x onerror=alert(1)><script>alert(2)</script>'


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    with LiveCluster(tmp_path_factory.mktemp("actions")) as made:
        yield made


@pytest.fixture(scope="module")
def admin(cluster):
    with cluster.admin("nsqfast", "--http-client-request-timeout=2s", OFTEN) as server:
        acting = Acting(server)
        acting.wait_for_cluster(3)
        yield acting


@pytest.fixture
def go(admin, page):
    """go(PATH) opens it; go.dialog is the dialog of actions."""

    def visit(path):
        page.goto(f"http://{text_of(admin.admin.http)}{path}")

    visit.dialog = page.locator("#action")
    return visit


@pytest.fixture
def name(request, cluster, admin):
    """A topic of the test's own with two channels, known to nsqadmin."""
    topic = request.node.name[5:][:54]
    cluster.make(topic, "billing", "other")
    admin.wait_for_nodes(topic, 3)
    return topic


def open_menu(page, label, item):
    """An entry of a menu in the head of the page."""
    page.locator(".actions summary", has_text=label).click()
    page.get_by_role("button", name=item, exact=True).click()


def toast(page):
    return page.locator(".toast").last


def states(dialog):
    """Of the result table: what stands behind each node."""
    rows = dialog.locator(".results tbody tr")
    return {
        row.locator("th").inner_text().split()[0]: row.locator(".chip").inner_text()
        for row in rows.all()
    }


def test_empty_counts_wants_the_name_and_shows_each_node(cluster, page, go, name):
    publish(cluster, name, 7, 2, 3, channels=["billing", "other"])
    go(f"/topics/{name}/billing")
    open_menu(page, "More", "Empty channel billing…")
    button = go.dialog.get_by_role("button", name="Empty billing: lose 12 messages")
    expect(button).to_be_disabled()
    expect(go.dialog.get_by_role("button", name="Cancel")).to_be_focused()
    expect(go.dialog.get_by_text("Not touched: other channels")).to_be_visible()
    field = go.dialog.get_by_label("Type the name")
    for wrong in ("billing", name, f"{name}/billin"):
        field.fill(wrong)
        expect(button).to_be_disabled()
    field.fill(f"{name}/billing")
    expect(button).to_be_enabled()
    button.click()
    expect(go.dialog.get_by_role("heading")).to_have_text(
        f"Emptied channel billing of topic {name}"
    )
    assert states(go.dialog) == {text_of(node.http): "ok" for node in cluster.nsqds}
    assert depths(cluster, name, "billing") == [0, 0, 0]
    assert depths(cluster, name, "other") == [7, 2, 3]


def test_a_node_can_be_left_out_and_the_loss_follows(cluster, page, go, name):
    publish(cluster, name, 7, 2, 3, channels=["billing"])
    go(f"/topics/{name}/billing")
    open_menu(page, "More", "Empty channel billing…")
    go.dialog.get_by_label(re.compile(text_of(cluster.nsqds[0].http))).uncheck()
    go.dialog.get_by_label("Type the name").fill(f"{name}/billing")
    go.dialog.get_by_role("button", name="Empty billing: lose 5 messages").click()
    expect(go.dialog.locator(".results tbody tr")).to_have_count(2)
    assert depths(cluster, name, "billing") == [7, 0, 0]


@pytest.mark.soak
def test_delete_with_a_node_down_then_retry(cluster, page, go, watch, name):
    go(f"/topics/{name}")
    down = cluster.nsqds[1]
    down.stop()
    open_menu(page, "More", f"Delete topic {name}…")
    expect(go.dialog.get_by_text("Not counted: connection refused")).to_be_visible()
    go.dialog.get_by_label("Type the name").fill(name)
    go.dialog.get_by_role("button", name=f"Delete {name}: lose at least 0 messages").click()
    expect(go.dialog.get_by_text("done on some nodes only")).to_be_visible()
    lookupds = {text_of(one.http): "ok" for one in cluster.lookupds}
    up = {text_of(cluster.nsqds[number].http): "ok" for number in (0, 2)}
    assert states(go.dialog) == lookupds | up | {text_of(down.http): "failed"}
    expect(go.dialog.get_by_text("connection refused")).to_be_visible()
    start_again(cluster, 1)
    assert name in topics_of(cluster)[1]
    go.dialog.get_by_role("button", name="Retry failed").click()
    expect(go.dialog.get_by_role("heading")).to_have_text(f"Deleted topic {name}")
    assert all(name not in names for names in topics_of(cluster))
    assert not any(name in topics(one.http) for one in cluster.lookupds)
    go.dialog.get_by_role("button", name="Close").click()
    # The page of what is gone is left; until then it may have asked for news of it.
    expect(page).to_have_url(re.compile("/topics$"))
    assert all("404" in fault for fault in watch.take_faults())


@pytest.mark.soak
def test_total_failure_is_red_and_no_success(cluster, page, go, watch, tmp_path, visiting):
    with LiveCluster(tmp_path, ("nsqfast",), ("nsqfast",)) as small:
        small.make("lonely", "c")
        with visiting(small.admin("nsqfast", OFTEN)) as server:
            Acting(server).wait_for_nodes("lonely", 1)
            page.goto(f"http://{text_of(server.http)}/topics/lonely")
            small.nsqds[0].kill()
            open_menu(page, "Pause", "Pause topic lonely")
            dialog = page.locator("#action")
            expect(dialog.locator("[role=status] [data-kind=crit]")).to_have_text(
                "failed: no node did it"
            )
            assert list(states(dialog).values()) == ["failed"]
            expect(page.locator(".toast")).to_have_count(0)
    assert any("502" in fault for fault in watch.take_faults())


def marks(admin, key):
    """Texts of the vertical lines in the charts of KEY."""
    status, found = admin.ask("GET", f"/ui/series?key={key}&columns=memory_depth&range=15m")
    return [mark["text"] for mark in found["marks"]] if status == 200 else found


def test_pause_on_one_node_shows_in_badge_problems_and_charts_and_is_undone(
    cluster, admin, page, go, name
):
    go(f"/topics/{name}/billing")
    badge = page.locator("[data-state=paused]")
    expect(badge).to_be_hidden()
    row = page.locator("[data-table=nodes] tbody tr").first
    node = row.get_attribute("data-key")
    number = [text_of(one.http) for one in cluster.nsqds].index(node)
    row.locator("summary").click()
    row.get_by_role("button", name=f"Pause channel billing on {node}").click()
    expect(toast(page)).to_contain_text(f"Paused channel billing of topic {name} on 1 node")
    expect(badge).to_have_text("paused on 1 of 3")
    assert paused(cluster, name, "billing") == [one == number for one in range(3)]
    problem = page.locator("[data-table=problems] td[data-col=rule]")
    expect(problem.filter(has_text="Paused on some nodes")).to_be_visible()
    key = quote(f"channel/{name}/billing", safe="")
    wait_until(
        lambda: "Paused channel billing" in marks(admin, key), "the mark in the channel's charts"
    )
    drawn = re.compile(r" Events: .*\d\d:\d\d:\d\d Paused channel billing\.$")
    # With the next point of the charts, if a poll saw the pause before the action had ended.
    plot = page.locator("[data-chart=depth] .plot")
    expect(plot).to_have_attribute("aria-label", drawn, timeout=15_000)
    toast(page).get_by_role("button", name="Undo").click()
    expect(badge).to_be_hidden()
    assert paused(cluster, name, "billing") == [False, False, False]


def test_pause_everywhere_is_one_click(cluster, page, go, name):
    go("/topics?q=" + name)
    page.get_by_label(f"Actions for {name}").click()
    page.get_by_role("button", name=f"Pause topic {name}", exact=True).click()
    expect(toast(page)).to_contain_text("on 3 nodes")
    assert paused(cluster, name) == [True, True, True]
    expect(page.locator(f"tr[data-key='{name}'] .chip").first).to_have_text("paused")
    page.get_by_label(f"Actions for {name}").click()
    menu = page.locator(f"tr[data-key='{name}'] .items")
    expect(menu.get_by_role("button", name=f"Unpause topic {name}")).to_be_visible()
    expect(menu.get_by_role("button", name=f"Pause topic {name}", exact=True)).to_have_count(0)


def ask_to_pause_all_4(page):
    page.get_by_label("Select b-0-few").check()
    bar = page.locator(".bulk")
    expect(bar).to_contain_text("1 selected")
    page.get_by_role("button", name="Select all 4 matching").click()
    expect(bar).to_contain_text("All 4 matching")
    bar.get_by_role("button", name="Pause all 4 matching", exact=True).click()
    expect(page.locator("#action").get_by_role("heading")).to_have_text("Pause 4 topics")


@pytest.mark.soak
def test_all_matching_then_a_changed_set_asks_again(cluster, admin, page, go, watch):
    for number in range(18):
        cluster.make(f"b-{number}" + ("-few" if number % 5 == 0 else ""), on=[number % 3])
    admin.wait_for_nodes("b-17", 1)
    go("/topics?q=b-+few")
    ask_to_pause_all_4(page)
    listed = go.dialog.locator("tbody th").all_inner_texts()
    assert listed == ["b-0-few", "b-10-few", "b-15-few", "b-5-few"]
    go.dialog.get_by_role("button", name="Pause 4 topics").click()
    expect(toast(page)).to_contain_text("Paused 4 topics")
    assert paused_topics(cluster) == set(listed)
    toast(page).get_by_role("button", name="Undo").click()
    expect(toast(page)).to_contain_text("Undone")
    assert paused_topics(cluster) == set()
    ask_to_pause_all_4(page)
    cluster.make("b-99-few", on=[0])
    go.dialog.get_by_role("button", name="Pause 4 topics").click()
    expect(go.dialog.get_by_role("alert")).to_contain_text("The set has changed")
    assert any("409" in fault for fault in watch.take_faults())
    assert paused_topics(cluster) == set()
    go.dialog.get_by_role("button", name="Pause 5 topics").click()
    expect(toast(page)).to_contain_text("Paused 5 topics")
    expect(go.dialog).to_be_hidden()
    assert paused_topics(cluster) == {*listed, "b-99-few"}
    toast(page).get_by_role("button", name="Undo").click()
    expect(toast(page)).to_contain_text("Undone")


def paused_topics(cluster):
    """Those of b-* that any node has paused."""
    return {
        topic["topic_name"]
        for node in cluster.nsqds
        for topic in stats(node.http)["topics"]
        if topic["paused"] and topic["topic_name"].startswith("b-")
    }


def test_a_set_is_deleted_when_its_number_is_typed(cluster, admin, page, go):
    for number in range(3):
        cluster.make(f"gone-{number}", on=[number])
    admin.wait_for_nodes("gone-2", 1)
    go("/topics?q=gone-")
    page.get_by_label("Select all on this page").check()
    page.locator(".bulk").get_by_role("button", name="Delete… 3 selected").click()
    button = go.dialog.get_by_role("button", name="Delete 3 topics: lose 0 messages")
    expect(button).to_be_disabled()
    expect(go.dialog.get_by_role("button", name="Cancel")).to_be_focused()
    go.dialog.get_by_label("Type the number").fill("3")
    button.click()
    expect(toast(page)).to_contain_text("Deleted 3 topics")
    assert not any(name.startswith("gone-") for names in topics_of(cluster) for name in names)


@pytest.mark.soak
def test_a_long_set_shows_progress_and_stops(cluster, admin, page, go):
    names = [f"slow-{number:02}" for number in range(40)]
    for name in names:
        cluster.make(name)
    admin.wait_for_nodes(names[-1], 3)
    go("/topics?q=slow-")
    page.get_by_label("Select all on this page").check()
    page.locator(".bulk").get_by_role("button", name="Pause 40 selected", exact=True).click()
    with cluster.nsqds[0].frozen():
        go.dialog.get_by_role("button", name="Pause 40 topics").click()
        expect(go.dialog.get_by_role("progressbar")).to_be_visible()
        go.dialog.get_by_role("button", name="Stop").click()
        expect(go.dialog.get_by_text("stopped before")).to_be_visible()
    go.dialog.get_by_role("button", name="Retry failed").click()
    expect(toast(page)).to_contain_text("Paused")


def test_lookup_delete_asks(cluster, admin, page, go):
    cluster.make("forgotten", "c", on=[0])
    Acting(admin.admin).act("delete", "forgotten", confirm="forgotten", tell_lookupds=False)
    admin.wait_for_nodes("forgotten", 0)
    go("/lookup")
    row = page.locator("tr[data-key=forgotten]")
    row.locator("summary").click()
    assert row.locator(".items button").all_inner_texts() == [
        "Publish to topic forgotten…",
        "Create channel in topic forgotten…",
        "Delete topic forgotten…",
    ]
    row.get_by_role("button", name="Delete topic forgotten…").click()
    expect(go.dialog.get_by_text("Only nsqlookupd knows it")).to_be_visible()
    button = go.dialog.get_by_role("button", name="Delete forgotten")
    expect(button).to_be_disabled()
    assert all("forgotten" in topics(one.http) for one in cluster.lookupds)
    go.dialog.get_by_label("Type the name").fill("forgotten")
    button.click()
    expect(go.dialog.get_by_role("heading")).to_have_text("Deleted topic forgotten")
    assert not any("forgotten" in topics(one.http) for one in cluster.lookupds)


def test_tombstone_names_node_and_topic(cluster, page, go, name):
    node = text_of(cluster.nsqds[2].http)
    go(f"/nodes/{node}?q={name}")
    row = page.locator(f"tr[data-key='{name}']")
    row.locator("summary").click()
    row.get_by_role("button", name=f"Tombstone topic {name} on {node}…").click()
    expect(go.dialog.get_by_role("heading")).to_have_text(f"Tombstone topic {name} on node {node}")
    expect(go.dialog.get_by_text("keeps publishing the topic to this node")).to_be_visible()
    expect(go.dialog.get_by_role("button", name="Cancel")).to_be_focused()
    go.dialog.get_by_role("button", name=f"Tombstone {name} on {node}: lose 0 messages").click()
    expect(go.dialog.get_by_text("done", exact=True)).to_be_visible()
    assert [name in names for names in topics_of(cluster)] == [True, True, False]
    assert len(lookup(cluster.lookupds[0].http, name)["producers"]) == 2


def test_create_topic_and_channel_on_a_node(cluster, page, go):
    go("/lookup")
    page.get_by_role("button", name="Create topic or channel…").click()
    expect(go.dialog.get_by_label("Topic")).to_be_focused()
    go.dialog.get_by_label("Topic").fill("made-here")
    go.dialog.get_by_label("Channel").fill("first")
    go.dialog.get_by_label(re.compile(text_of(cluster.nsqds[0].http))).check()
    go.dialog.get_by_role("button", name="Create channel first").click()
    expect(go.dialog.get_by_role("heading")).to_have_text(
        "Created channel first of topic made-here"
    )
    assert depths(cluster, "made-here", "first") == [0, -1, -1]


@pytest.mark.soak
def test_keyboard_alone_opens_empty_cancels_and_comes_back(page, go, name):
    go(f"/topics?q={name}")
    page.keyboard.press("j")
    expect(page.get_by_role("link", name=name)).to_be_focused()
    page.keyboard.press("Enter")
    expect(page.get_by_role("heading", level=1)).to_have_text(name)
    page.keyboard.press("j")
    page.keyboard.press("Enter")
    expect(page.get_by_role("heading", level=1)).to_have_text("billing")
    more = page.locator(".actions summary", has_text="More")
    while not more.evaluate("(element) => element === document.activeElement"):
        page.keyboard.press("Tab")
    page.keyboard.press("Enter")
    page.keyboard.press("Tab")
    expect(page.get_by_role("button", name="Empty channel billing…")).to_be_focused()
    page.keyboard.press("Enter")
    expect(page.locator("#action").get_by_role("button", name="Cancel")).to_be_focused()
    page.keyboard.press("Enter")
    expect(page.locator("#action")).to_be_hidden()
    expect(more).to_be_focused()


@pytest.mark.soak
def test_publish_keeps_the_text_when_it_fails(cluster, page, go, name, watch):
    go(f"/topics/{name}")
    page.get_by_role("button", name="Publish…").click()
    dialog = page.get_by_role("dialog")
    body = dialog.get_by_label("Body")
    expect(body).to_be_focused()
    body.fill("a message <b>")
    dialog.get_by_label("Defer, ms").fill("999999999")
    dialog.get_by_role("button", name=f"Publish to {name}").click()
    expect(dialog.get_by_role("alert")).to_have_text("Not sent: 400 INVALID_DEFER")
    assert any("400" in fault for fault in watch.take_faults())
    page.keyboard.press("Escape")
    page.get_by_role("button", name="Publish…").click()
    expect(body).to_have_value("a message <b>")
    dialog.get_by_label("Defer, ms").fill("0")
    dialog.get_by_label("Copies").fill("3")
    dialog.get_by_label("Node").select_option(text_of(cluster.nsqds[1].http))
    dialog.get_by_role("button", name=f"Publish to {name}").click()
    expect(toast(page)).to_contain_text("Published 3 messages")
    assert depths(cluster, name, "other") == [0, 3, 0]


def test_publish_sends_a_file_byte_by_byte(cluster, page, go, name, tmp_path):
    path = tmp_path / "body"
    path.write_bytes(bytes(range(256)))
    go(f"/topics/{name}")
    page.get_by_role("button", name="Publish…").click()
    page.get_by_label("or a file instead").set_input_files(path)
    page.get_by_role("button", name=f"Publish to {name}").click()
    expect(toast(page)).to_contain_text("Published 1 message")


def test_names_and_errors_with_markup_stay_text(page, go, name):
    node = {
        "node": HOSTILE,
        "hostname": HOSTILE,
        **dict.fromkeys(("messages", "memory", "disk", "in_flight", "deferred", "clients"), 1),
        "is_chosen": True,
        "error": HOSTILE,
    }
    effect = {
        "id": "x" * 10,
        "action": "empty",
        "topic": HOSTILE,
        "channel": HOSTILE,
        "title": HOSTILE,
        "button": HOSTILE,
        "lines": [HOSTILE],
        "confirm": HOSTILE,
        "loses": True,
        "nodes": [node],
        "lookupds": [HOSTILE],
        "warnings": [HOSTILE],
    }
    result = {"node": HOSTILE, "kind": "nsqd", "ok": False, "text": HOSTILE}
    job = {
        "id": "x" * 10,
        "action": "empty",
        "title": HOSTILE,
        "total": 1,
        "done": 1,
        "is_running": False,
        "is_stopped": False,
        "outcome": "partial",
        "can_retry": True,
        "can_undo": False,
        "items": [
            {
                "topic": HOSTILE,
                "channel": HOSTILE,
                "outcome": "partial",
                "ok": 0,
                "results": [result],
            }
        ],
    }
    page.route("**/ui/effect", lambda route: route.fulfill(body=json.dumps(effect)))
    page.route("**/ui/actions", lambda route: route.fulfill(body=json.dumps(job)))
    go(f"/topics/{name}")
    open_menu(page, "More", f"Empty topic {name}…")
    expect(go.dialog.get_by_role("heading")).to_have_text(HOSTILE)
    go.dialog.get_by_label("Type the name").fill(HOSTILE)
    go.dialog.get_by_role("button", name=HOSTILE).click()
    expect(go.dialog.locator(".results th[scope=row]")).to_have_text(HOSTILE)
    expect(page.locator("img, dialog script")).to_have_count(0)


@pytest.mark.soak
def test_viewer_has_no_action_in_the_page(cluster, watch, name, visiting):
    with visiting(cluster.admin("nsqfast", "--admin-user=ana", OFTEN)) as server:
        Acting(server, {"X-Forwarded-User": "ana"}).wait_for_nodes(name, 3)
        page = watch.page(extra_http_headers={"X-Forwarded-User": "bob"})
        for path in ("/topics", f"/topics/{name}", f"/topics/{name}/billing", "/lookup", "/nodes"):
            page.goto(f"http://{text_of(server.http)}{path}")
            assert page.locator("[data-action], [data-actions], #action, [name=pick]").count() == 0
            assert "actions.js" not in page.content()
