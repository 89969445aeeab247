"""Exports: the whole filtered set, rows that parse back, formulas quoted, and who may."""

import csv
import io
import json
import urllib.error
import urllib.request
from urllib.parse import urlencode

import pytest

from nsqfast.nsqadmin.web.export import quote_formula
from support.admin_cluster import example_cluster, example_entries, example_problems, many_topics
from support.admin_pages import AdminPages

TABLES = [
    ("/", "problems"),
    ("/", "worst"),
    ("/", "nodes"),
    ("/topics", "topics"),
    ("/topics/orders", "channels"),
    ("/topics/orders", "nodes"),
    ("/topics/orders/billing", "nodes"),
    ("/nodes", "nodes"),
    ("/nodes", "lookupds"),
    ("/nodes/10.0.0.1:4151", "topics"),
    ("/nodes/10.0.0.1:4151", "lookupds"),
    ("/lookup", "inactive"),
    ("/problems", "problems"),
    ("/audit", "audit"),
]


@pytest.fixture(scope="module")
def site():
    with AdminPages(
        example_cluster(), problems=example_problems(), entries=example_entries()
    ) as pages:
        yield pages


def fetch(site, view, table, form):
    query = urlencode({"view": view, "table": table, "format": form})
    with urllib.request.urlopen(f"{site.url}/ui/export?{query}", timeout=20) as answer:
        return answer.headers, answer.read().decode("utf-8")


def status_of(site, **query):
    with pytest.raises(urllib.error.HTTPError) as caught:
        urllib.request.urlopen(f"{site.url}/ui/export?{urlencode(query)}", timeout=20)
    caught.value.close()
    return caught.value.code


@pytest.mark.parametrize(("view", "table"), TABLES)
def test_csv_and_json_parse_back_to_the_same_rows(site, view, table):
    _, text = fetch(site, view, table, "csv")
    rows = list(csv.DictReader(io.StringIO(text, newline="")))
    objects = json.loads(fetch(site, view, table, "json")[1])
    assert rows
    assert [
        {name: "" if value is None else str(quote_formula(value)) for name, value in each.items()}
        for each in objects
    ] == rows


def test_an_export_has_all_pages_of_what_was_searched(site):
    with AdminPages(many_topics(450, seed=3)) as many:
        rows = json.loads(fetch(many, "/topics?q=topic&page=2&sort=-name", "topics", "json")[1])
    assert [row["name"] for row in rows] == [f"topic-{n:05d}" for n in range(449, -1, -1)]


@pytest.mark.parametrize("first", ["=", "+", "-", "@", "\t", "\r"])
def test_formulas_become_text(first):
    assert quote_formula(first + "1") == f"'{first}1"


@pytest.mark.parametrize("value", [-5, -1.5, None, "plain", "a=b", ""])
def test_the_rest_is_as_it_is(value):
    assert quote_formula(value) == value


def test_lines_end_as_rfc_4180_says_and_the_file_is_named(site):
    headers, text = fetch(site, "/topics", "topics", "csv")
    assert headers["Content-Type"] == "text/csv; charset=utf-8"
    assert headers["Content-Disposition"] == 'attachment; filename="nsqadmin-topics-topics.csv"'
    assert text.count("\n") == text.count("\r\n") == 6


@pytest.mark.parametrize(
    ("query", "status"),
    [
        ({"view": "/topics", "table": "topics", "format": "xml"}, 400),
        ({"view": "/topics", "table": "none"}, 404),
        ({"view": "/none", "table": "topics"}, 404),
        ({"view": "/topics/none", "table": "channels"}, 404),
        ({}, 404),
    ],
)
def test_what_there_is_not_is_refused(site, query, status):
    assert status_of(site, **query) == status


def test_no_export_refuses_and_hides(site):
    with AdminPages(example_cluster(), "--no-export") as closed:
        assert status_of(closed, view="/topics", table="topics", format="csv") == 403
        with urllib.request.urlopen(closed.url + "/topics", timeout=10) as answer:
            assert "/ui/export" not in answer.read().decode()
        assert closed.context.audit.last()[0].outcome == "refused"


def test_exports_are_audited(site):
    fetch(site, "/topics?q=orders", "topics", "csv")
    entry = site.context.audit.last()[0]
    assert (entry.action, entry.outcome) == ("export", "ok")
    assert entry.target == {"view": "/topics?q=orders", "table": "topics"}
    assert entry.effect == {"format": "csv", "rows": 1}
