"""The pages over HTTP from made-up clusters: what they say; searched, sorted and cut; what is not there."""

import re
from urllib.parse import quote, urlencode

import pytest
from msgspec.structs import replace

from nsqfast.nsqadmin.cluster.model import EMPTY, NodeState, Rates
from nsqfast.nsqadmin.cluster.probes import Consumers, NodeAnswer
from nsqfast.nsqadmin.web import texts
from nsqfast.nsqadmin.web import view as views
from nsqfast.nsqadmin.web.view import BANNER_LINES_MAX
from support.admin_cluster import (
    AT,
    example_cluster,
    make_channel,
    make_cluster,
    make_entry,
    make_lookupd,
    make_node,
    make_topic,
    many_topics,
)
from support.admin_pages import AdminPages, StillConsumers, example_pages
from support.admin_ui_pages import PAGES

SEED = 20
COUNT = 1250
SORTS = ("name", "depth", "in", "growth", "oldest", "in_flight", "channels", "consumers")
HOSTILE = "\"><script>alert(1)</script><img src=x onerror='alert(2)'>"


@pytest.fixture(scope="module")
def many():
    with AdminPages(many_topics(COUNT, SEED)) as pages:
        yield pages


@pytest.fixture(scope="module")
def site():
    with example_pages() as pages:
        yield pages


def live(site, view, since=""):
    answer = site.get(f"/ui/live?{urlencode({'view': view, 'since': since})}")
    return answer.status, answer.headers, answer.json() if answer.status == 200 else None


def export(site, view, table):
    query = urlencode({"view": view, "table": table, "format": "json"})
    return site.get(f"/ui/export?{query}").json()


def keys(answer, table):
    return [row["key"] for row in answer["tables"][table]["rows"]]


# ---- what they say


def test_each_page_is_one_without_scripts_or_styles_in_it(site):
    for path in (*PAGES.values(), "/topics/old/gone", "/topics/x%23ephemeral/c%23ephemeral"):
        answer = site.get(path)
        assert answer.status == (404 if path == PAGES["not-found"] else 200), path
        assert answer.headers["Content-Type"] == "text/html; charset=utf-8"
        assert "style=" not in answer.text
        assert re.search(r"<script(?![^>]*(src=|application/json))", answer.text) is None


def test_the_overview_has_problems_totals_the_worst_backlogs_and_nodes_in_trouble(site):
    html = site.page("/")
    tiles = ("in", "growth", "depth", "in_flight", "requeue", "nodes")
    shown = [html.texts[name] for name in tiles]
    assert shown == ["1,320/s", "+352/s", "275,219", "40", "0/s", "1 of 3"]
    # The one that somebody muted is not among them.
    assert list(html.rows["problems"]) == ["p0", "p1", "p3"]
    worst = html.rows["worst"]
    assert list(worst)[:3] == ["orders/billing", "clicks/etl", "orders/archive"]
    assert [row["depth"] for row in worst.values()] == ["184,201", "91,000", "12", "1"]
    first = worst["orders/billing"]
    assert (first["growth"], first["oldest"]) == ("+12/s", "14 min")
    assert list(html.rows["nodes"]) == ["10.0.0.2:4151", "10.0.0.3:4151", "10.0.0.1:4151"]
    assert html.rows["nodes"]["10.0.0.3:4151"]["state"].startswith("down")


def banner(html):
    return [
        html.texts[f"banner.{n}"] for n in range(BANNER_LINES_MAX) if not html.hidden[f"banner.{n}"]
    ]


def test_the_banner_names_who_does_not_answer_and_counts_what_it_has_no_room_for(site):
    assert banner(site.page("/")) == [
        "nsqlookupd 10.0.1.3:4161 has not answered since 22:03:20: connection refused",
        "nsqd w3 (10.0.0.3:4151) has been down since 21:13:20: connection refused",
    ]
    html = site.page("/")  # a problem of a node that is down is critical
    assert (html.hidden["banner-errors"], html.hidden["banner-warnings"]) == (False, True)
    nodes = [make_node(number, NodeState.DOWN, error=HOSTILE) for number in range(9)]
    lookupds = [make_lookupd(number, is_up=False) for number in range(2)]
    with AdminPages(make_cluster(nodes=nodes, lookupds=lookupds)) as dead:
        lines = banner(dead.page("/topics"))
        assert len(lines) == BANNER_LINES_MAX
        assert "the list of nodes is the last that was known" in lines[0]
        assert HOSTILE in lines[3]
        assert lines[-1] == "8 more do not answer; see Nodes"
        assert dead.page("/").hidden["banner-errors"] is True  # no rule has judged it yet
    with AdminPages(make_cluster([make_topic("t")])) as well:
        html = well.page("/")
        assert (html.hidden["banner"], html.hidden["problems.empty"]) == (True, False)


