"""The pages over HTTP: searched, sorted and cut in the server; addresses of Go's nsqadmin; what is not there."""

import json
import re
import urllib.error
import urllib.request
from urllib.parse import quote, urlencode

import pytest

from support.admin_cluster import (
    AT,
    example_cluster,
    example_entries,
    example_problems,
    make_cluster,
    make_topic,
    many_topics,
)
from support.admin_pages import AdminPages

SEED = 20
SORTS = ("name", "depth", "in", "out", "oldest", "in_flight", "channels", "consumers")


@pytest.fixture(scope="module")
def many():
    with AdminPages(many_topics(5000, SEED)) as pages:
        yield pages


@pytest.fixture(scope="module")
def site():
    with AdminPages(
        example_cluster(), problems=example_problems(), entries=example_entries()
    ) as pages:
        yield pages


def get(url, **headers):
    """Status, headers, text."""
    request = urllib.request.Request(url, headers={"Accept": "text/html"} | headers)
    try:
        with urllib.request.urlopen(request, timeout=20) as answer:
            return answer.status, answer.headers, answer.read().decode()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.headers, error.read().decode()


def live(site, view, since=""):
    status, headers, text = get(f"{site.url}/ui/live?{urlencode({'view': view, 'since': since})}")
    return status, headers, json.loads(text) if status == 200 else None


def export(site, view, table, form="json"):
    query = urlencode({"view": view, "table": table, "format": form})
    status, _, text = get(f"{site.url}/ui/export?{query}")
    assert status == 200
    return json.loads(text) if form == "json" else text


def keys(answer, table):
    return [row["key"] for row in answer["tables"][table]["rows"]]


@pytest.mark.parametrize(
    "path",
    [
        "/",
        "/topics",
        "/topics/orders",
        "/topics/orders/billing",
        "/nodes",
        "/nodes/10.0.0.1:4151",
        "/counter",
        "/lookup",
        "/problems",
        "/audit",
        "/topics/x%23ephemeral/c%23ephemeral",
    ],
)
def test_addresses_of_nsqadmin_have_their_page(site, path):
    status, headers, text = get(site.url + path)
    assert status == 200
    assert headers["Content-Type"] == "text/html; charset=utf-8"
    assert text.count("<h1") == 1
    assert "style=" not in text
    assert re.search(r"<script(?![^>]*(src=|application/json))", text) is None


def test_each_page_shows_100_and_the_last_one_the_rest(many):
    _, _, answer = live(many, "/topics?page=50")
    assert keys(answer, "topics") == [f"topic-{number:05d}" for number in range(4900, 5000)]
    _, _, beyond = live(many, "/topics?page=51")
    assert keys(beyond, "topics") == keys(answer, "topics")


def test_search_and_sort_go_over_all_topics(many):
    _, _, answer = live(many, "/topics?q=-012&sort=-depth")
    rows = answer["tables"]["topics"]["rows"]
    assert len(rows) == 100
    assert {row["key"][:9] for row in rows} == {"topic-012"}
    assert answer["texts"]["topics.total"] == "100 of 5,000"


@pytest.mark.parametrize("column", SORTS)
@pytest.mark.parametrize("sign", ["", "-"])
def test_every_column_sorts_and_the_unknown_comes_last(many, column, sign):
    values = [row[column] for row in export(many, f"/topics?sort={sign}{column}", "topics")]
    known = [value for value in values if value is not None]
    assert len(values) == 5000
    assert known == sorted(known, reverse=bool(sign))
    assert values[len(known) :] == [None] * (len(values) - len(known))


def test_an_address_gives_the_same_view_to_everybody(many):
    path = "/topics?" + urlencode({"q": "depth>100 no:consumers", "sort": "-oldest", "page": 2})
    first, second = get(many.url + path), get(many.url + path, Cookie="other=1")
    assert first[2] == second[2]
    assert 'value="depth&gt;100 no:consumers"' in first[2]


