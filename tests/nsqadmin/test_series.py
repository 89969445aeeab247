"""/ui/series: points of charts as JSON and as files; what is not known is null, never 0."""

import csv
import io
import random
from urllib.parse import urlencode

import pytest

from nsqfast.nsqadmin.web.charts import Chart, Line, format_key, make_plan, parse_key
from nsqfast.nsqadmin.web.request import Query
from support.admin_cluster import AT
from support.admin_history import GAP, POINTS, STEP_S
from support.admin_pages import example_pages

SEED = 4


@pytest.fixture(scope="module")
def site():
    with example_pages() as pages:
        yield pages


def ask(site, *keys, **query):
    pairs = [*(("key", key) for key in keys), *query.items()]
    answer = site.get(f"/ui/series?{urlencode(pairs)}")
    assert answer.status == 200, answer
    return answer


def points(site, *keys, **query):
    return ask(site, *keys, **query).json()


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
    answer = site.get(f"/ui/series?{query}")
    assert answer.status == 400
    assert text in answer.json()["message"]


def test_files_parse_back_to_the_same_points(site):
    keys, columns = ["channel/orders/billing", "topic/orders"], "in_s,memory_depth"
    answer = points(site, *keys, columns=columns)
    assert ask(site, "topic/=1+1", columns="in_s", format="csv").text.startswith("time,'=1+1/in_s")
    file = ask(site, *keys, columns=columns, format="csv")
    rows = list(csv.DictReader(io.StringIO(file.text, newline="")))
    assert file.headers["Content-Disposition"] == 'attachment; filename="nsqadmin-series-1h.csv"'
    names = [f"{of}/{name}" for of in ("orders/billing", "orders") for name in columns.split(",")]
    assert list(rows[0]) == ["time", *names]
    found = [float(row[names[0]]) if row[names[0]] else None for row in rows]
    assert found == answer["series"][0]["in_s"]
    assert rows[-1]["time"] == "2023-11-14T22:13:20Z"
    listed = points(site, *keys, columns=columns, format="json")
    assert [row["orders/memory_depth"] for row in listed] == answer["series"][1]["memory_depth"]
    last = site.context.audit.last(1)[0]
    assert (last.action, last.outcome) == ("export", "ok")
    assert last.target == {"series": "channel/orders/billing topic/orders", "range": "1h"}


def test_keys_are_read_back_whatever_the_names_hold():
    dice = random.Random(SEED)
    print("seed", SEED)
    for _ in range(500):
        names = ["".join(dice.choices("ab/%#&=+ ?<>\"'é\n", k=dice.randint(1, 6))) for _ in "ab"]
        for key in [("topic", names[0]), ("channel", *names), ("node", names[1])]:
            assert parse_key(format_key(key)) == key
    assert parse_key(format_key(())) == ()


def test_points_of_an_hour_with_their_gap_and_the_last_ones_alone(site):
    keys = ["channel/orders/billing", "topic/orders", "topic/none"]
    answer = points(site, *keys, columns="in_s,backend_depth,out_s", range="1h")
    times, series = answer["times"], answer["series"]
    assert (answer["step_s"], answer["to"], answer["from"]) == (10, AT, AT - 3600)
    assert times == sorted(set(times))
    assert times[-1] == AT
    begin = AT - (POINTS - 1 - GAP.start) * STEP_S
    end = AT - (POINTS - 1 - GAP.stop) * STEP_S
    gap = [at for at, time in enumerate(times) if begin + STEP_S < time < end - STEP_S]
    assert gap
    for column in series[0].values():
        assert len(column) == len(times)
        assert {column[at] for at in gap} == {None}
        assert column[-1] is not None
    # A topic has no out_s; whoever is not known has nothing at all.
    assert set(series[1]["out_s"]) == {None}
    assert set(series[2]["in_s"]) == {None}
    assert answer["marks"] == [{"at": AT - 600, "text": "pause orders/archive"}]
    part = points(site, *keys, columns="in_s", since=times[-4])
    assert part["times"] == times[-4:]
    assert part["series"][0]["in_s"] == series[0]["in_s"][-4:]
    assert part["marks"] == []


def test_a_plan_asks_each_series_and_column_once_and_offers_what_history_has():
    line = Line("In", ["in_s"], 1, ("topic", "t#ephemeral"))
    query = Query([("range", "6h"), ("q", "x")])
    plan = make_plan(query, 86400, [Chart("a", "A", [line, line], "/s")])
    assert plan.query == "key=topic%2Ft%2523ephemeral&columns=in_s&range=6h"
    assert [(link.href, link.is_current) for link in plan.links] == [
        ("?range=15m&q=x", False),
        ("?q=x", False),
        ("?range=6h&q=x", True),
        ("?range=24h&q=x", False),
    ]
    for given, chosen in (("", "1h"), ("x", "1h"), ("24h", "1h"), ("15m", "15m")):
        plan = make_plan(Query([("range", given)]), 3600, [])
        assert (len(plan.links), plan.range) == (2, chosen)
