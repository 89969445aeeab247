"""/ui/series: points of charts as JSON and as files; what is not known is null, never 0."""

import csv
import io
import json
import random
import urllib.error
import urllib.request
from urllib.parse import quote, urlencode

import pytest

from nsqfast.nsqadmin.charts.plan import (
    COLUMNS,
    DASHES,
    LINES_MAX,
    Chart,
    Line,
    format_key,
    make_plan,
    parse_key,
)
from nsqfast.nsqadmin.live.series import Mark
from nsqfast.nsqadmin.web.query import Query
from support.admin_cluster import AT, example_cluster, make_cluster, make_topic
from support.admin_history import GAP, POINTS, STEP_S, fill_history
from support.admin_pages import AdminPages

SEED = 4


@pytest.fixture(scope="module")
def site():
    with AdminPages(example_cluster(), fill=fill_history) as pages:
        yield pages


def get(url):
    """Status, headers, text."""
    try:
        with urllib.request.urlopen(url, timeout=20) as answer:
            return answer.status, answer.headers, answer.read().decode()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.headers, error.read().decode()


def ask(site, *keys, **query):
    pairs = [*(("key", key) for key in keys), *query.items()]
    status, headers, text = get(f"{site.url}/ui/series?{urlencode(pairs)}")
    assert status == 200, text
    return headers, text


def points(site, *keys, **query):
    return json.loads(ask(site, *keys, **query)[1])


def test_points_of_an_hour_with_their_gap(site):
    answer = points(site, "channel/orders/billing", columns="in_s,backend_depth", range="1h")
    times, series = answer["times"], answer["series"]
    assert (answer["step_s"], answer["to"], answer["from"]) == (10, AT, AT - 3600)
    assert times == sorted(set(times))
    assert times[-1] == AT
    assert [list(each) for each in series] == [["in_s", "backend_depth"]]
    begin = AT - (POINTS - 1 - GAP.start) * STEP_S
    end = AT - (POINTS - 1 - GAP.stop) * STEP_S
    inside = [begin + STEP_S < at < end - STEP_S for at in times]
    assert any(inside)
    for column in series[0].values():
        assert len(column) == len(times)
        assert all((value is None) == gap for value, gap in zip(column, inside, strict=True) if gap)
        assert 0 not in [value for value, gap in zip(column, inside, strict=True) if gap]
        assert column[-1] is not None


def test_since_gives_the_last_points_alone(site):
    whole = points(site, "", columns="in_s")
    part = points(site, "", columns="in_s", since=whole["times"][-4])
    assert part["times"] == whole["times"][-4:]
    assert part["series"][0]["in_s"] == whole["series"][0]["in_s"][-4:]
    assert part["marks"] == []
    assert whole["marks"] == [{"at": AT - 600, "text": "pause orders/archive"}]


def test_marks_are_sorted_by_time_whatever_order_they_came_in():
    def fill(history, cluster):
        fill_history(history, cluster)
        for ago in (300, 900, 0, 4000):
            history.marks.append(Mark(cluster.at - ago, f"{ago} s ago", ()))

    with AdminPages(example_cluster(), fill=fill) as site:
        found = points(site, "channel/orders/archive", "topic/orders", columns="in_s")["marks"]
    assert [mark["at"] for mark in found] == [AT - 900, AT - 600, AT - 300, AT]


@pytest.mark.parametrize(("name", "seconds"), [("15m", 900), ("6h", 21600), ("24h", 86400)])
def test_ranges(site, name, seconds):
    answer = points(site, "node/10.0.0.1:4151", columns="clients", range=name)
    assert answer["from"] == AT - seconds
    assert answer["times"][0] >= AT - seconds
    assert answer["series"][0]["clients"][-1] == 7


def test_keys_share_their_times_and_the_unknown_is_null(site):
    keys = ["", "topic/orders", "channel/nobody/has/it".replace("/it", ""), "topic/none"]
    answer = points(site, *keys, columns="in_s,out_s")
    assert len(answer["times"]) > 100
    for series in answer["series"]:
        assert {len(column) for column in series.values()} == {len(answer["times"])}
    # A topic has no out_s; whoever is not known has nothing at all.
    assert set(answer["series"][1]["out_s"]) == {None}
    assert set(answer["series"][2]["in_s"]) == {None}


