"""Actions as somebody does them in a browser, at a living cluster of two nsqd of ours and one of Go's."""

import json
import re

import pytest
from playwright.sync_api import expect

from nsqfast.nsqadmin.actions.jobs import ITEMS_AT_ONCE
from nsqfast.nsqadmin.cluster.model import NodeState
from support.admin import LiveCluster, text_of
from support.admin_actions import Acting, depths, paused, publish, start_again
from support.admin_cluster import make_cluster, make_node, make_topic
from support.admin_pages import AdminPages
from support.lookup import topics
from support.web import stats
from support.wire import Client

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


def visit(admin, page):
    """visit(...)(PATH) opens it; its .dialog is the dialog of actions."""

    def go(path):
        page.goto(f"http://{text_of(admin.admin.http)}{path}")

    go.dialog = page.locator("#action")
    return go


@pytest.fixture
def go(admin, page):
    """Of the nsqadmin that all share."""
    return visit(admin, page)


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


def test_empty_counts_wants_the_name_and_leaves_out_what_is_not_chosen(cluster, page, go, name):
    publish(cluster, name, 7, 2, 3, channels=["billing", "other"])
    go(f"/topics/{name}/billing")
    open_menu(page, "More", "Empty channel billing…")
    expect(go.dialog.get_by_role("button", name="Empty billing: lose 12 messages")).to_be_disabled()
    expect(go.dialog.get_by_role("button", name="Cancel")).to_be_focused()
    go.dialog.get_by_label(re.compile(text_of(cluster.nsqds[0].http))).uncheck()
    button = go.dialog.get_by_role("button", name="Empty billing: lose 5 messages")
    field = go.dialog.get_by_label("Type the name")
    for wrong in ("billing", name, f"{name}/billin"):
        field.fill(wrong)
        expect(button).to_be_disabled()
    field.fill(f"{name}/billing")
    button.click()
    expect(go.dialog.get_by_role("heading")).to_have_text(
        f"Emptied channel billing of topic {name}"
    )
    assert states(go.dialog) == {text_of(node.http): "ok" for node in cluster.nsqds[1:]}
    assert depths(cluster, name, "billing") == [7, 0, 0]
    assert depths(cluster, name, "other") == [7, 2, 3]


def test_a_consumer_that_hangs_is_found_and_disconnected(cluster, page, go, name):
    with Client(cluster.nsqds[0].tcp) as stuck:
        stuck.sub(name, "billing", 1)
        stuck.pub(name, b"x")
        stuck.read_message()
        address = "{}:{}".format(*stuck.socket.getsockname())
        go(f"/topics/{name}/billing?tab=clients&sort=-held")
        row = page.locator("[data-table=clients] tbody tr")
        expect(row.locator("[data-col=held]")).to_have_text(re.compile(r"^\d+ s$"))
        row.locator("[data-actions] summary").click()
        page.get_by_role("button", name=f"Disconnect {address}…").click()
        expect(go.dialog.get_by_role("button", name="Cancel")).to_be_focused()
        go.dialog.get_by_role("button", name=f"Disconnect {address}").click()
        expect(toast(page)).to_have_text(re.compile(f"{address} is disconnected"))
        assert stuck.read_to_end() == b""
    # Rows do not move under the mouse.
    page.locator("[data-table=clients] [data-apply]").click()
    expect(row).to_have_count(0)


def test_total_failure_is_red_and_no_success(page, watch, visiting):
    """The only node that has the topic is down."""
    down = make_node(0, NodeState.DOWN)
    lonely = make_cluster([make_topic("lonely", nodes=[down.key])], [down])
    with visiting(AdminPages(lonely)) as site:
        page.goto(site.url + "/topics/lonely")
        page.locator(".actions").get_by_role("button", name="Pause").click()
        dialog = page.locator("#action")
        expect(dialog.locator("[role=status] [data-kind=crit]")).to_be_visible()
        assert list(states(dialog).values()) == ["failed"]
        expect(page.locator(".toast")).to_have_count(0)
    assert any("502" in fault for fault in watch.take_faults())


def test_pause_on_one_node_shows_in_badge_and_problems_and_is_undone(cluster, page, go, name):
    go(f"/topics/{name}/billing")
    badge = page.locator("[data-state=paused]")
    expect(badge).to_be_hidden()
    row = page.locator("[data-table=nodes] tbody tr").first
    node = row.get_attribute("data-key")
    row.locator("summary").click()
    row.get_by_role("button", name=f"Pause channel billing on {node}").click()
    expect(toast(page)).to_contain_text(f"Paused channel billing of topic {name} on 1 node")
    expect(badge).to_have_text("paused on 1 of 3")
    assert paused(cluster, name, "billing") == [text_of(one.http) == node for one in cluster.nsqds]
    expect(page.locator("[data-table=problems] td[data-col=rule]")).to_be_visible()
    toast(page).get_by_role("button", name="Undo").click()
    expect(badge).to_be_hidden()
    assert paused(cluster, name, "billing") == [False, False, False]


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


