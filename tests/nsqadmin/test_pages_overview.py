"""/, /topics/T, /topics/T/C and /counter from a made-up cluster: what they say in which state."""

import urllib.error
import urllib.request
from urllib.parse import quote

import pytest

from nsqfast.nsqadmin.live.model import NodeState, Rates
from nsqfast.nsqadmin.web.banner import LINES_MAX
from support.admin_cluster import (
    AT,
    example_cluster,
    example_problems,
    make_channel,
    make_cluster,
    make_lookupd,
    make_node,
    make_topic,
)
from support.admin_history import fill_history
from support.admin_pages import AdminPages
from support.page_html import PageHtml

HOSTILE = "\"><script>alert(1)</script><img src=x onerror='alert(2)'>"


def text_of(site, path):
    with urllib.request.urlopen(site.url + path, timeout=20) as answer:
        return answer.read().decode()


def page(site, path):
    return PageHtml(text_of(site, path))


def banner(html):
    return [html.texts[f"banner.{n}"] for n in range(LINES_MAX) if not html.hidden[f"banner.{n}"]]


@pytest.fixture(scope="module")
def site():
    with AdminPages(example_cluster(), problems=example_problems(), fill=fill_history) as pages:
        yield pages


def test_the_overview_has_problems_six_totals_and_the_worst_backlogs(site):
    html = page(site, "/")
    tiles = {
        name: html.texts[name] for name in ("in", "out", "depth", "in_flight", "requeue", "nodes")
    }
    assert tiles == {
        "in": "1,320/s",
        "out": "1,060/s",
        "depth": "275,219",
        "in_flight": "40",
        "requeue": "0/s",
        "nodes": "1 of 3",
    }
    # The one that somebody muted is not among them.
    assert list(html.rows["problems"]) == ["p0", "p1", "p3"]
    assert html.rows["problems"]["p0"]["text"] == "184,201 messages wait, no consumer for 14 min"
    worst = html.rows["worst"]
    assert list(worst)[:3] == ["orders/billing", "clicks/etl", "orders/archive"]
    assert [row["depth"] for row in worst.values()] == ["184,201", "91,000", "12", "1"]
    first = next(iter(worst.values()))
    assert (first["growth"], first["oldest"]) == ("+12/s", "14 min")


def test_nodes_in_trouble_come_first(site):
    html = page(site, "/")
    assert list(html.rows["nodes"]) == ["10.0.0.2:4151", "10.0.0.3:4151", "10.0.0.1:4151"]
    assert html.rows["nodes"]["10.0.0.3:4151"]["state"].startswith("down")


def test_the_banner_names_node_cause_and_since(site):
    assert banner(page(site, "/")) == [
        "nsqlookupd 10.0.1.3:4161 has not answered since 22:03:20: connection refused",
        "nsqd w3 (10.0.0.3:4151) has been down since 21:13:20: connection refused",
    ]


def test_the_banner_counts_what_it_has_no_room_for():
    nodes = [make_node(number, NodeState.DOWN, error=HOSTILE) for number in range(9)]
    with AdminPages(make_cluster(nodes=nodes)) as site:
        text = text_of(site, "/topics")
        lines = banner(PageHtml(text))
        assert len(lines) == LINES_MAX
        assert lines[-1] == "5 more do not answer; see Nodes"
        assert HOSTILE in lines[0]
        assert "<script>alert" not in text


def test_all_nsqlookupd_down_are_said_before_all_else():
    lookupds = [make_lookupd(number, is_up=False) for number in range(2)]
    with AdminPages(make_cluster([make_topic("t")], lookupds=lookupds)) as site:
        html = page(site, "/")
        assert (
            banner(html)[0] == "No nsqlookupd answers: the list of nodes is the last that was known"
        )
        assert html.hidden["banner"] is False
        assert page(site, "/topics/t").hidden["banner"] is False


def test_nothing_wrong_shows_no_banner():
    with AdminPages(make_cluster([make_topic("t")])) as site:
        html = page(site, "/")
        assert (html.hidden["banner"], html.hidden["problems.empty"]) == (True, False)
        assert html.texts["nodes"] == "1 of 1"


def test_only_the_ten_deepest_channels_are_the_worst():
    topics = [
        make_topic(f"t{number:04d}", [make_channel(f"t{number:04d}", "c", depth=number)])
        for number in range(1200)
    ]
    with AdminPages(make_cluster(topics)) as site:
        rows = page(site, "/").rows["worst"]
        assert [row["depth"] for row in rows.values()] == [f"{n:,}" for n in range(1199, 1189, -1)]