def test_a_topic_has_its_channels_nodes_and_problems(site):
    html = site.page("/topics/orders")
    assert list(html.rows["problems"]) == ["p0"]
    channels = html.rows["channels"]
    assert {name: (row["depth"], row["state"]) for name, row in channels.items()} == {
        "billing": ("184,201", "no consumers"),
        "archive": ("12", "paused on 1 of 3"),
        "tail#ephemeral": ("0", "ephemeral"),
    }
    assert html.links["tail#ephemeral"] == "/topics/orders/tail%23ephemeral"
    assert html.rows["nodes"]["10.0.0.3:4151"]["state"] == "down"
    assert html.rows["nodes"]["10.0.0.1:4151"]["messages"] == "88,000,000"
    html = site.page("/topics/clicks")
    assert html.hidden["paused-shown"] is False
    assert html.rows["nodes"]["10.0.0.1:4151"]["state"] == "uppausedtombstoned"
    html = site.page("/topics/old")  # which nsqlookupd alone knows
    assert html.hidden["inactive-shown"] is False
    assert list(html.rows["channels"]) == ["gone"]
    assert "nodes" not in html.rows


def test_the_depth_of_a_topic_is_its_own_and_that_of_its_channels():
    channels = [make_channel("t", "c", depth=3), make_channel("t", "d", depth=4)]
    counted = make_topic("t", channels, depth=20, message_count=9)
    topic = replace(counted, message_bytes=3 << 30)
    with AdminPages(make_cluster([topic], [make_node()])) as pages:
        for path in ("/topics", "/nodes/10.0.0.1:4151"):
            assert pages.page(path).rows["topics"]["t"]["depth"] == "27", path
        assert pages.page("/nodes/10.0.0.1:4151").rows["topics"]["t"]["messages"] == "9"
        text = pages.get("/topics/t").text
        assert "depth 27" in text
        assert "3 GiB" in text


def test_a_client_is_connected_for_so_long(site):
    rows = site.page("/topics/orders/archive?tab=clients").rows["clients"]
    assert {row["connected"] for row in rows.values()} == {"1 h"}


@pytest.mark.parametrize("tab", ["nodes", "clients"])
def test_a_channel_names_the_nodes_whose_clients_are_older_than_its_numbers(site, monkeypatch, tab):
    get = StillConsumers.get
    nodes = [make_node(number) for number in range(4)]
    late_s = dict(zip((node.key for node in nodes), (0, 7, 7, -1), strict=True))

    async def get_late(self, cluster, channel):
        found = (await get(self, cluster, channel)).answers
        answers = {
            key: NodeAnswer(AT - late_s[key], answer.stats, answer.consumers)
            for key, answer in found.items()
        }
        return Consumers(answers)

    assert site.page(f"/topics/orders/billing?tab={tab}").hidden["older-shown"]
    monkeypatch.setattr(StillConsumers, "get", get_late)
    topic = make_topic("t", [make_channel("t", "c", nodes=tuple(late_s))])
    with AdminPages(make_cluster([topic], nodes)) as pages:
        html = pages.page(f"/topics/t/c?tab={tab}")
    then = texts.clock(AT - 7)
    older = f"of {nodes[1].key} at {then}, of {nodes[2].key} at {then}"
    said = f"Clients and latencies are older than the other numbers: {older}"
    assert (html.texts["older"], html.hidden["older-shown"]) == (said, False)


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
        html = site.page("/topics/t/c")
        main = next(each for each in html.elements if each.attributes.get("data-state") == "main")
        assert main.text == word


def test_the_counter_adds_up_all_channels():
    channels = [
        make_channel("t", "a", message_count=100, rates=Rates(3.0)),
        make_channel("t", "b", message_count=20, rates=Rates(4.0)),
    ]
    with AdminPages(make_cluster([make_topic("t", channels, message_count=7)])) as site:
        html = site.page("/counter")
        assert (html.texts["count"], html.texts["rate"]) == ("120", "7/s")