def pick_all(cluster, admin, page, go, prefix, count):
    """Topics of this prefix on each node, and the dialog that pauses all of them; its button."""
    names = [f"{prefix}-{number:02}" for number in range(count)]
    for name in names:
        cluster.make(name)
    for name in names:
        admin.wait_for_nodes(name, 3)
    go(f"/topics?q={prefix}-")
    page.get_by_label("Select all on this page").check()
    page.locator(".bulk").get_by_role("button", name=f"Pause {count} selected", exact=True).click()
    return go.dialog.get_by_role("button", name=f"Pause {count} topics")


@pytest.mark.soak
def test_a_long_set_shows_progress_and_stops(cluster, page, visiting):
    """A frozen node is waited for until it goes on, so the set is as long as the browser takes."""
    with visiting(cluster.admin("nsqfast", "--http-client-request-timeout=1h", OFTEN)) as server:
        admin = Acting(server)
        admin.wait_for_cluster(3)
        go = visit(admin, page)
        button = pick_all(cluster, admin, page, go, "slow", 40)
        with cluster.nsqds[0].frozen():
            button.click()
            expect(go.dialog.get_by_role("progressbar")).to_be_visible()
            with page.expect_response("**/stop") as stopped:
                go.dialog.get_by_role("button", name="Stop").click()
            assert stopped.value.ok
        said = f"{ITEMS_AT_ONCE} of 40 done, stopped before {40 - ITEMS_AT_ONCE}"
        expect(go.dialog.get_by_role("status")).to_contain_text(said)
        expect(go.dialog.get_by_role("heading")).to_have_text(f"Paused {ITEMS_AT_ONCE} topics")


@pytest.mark.soak
def test_what_failed_of_a_set_is_tried_again(cluster, admin, page, go):
    button = pick_all(cluster, admin, page, go, "again", 3)
    names = [f"again-{number:02}" for number in range(3)]
    cluster.nsqds[1].kill()
    button.click()
    retry = go.dialog.get_by_role("button", name="Retry failed")
    expect(retry).to_be_visible()
    start_again(cluster, 1)
    for name in names:
        cluster.make(name)  # which the kill may have come before
    assert [paused(cluster, name) for name in names] == [[True, False, True]] * 3
    retry.click()
    expect(toast(page)).to_contain_text("Paused 3 topics")
    assert [paused(cluster, name) for name in names] == [[True] * 3] * 3


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


def test_a_row_has_a_menu_of_what_can_be_done_with_it(cluster, admin, page, go, name):
    """In the table of topics, and at /lookup of what only nsqlookupd knows."""
    row = page.locator(f"tr[data-key='{name}']")
    more = [f"Publish to topic {name}…", f"Create channel in topic {name}…"]
    delete = f"Delete topic {name}…"

    def choose(item, *items):
        row.locator("summary").click()
        expect(row.locator(".items button")).to_have_text([*more, *items])
        row.get_by_role("button", name=item, exact=True).click()

    go(f"/topics?q={name}")
    for is_paused, verb, state in ((True, "Pause", "all"), (False, "Unpause", "none")):
        choose(f"{verb} topic {name}", f"{verb} topic {name}", f"Empty topic {name}…", delete)
        expect(toast(page)).to_contain_text(f"{verb}d topic {name} on 3 nodes")
        assert paused(cluster, name) == [is_paused] * 3
        expect(row).to_have_attribute("data-paused", state)
    admin.act("delete", name, confirm=name, tell_lookupds=False)
    admin.wait_for_nodes(name, 0)
    go("/lookup")
    choose(delete, delete)
    button = go.dialog.get_by_role("button", name=f"Delete {name}")
    expect(button).to_be_disabled()
    assert all(name in topics(one.http) for one in cluster.lookupds)
    go.dialog.get_by_label("Type the name").fill(name)
    button.click()
    expect(go.dialog.get_by_role("heading")).to_have_text(f"Deleted topic {name}")
    assert not any(name in topics(one.http) for one in cluster.lookupds)


