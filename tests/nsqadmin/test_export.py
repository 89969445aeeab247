"""Exports: the whole filtered set, rows that parse back, formulas quoted, and who may."""

import csv
import io
import re
from urllib.parse import urlencode

import pytest

from nsqfast.nsqadmin.web.export import quote_formula
from support.admin_pages import example_pages

TABLES = {
    "/": ("problems", "worst", "nodes"),
    "/topics": ("topics",),
    "/topics/orders": ("channels", "nodes"),
    "/topics/orders/billing": ("nodes",),
    "/nodes": ("nodes", "lookupds"),
    "/nodes/10.0.0.1:4151": ("topics", "lookupds"),
    "/lookup": ("inactive",),
    "/problems": ("problems",),
    "/audit": ("audit",),
}


@pytest.fixture(scope="module")
def site():
    with example_pages() as pages:
        yield pages


def ask(site, what="export", **query):
    return site.get(f"/ui/{what}?{urlencode(query)}")


@pytest.mark.parametrize(
    ("view", "table"), [(view, one) for view in TABLES for one in TABLES[view]]
)
def test_csv_and_json_parse_back_to_the_same_rows(site, view, table):
    file = ask(site, view=view, table=table, format="csv")
    text = file.text
    assert file.headers["Content-Type"] == "text/csv; charset=utf-8"
    assert re.fullmatch(
        r'attachment; filename="nsqadmin-[\w.-]+\.csv"', file.headers["Content-Disposition"]
    )
    assert text.count("\n") == text.count("\r\n")
    rows = list(csv.DictReader(io.StringIO(text, newline="")))
    objects = ask(site, view=view, table=table, format="json").json()
    assert rows
    assert [
        {name: "" if value is None else str(quote_formula(value)) for name, value in each.items()}
        for each in objects
    ] == rows
    entry = site.context.audit.last()[0]
    assert (entry.action, entry.outcome) == ("export", "ok")
    assert entry.target == {"view": view, "table": table}
    assert entry.effect == {"format": "json", "rows": len(rows)}


def test_formulas_become_text_and_the_rest_is_as_it_is():
    for first in "=+-@\t\r":
        assert quote_formula(first + "1") == f"'{first}1"
    for value in (-5, -1.5, None, "plain", "a=b", ""):
        assert quote_formula(value) == value


def test_what_there_is_not_or_may_not_be_is_refused(site):
    for query, status in (
        ({"view": "/topics", "table": "topics", "format": "xml"}, 400),
        ({"view": "/topics", "table": "none"}, 404),
        ({"view": "/none", "table": "topics"}, 404),
        ({"view": "/topics/none", "table": "channels"}, 404),
        ({}, 404),
    ):
        assert ask(site, **query).status == status
    with example_pages("--no-export") as closed:
        assert ask(closed, view="/topics", table="topics", format="csv").status == 403
        assert closed.context.audit.last()[0].outcome == "refused"
        assert ask(closed, "series", format="csv").status == 403
        for path in ("/", "/topics"):
            text = closed.get(path).text
            assert "/ui/export" not in text
            assert "format=csv" not in text