@pytest.mark.parametrize(
    ("query", "text"),
    [
        ("key=foo", "key is empty"),
        ("key=channel/orders", "key is empty"),
        ("key=topic/a/b", "key is empty"),
        ("range=2h", "range is one of 15m, 1h, 6h, 24h"),
        ("columns=in_s,%3Cscript%3E", "no column '<script>'"),
        ("since=x", "could not convert"),
        ("since=nan", "since is a unix time"),
        ("since=-1", "since is a unix time"),
        ("&".join(["key="] * 17), "more than 16 keys"),
        ("format=xml", "format is csv or json"),
    ],
)
def test_what_is_wrong_with_a_question_is_said(site, query, text):
    status, _, body = get(f"{site.url}/ui/series?{query}")
    assert status == 400
    assert text in json.loads(body)["message"]


def test_files_parse_back_to_the_same_points(site):
    keys, columns = ["channel/orders/billing", "topic/orders"], "in_s,memory_depth"
    answer = points(site, *keys, columns=columns)
    headers, text = ask(site, *keys, columns=columns, format="csv")
    rows = list(csv.DictReader(io.StringIO(text, newline="")))
    assert headers["Content-Disposition"] == 'attachment; filename="nsqadmin-series-1h.csv"'
    names = [
        "time",
        "orders/billing/in_s",
        "orders/billing/memory_depth",
        "orders/in_s",
        "orders/memory_depth",
    ]
    assert list(rows[0]) == names
    found = [
        float(row["orders/billing/in_s"]) if row["orders/billing/in_s"] else None for row in rows
    ]
    assert found == answer["series"][0]["in_s"]
    assert rows[-1]["time"] == "2023-11-14T22:13:20Z"
    listed = json.loads(ask(site, *keys, columns=columns, format="json")[1])
    assert [row["orders/memory_depth"] for row in listed] == answer["series"][1]["memory_depth"]
    last = site.context.audit.last(1)[0]
    assert (last.action, last.outcome) == ("export", "ok")
    assert last.target == {"series": "channel/orders/billing topic/orders", "range": "1h"}


def test_no_name_becomes_a_formula(site):
    _, text = ask(site, "topic/" + quote("=1+1", safe=""), columns="in_s", format="csv")
    assert text.splitlines()[0] == "time,'=1+1/in_s"


def test_exports_can_be_forbidden():
    with AdminPages(make_cluster([make_topic("t")]), "--no-export") as site:
        assert get(f"{site.url}/ui/series?format=csv")[0] == 403
        assert get(f"{site.url}/ui/series")[0] == 200
        assert "format=csv" not in get(f"{site.url}/")[2]


def test_an_answer_is_made_once_per_tick(site, monkeypatch):
    read = []
    series = site.context.history.series

    def counted(key, range_s):
        read.append(key)
        return series(key, range_s)

    monkeypatch.setattr(site.context.history, "series", counted)
    for _ in range(5):
        ask(site, "topic/clicks", columns="in_s", range="15m")
    assert read == [("topic", "clicks")]


def test_keys_are_read_back_whatever_the_names_hold():
    dice = random.Random(SEED)
    print("seed", SEED)
    for _ in range(500):
        names = ["".join(dice.choices("ab/%#&=+ ?<>\"'é\n", k=dice.randint(1, 6))) for _ in "ab"]
        for key in [("topic", names[0]), ("channel", *names), ("node", names[1])]:
            assert parse_key(format_key(key)) == key
    assert parse_key(format_key(())) == ()


def test_a_plan_asks_each_series_and_column_once():
    line = Line("In", ["in_s"], 1, ("topic", "t#ephemeral"))
    plan = make_plan(
        Query([("range", "6h"), ("q", "x")]), 86400, [Chart("a", "A", [line, line], "/s")]
    )
    assert plan.query == "key=topic%2Ft%2523ephemeral&columns=in_s&range=6h"
    assert plan.to_json()["charts"][0]["lines"][0] == {
        "label": "In",
        "series": 0,
        "columns": ["in_s"],
        "colour": 1,
        "dash": [],
    }
    assert [(link.text, link.href, link.is_current) for link in plan.links] == [
        ("15 min", "?range=15m&q=x", False),
        ("1 h", "?q=x", False),
        ("6 h", "?range=6h&q=x", True),
        ("24 h", "?range=24h&q=x", False),
    ]


@pytest.mark.parametrize(
    ("given", "chosen"), [("", "1h"), ("x", "1h"), ("24h", "1h"), ("15m", "15m")]
)
def test_ranges_beyond_history_are_not_offered(given, chosen):
    plan = make_plan(Query([("range", given)]), 3600, [])
    assert [link.text for link in plan.links] == ["15 min", "1 h"]
    assert plan.range == chosen


def test_every_line_has_a_dash_of_its_own():
    assert len(set(DASHES)) == LINES_MAX
    assert set(COLUMNS) >= {"in_s", "out_s", "memory_depth", "backend_depth", "clients", "memory"}