@pytest.mark.parametrize(
    ("term", "holds"),
    [
        ("no:consumers", lambda row: "no consumers" in row["state"]),
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


@pytest.mark.parametrize(
    ("term", "names"),
    [
        ("is:paused", ["clicks", "orders"]),
        ("is:ephemeral", ["x#ephemeral"]),
        ("is:inactive", ["old"]),
        ("is:growing", ["clicks", "orders"]),
    ],
)
def test_states_are_searched_for(site, term, names):
    _, _, answer = live(site, f"/topics?q={term}")
    assert keys(answer, "topics") == names


@pytest.mark.parametrize(
    "query",
    ["page=-1", "page=999999999", "page=x", "sort=nothing", "q=" + "x" * 5000, "%ff=%fe", "=&&="],
)
def test_senseless_queries_show_the_page(many, query):
    status, _, text = get(f"{many.url}/topics?{query}")
    assert status == 200
    assert "topic-00000" in text or "topic-04999" in text


@pytest.mark.parametrize(
    ("path", "near"),
    [
        ("/topics/order", "/topics/orders"),
        ("/topics/orders/biling", "/topics/orders/billing"),
        ("/topics/orders/zzz", "/topics/orders"),
        ("/nodes/10.0.0.1:4150", "/nodes/10.0.0.1:4151"),
    ],
)
def test_what_is_not_there_is_404_with_names_that_are_like_it(site, path, near):
    status, _, text = get(site.url + path)
    assert status == 404
    assert f'href="{near}"' in text
    assert "UPSTREAM_ERROR" not in text


def test_an_inactive_topic_has_a_friendly_page(site):
    status, _, text = get(site.url + "/topics/old")
    assert status == 200
    assert "No nsqd has this topic now" in text


def test_an_unknown_address_is_an_error_page_for_browsers(site):
    status, headers, text = get(site.url + "/nope")
    assert (status, headers.get_content_type()) == (404, "text/html")
    assert "To the overview" in text


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


@pytest.mark.parametrize(
    "view",
    ["", "/nope", "/login", "//evil/", "/topics/none", "/nodes/none:1", "/ui/live", "http://x/"],
)
def test_live_knows_only_pages_that_are_there(site, view):
    if view == "http://x/":
        # The host is no part of what is asked for.
        assert live(site, view)[0] == 200
        return
    assert live(site, view)[0] == (200 if view == "//evil/" else 404)


@pytest.mark.parametrize("since", ["x", "-1", "9" * 40, "1.5", ""])
def test_a_senseless_since_gets_the_whole_view(site, since):
    assert live(site, "/topics", since)[0] == 200


def test_a_view_is_made_once_per_tick_for_all_who_look(monkeypatch):
    from nsqfast.nsqadmin.web import views

    made = []
    make = views.make

    async def counted(page, request, last):
        made.append((page.name, request.cluster.tick))
        return await make(page, request, last)

    monkeypatch.setattr(views, "make", counted)
    with AdminPages(make_cluster([make_topic("t")])) as site:
        for _ in range(5):
            live(site, "/topics?sort=name&q=t")
            live(site, "/topics?q=t&sort=name")
        assert made == [("topics", 1)]
        site.publish(make_cluster([make_topic("t")], tick=2))
        live(site, "/topics?sort=name&q=t")
        assert made == [("topics", 1), ("topics", 2)]


def test_addresses_of_views_that_are_kept_are_bounded(site, monkeypatch):
    from nsqfast.nsqadmin.web import views

    monkeypatch.setattr(views, "ENTRIES_MAX", 5)
    with AdminPages(make_cluster([make_topic("t")])) as fresh:
        app = []
        kept = views.Views.get

        async def noted(self, *words):
            answer = await kept(self, *words)
            app.append(len(self._entries))
            return answer

        monkeypatch.setattr(views.Views, "get", noted)
        for number in range(12):
            live(fresh, f"/topics?q={number}")
    assert max(app) == 5


def test_somebody_who_looks_is_told_to_the_poller(site):
    before = site.poller.times_seen
    get(site.url + "/")
    live(site, "/")
    assert site.poller.times_seen == before + 2


def test_theme_cookie_is_rendered_and_the_way_back_stays_here(site):
    assert 'data-theme="dark"' in get(site.url + "/", Cookie="nsqadmin_theme=dark")[2]
    assert 'data-theme="auto"' in get(site.url + "/", Cookie="nsqadmin_theme=pink")[2]

    class Stay(urllib.request.HTTPRedirectHandler):
        def redirect_request(self, *_):
            return None

    opener = urllib.request.build_opener(Stay)
    for then, expected in [
        ("/topics?q=a", "/topics?q=a"),
        ("//evil.example/", "/"),
        ("https://evil.example/", "/"),
        ("/\\evil.example/", "/"),
        ("", "/"),
    ]:
        with pytest.raises(urllib.error.HTTPError) as caught:
            opener.open(f"{site.url}/ui/theme?to=dark&next={quote(then, safe='')}", timeout=10)
        with caught.value as answer:
            assert answer.headers["Location"] == expected
            assert "nsqadmin_theme=dark" in answer.headers["Set-Cookie"]