@pytest.mark.soak
def test_keyboard_alone_opens_empty_cancels_and_comes_back(page, go, name):
    go(f"/topics/{name}/billing")
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
def test_publish_keeps_the_text_when_it_fails_and_sends_files(
    cluster, page, go, name, watch, tmp_path
):
    go(f"/topics/{name}")
    page.get_by_role("button", name="Publish…").click()
    dialog = page.get_by_role("dialog")
    body = dialog.get_by_label("Body")
    send = dialog.get_by_role("button", name=f"Publish to {name}")
    expect(body).to_be_focused()
    body.fill("a message <b>")
    dialog.get_by_label("Defer, ms").fill("999999999")
    send.click()
    expect(dialog.get_by_role("alert")).to_have_text("Not sent: 400 INVALID_DEFER")
    assert any("400" in fault for fault in watch.take_faults())
    page.keyboard.press("Escape")
    page.get_by_role("button", name="Publish…").click()
    expect(body).to_have_value("a message <b>")
    dialog.get_by_label("Defer, ms").fill("0")
    dialog.get_by_label("Copies").fill("3")
    dialog.get_by_label("Node").select_option(text_of(cluster.nsqds[1].http))
    send.click()
    expect(toast(page)).to_contain_text("Published 3 messages")
    assert depths(cluster, name, "other") == [0, 3, 0]
    path = tmp_path / "body"
    path.write_bytes(bytes(range(256)))
    go(f"/topics/{name}")
    page.get_by_role("button", name="Publish…").click()
    dialog.get_by_label("Node").select_option(text_of(cluster.nsqds[0].http))
    page.get_by_label("or a file instead").set_input_files(path)
    send.click()
    expect(toast(page)).to_contain_text("Published 1 message")
    (topic,) = stats(cluster.nsqds[0].http, topic=name)["topics"]
    assert topic["message_bytes"] == 256  # as text it would be more


def test_names_and_errors_with_markup_stay_text(page, go, name):
    def hostile(*names, **others):
        return dict.fromkeys(names, HOSTILE) | others

    numbers = dict.fromkeys(("messages", "memory", "disk", "in_flight", "deferred", "clients"), 1)
    node = hostile("node", "hostname", "error", is_chosen=True, **numbers)
    effect = hostile("topic", "channel", "title", "button", "confirm", id="x" * 10, action="empty")
    effect |= {"loses": True, "nodes": [node], "lines": [HOSTILE], "warnings": [HOSTILE]}
    effect |= {"lookupds": [HOSTILE]}
    results = [hostile("node", "text", kind="nsqd", ok=False)]
    item = hostile("topic", "channel", outcome="partial", ok=0, results=results)
    job = hostile("title", id="x" * 10, action="empty", outcome="partial", items=[item])
    job |= {"total": 1, "done": 1, "is_running": False, "is_stopped": False}
    job |= {"can_retry": True, "can_undo": False}
    page.route("**/ui/effect", lambda route: route.fulfill(body=json.dumps(effect)))
    page.route("**/ui/actions", lambda route: route.fulfill(body=json.dumps(job)))
    go(f"/topics/{name}")
    open_menu(page, "More", f"Empty topic {name}…")
    expect(go.dialog.get_by_role("heading")).to_have_text(HOSTILE)
    go.dialog.get_by_label("Type the name").fill(HOSTILE)
    go.dialog.get_by_role("button", name=HOSTILE).click()
    expect(go.dialog.locator(".results th[scope=row]")).to_have_text(HOSTILE)
    expect(page.locator("img, dialog script")).to_have_count(0)


def test_an_open_page_follows_what_is_published_and_a_node_that_dies(cluster, page, go, name):
    go("/")
    page.evaluate("() => { window.sameDocument = true }")
    expect(page.locator("[data-text=nodes]")).to_have_text("3 of 3")
    publish(cluster, name, 20_321, 0, 0, channels=["billing"])
    worst = page.locator(f"[data-table=worst] [data-key='{name}/billing']")
    expect(worst.locator("[data-col=depth]")).to_have_text("20,321")
    banner = page.get_by_role("alert").locator("li:visible")
    expect(banner).to_have_count(0)
    dead = cluster.nsqds[1]
    dead.kill()
    words = rf"nsqd \S+ \({re.escape(text_of(dead.http))}\) has been down since .*[Cc]onnect"
    expect(banner).to_have_text([re.compile(words)])
    expect(page.locator("[data-text=nodes]")).to_have_text("2 of 3")
    start_again(cluster, 1)
    expect(banner).to_have_count(0)
    expect(page.locator("[data-text=nodes]")).to_have_text("3 of 3")
    assert page.evaluate("() => window.sameDocument")