def test_a_topic_says_its_state_in_one_line(site):
    html = page(site, "/topics/orders")
    assert html.texts["state-line"] == (
        "In 80/s · depth 184,213 · 3 channels · 4 consumers · 3 nodes · 88 M messages in all"
        " · oldest 14 min (est.)"
    )
    assert html.hidden["problems-shown"] is False
    assert list(html.rows["problems"]) == ["p0"]
    channels = html.rows["channels"]
    assert {name: row["depth"] for name, row in channels.items()} == {
        "billing": "184,201",
        "archive": "12",
        "tail#ephemeral": "0",
    }
    assert channels["billing"]["state"] == "no consumersgrowing"
    assert html.links["tail#ephemeral"] == "/topics/orders/tail%23ephemeral"
    nodes = html.rows["nodes"]
    assert nodes["10.0.0.3:4151"]["state"] == "down"
    assert nodes["10.0.0.1:4151"]["messages"] == "88,000,000"


def test_a_paused_topic_and_its_tombstone_are_named(site):
    html = page(site, "/topics/clicks")
    assert html.hidden["paused-shown"] is False
    chips = [each.text for each in html.elements if each.attributes.get("data-state") == "paused"]
    assert chips == ["paused"]
    assert html.rows["nodes"]["10.0.0.1:4151"]["state"] == "uppausedtombstoned"


def test_an_inactive_topic_lists_the_channels_that_nsqlookupd_knows(site):
    html = page(site, "/topics/old")
    assert html.hidden["inactive-shown"] is False
    assert list(html.rows["channels"]) == ["gone"]
    assert "nodes" not in html.rows
    assert "inactive" in [each.text for each in page(site, "/topics/old/gone").elements]


@pytest.mark.parametrize(
    ("changes", "word"),
    [
        ({"depth": 5}, "no consumers"),
        ({}, "no consumers"),
        ({"client_count": 1, "rates": Rates(2.0, 2.0)}, "consuming"),
        ({"client_count": 1, "depth": 9, "slope": 3.0}, "growing"),
        ({"client_count": 1}, "idle"),
        ({"client_count": 1, "depth": 9}, "waiting"),
        ({"client_count": 1, "nodes": ()}, "inactive"),
    ],
)
def test_a_channel_has_one_word_for_how_it_is(changes, word):
    with AdminPages(make_cluster([make_topic("t", [make_channel("t", "c", **changes)])])) as site:
        html = page(site, "/topics/t/c")
        main = next(each for each in html.elements if each.attributes.get("data-state") == "main")
        assert main.text == word


def test_the_tiles_of_a_channel(site):
    html = page(site, "/topics/orders/archive")
    assert html.texts["state-line"] == (
        "In 80/s, out 80/s · 3 consumers on 3 nodes · 0 messages in all"
    )
    assert (html.texts["depth"], html.texts["in_flight"], html.texts["oldest"]) == ("12", "40", "–")
    paused = [each.text for each in html.elements if each.attributes.get("data-state") == "paused"]
    assert paused == ["paused on 1 of 3"]


def test_tabs_keep_the_range_and_leave_search_and_sort(site):
    html = page(site, "/topics/orders/billing?range=6h&tab=clients&q=x&sort=-rdy")
    tabs = [
        each.attributes["href"]
        for each in html.elements
        if each.tag == "a" and "tab=" in each.attributes.get("href", "")
    ]
    assert "?tab=nodes&range=6h" in tabs
    assert "?tab=clients&range=6h" in tabs
    assert "clients.total" in html.texts


@pytest.mark.parametrize("path", ["?tab=clients", "/messages", "/deferred"])
def test_tabs_say_how_much_is_behind_them(site, path):
    html = page(site, f"/topics/orders/archive{path}")
    assert [html.texts[f"tab.{name}"] for name in ("nodes", "clients", "deferred")] == [
        "3",
        "3",
        "0",
    ]


def test_an_unknown_tab_is_the_first_one(site):
    assert "10.0.0.1:4151" in page(site, "/topics/orders/billing?tab=%3Cscript%3E").rows["nodes"]


def test_hostile_names_and_causes_are_text():
    topic = make_topic(HOSTILE, [make_channel(HOSTILE, HOSTILE, depth=3)])
    with AdminPages(make_cluster([topic])) as site:
        name = quote(HOSTILE, safe="")
        for path in ("/", f"/topics/{name}", f"/topics/{name}/{name}", f"/topics/x{name}"):
            try:
                text = text_of(site, path)
            except urllib.error.HTTPError as error:
                with error:
                    assert error.code == 404
                    text = error.read().decode()
            html = PageHtml(text)
            assert "<script>alert" not in text
            assert "<img" not in text
            assert HOSTILE in "".join(html.elements[0].pieces), path


def test_the_counter_adds_up_all_channels():
    channels = [
        make_channel("t", "a", message_count=100, rates=Rates(3.0)),
        make_channel("t", "b", message_count=20, rates=Rates(4.0)),
    ]
    with AdminPages(make_cluster([make_topic("t", channels, message_count=7)])) as site:
        html = page(site, "/counter")
        assert (html.texts["count"], html.texts["rate"]) == ("120", "7/s")
        site.publish(make_cluster(tick=2, at=AT + 2))
        assert page(site, "/counter").texts["rate"] == "–"