def test_the_theme_is_rendered_and_the_way_back_from_its_choice_stays_here(site):
    for cookie, theme in (("dark", "dark"), ("pink", "auto")):
        text = site.get("/", Cookie=f"nsqadmin_theme={cookie}").text
        assert f'data-theme="{theme}"' in text
    # What is an address of ours, test_access_login asks.
    for then, expected in (("/topics?q=a", "/topics?q=a"), ("//evil.example/", "/")):
        answer = site.get(f"/ui/theme?to=dark&next={quote(then, safe='')}")
        assert answer.headers["Location"] == expected
        assert "nsqadmin_theme=dark" in answer.headers["Set-Cookie"]


# ---- searched, sorted and cut


def test_search_sort_and_pages_go_over_all_topics(many):
    _, _, last = live(many, "/topics?page=13")
    assert keys(last, "topics") == [f"topic-{number:05d}" for number in range(1200, COUNT)]
    _, _, beyond = live(many, "/topics?page=14")
    assert keys(beyond, "topics") == keys(last, "topics")
    _, _, answer = live(many, "/topics?q=-011&sort=-depth")
    assert {key[:9] for key in keys(answer, "topics")} == {"topic-011"}
    assert answer["texts"]["topics.total"] == "100 of 1,250"
    for query, sort, link in (("depth", "ascending", "-depth"), ("-depth", "descending", "depth")):
        html = many.page(f"/topics?sort={query}")
        sorts = [e.attributes["aria-sort"] for e in html.elements if "aria-sort" in e.attributes]
        assert (html.links["Depth"], sorts.count(sort)) == (f"?sort={link}", 1)


@pytest.mark.parametrize("column", SORTS)
def test_every_column_sorts_and_the_unknown_comes_last(many, column):
    for sign in ("", "-"):
        values = [row[column] for row in export(many, f"/topics?sort={sign}{column}", "topics")]
        known = [value for value in values if value is not None]
        assert len(values) == COUNT
        assert known == sorted(known, reverse=bool(sign))
        assert values[len(known) :] == [None] * (len(values) - len(known))


@pytest.mark.parametrize(
    ("term", "holds"),
    [
        ("consumers=0", lambda row: row["consumers"] == 0),
        ("depth>20000", lambda row: row["depth"] > 20_000),
        ("rate<5", lambda row: row["in"] < 5),
        ("channels=0", lambda row: row["channels"] == 0),
    ],
)
def test_qualifiers_find_what_they_say(many, term, holds):
    everything = export(many, "/topics", "topics")
    found = export(many, f"/topics?{urlencode({'q': term})}", "topics")
    assert found == [row for row in everything if holds(row)]
    assert 0 < len(found) < len(everything)


def test_states_are_searched_for(site):
    for term, names in (
        ("is:paused", ["orders", "clicks"]),  # the one with the worse problem is first
        ("no:consumers", ["orders", "n" * 64]),
        ("is:ephemeral", ["x#ephemeral"]),
        ("is:inactive", ["old"]),
        ("is:growing", ["orders", "clicks"]),
    ):
        assert keys(live(site, f"/topics?q={term}")[2], "topics") == names


def test_senseless_queries_show_the_page(many):
    for query in ("page=-1", "page=99999999", "page=x", "sort=no", "q=" + "x" * 5000, "%ff=%fe"):
        text = many.get(f"/topics?{query}").text
        assert "topic-00000" in text or "topic-01249" in text


# ---- what is not there


def test_what_is_not_there_is_404_with_names_that_are_like_it(site):
    for path, near in (
        ("/topics/order", "/topics/orders"),
        ("/topics/orders/biling", "/topics/orders/billing"),
        ("/topics/orders/tail", "/topics/orders/tail%23ephemeral"),
        ("/topics/orders/zzz", "/topics/orders"),
        ("/nodes/10.0.0.1:4150", "/nodes/10.0.0.1:4151"),
    ):
        answer = site.get(path)
        assert answer.status == 404
        assert f'href="{near}"' in answer.text
        assert b"UPSTREAM_ERROR" not in answer.body


# ---- news


def test_live_knows_only_pages_that_are_there(site):
    for view in ("", "/nope", "/login", "/topics/none", "/nodes/none:1", "/ui/live"):
        assert live(site, view)[0] == 404, view
    # The host is no part of what is asked for.
    assert [live(site, view)[0] for view in ("//evil/", "http://x/")] == [200, 200]
    for since in ("x", "-1", "9" * 40, "1.5", ""):
        assert live(site, "/topics", since)[0] == 200


def test_live_answers_204_until_the_page_changes():
    with AdminPages(make_cluster([make_topic("t", depth=1)])) as site:
        status, headers, answer = live(site, "/topics")
        assert (status, answer["tick"]) == (200, 1)
        assert 0 < answer["next_ms"] <= 2100
        assert live(site, "/topics", 1)[0] == 204
        site.publish(make_cluster([make_topic("t", depth=1)], tick=2, at=AT + 2))
        status, headers, _ = live(site, "/topics", 1)
        assert (status, headers["Nsqadmin-At"]) == (204, f"{AT + 2:.3f}")
        site.publish(make_cluster([make_topic("t", depth=2)], tick=3, at=AT + 4))
        assert live(site, "/topics", 1)[0] == 200
        assert live(site, "/topics", 3)[0] == 204


def test_somebody_who_looks_is_told_to_the_poller(site):
    before = site.poller.times_seen
    site.get("/")
    live(site, "/")
    assert site.poller.times_seen == before + 2


def test_a_view_is_made_once_per_tick_for_all_who_look_and_few_are_kept(monkeypatch):
    made, kept = [], []
    make, get = views.make_view, views.Views.get

    async def counted(page, request, last):
        made.append((page.name, request.cluster.tick))
        return await make(page, request, last)

    async def noted(self, *words):
        answer = await get(self, *words)
        kept.append(len(self._entries))
        return answer

    monkeypatch.setattr(views, "make_view", counted)
    monkeypatch.setattr(views.Views, "get", noted)
    monkeypatch.setattr(views, "VIEWS_MAX", 5)
    with AdminPages(make_cluster([make_topic("t")])) as site:
        for _ in range(5):
            live(site, "/topics?sort=name&q=t")
            live(site, "/topics?q=t&sort=name")
        assert made == [("topics", 1)]
        site.publish(make_cluster([make_topic("t")], tick=2))
        live(site, "/topics?sort=name&q=t")
        assert made == [("topics", 1), ("topics", 2)]
        for number in range(12):
            live(site, f"/topics?q={number}")
    assert max(kept) == 5


def test_it_is_ready_when_the_cluster_was_asked():
    for cluster, status in ((EMPTY, 503), (example_cluster(), 200)):
        with AdminPages(cluster) as site:
            assert site.get("/readyz").status == status
            assert site.get("/livez").status == 200


def test_the_audit_shows_what_was_lost_and_where_and_leaves_out_what_changed_nothing():
    lost = {"messages": 12, "nodes": 2, "nodes_unknown": 0, "messages_lost": 7, "reason": HOSTILE}
    entries = [
        make_entry(0, action="empty_channel", effect=lost),
        make_entry(1, action="delete_topic", effect=lost | {"nodes_unknown": 1}, results=[]),
        make_entry(2, action="login", results=[], outcome="ok"),
        make_entry(3, action="peek", effect={"state": "ready", "filter": HOSTILE}, outcome="ok"),
        make_entry(4, action="POST /ui/actions", results=[], outcome="refused"),
        make_entry(5, action="drain_node", effect={"deadline": "30m"}, results=[], outcome="ok"),
        make_entry(6, action="empty_topic", effect=lost | {"messages_lost": 0}, outcome="failed"),
    ]
    with AdminPages(make_cluster(), entries=entries) as site:
        everything = list(site.page("/audit").rows["audit"].values())
        assert len(everything) == len(entries)
        assert everything[3]["effect"] == f"state ready, filter {HOSTILE}, 1 of 2 done, 1 failed"
        changes = site.page("/audit").links["changes only"]
        shown = list(site.page("/audit" + changes).rows["audit"].values())
        exported = export(site, "/audit?q=is:change", "audit")
    assert [(row["action"], row["effect"]) for row in shown] == [
        ("empty_topic", "0 messages lost, 1 of 2 done, 1 failed"),
        ("drain_node", "deadline 30m"),
        ("delete_topic", "at least 7 messages lost"),
        ("empty_channel", "7 messages lost, 1 of 2 done, 1 failed"),
    ]
    assert [row["action"] for row in exported] == [row["action"] for row in shown]
