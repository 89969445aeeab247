"""docs/METRICS.md, the dashboard and the alert rules against what the endpoint really says."""

import json
import re
from pathlib import Path

import pytest
import yaml

from nsqfast.nsqd.options import parse
from support.prometheus import OPENMETRICS, scrape
from support.server import start_nsqd
from support.wire import Client

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "METRICS.md"
DASHBOARD = ROOT / "examples" / "grafana" / "nsqd.json"
ALERTS = ROOT / "examples" / "prometheus" / "alerts.yml"

ROW = re.compile(
    r"^\| `((?:nsqd?|process|python)_\w+)` \| (\w+) \|([^|]*)\| (.+) \|$", re.MULTILINE
)
FLAG = re.compile(r"^\| `--([\w-]+)` \| (\w+) \|", re.MULTILINE)
# Labels that Prometheus adds to what it scrapes, and those of a histogram's buckets.
OUTER_LABELS = {"job", "instance", "le"}
FUNCTIONS = set("sum min max by rate increase delta predict_linear histogram_quantile".split())
WORDS = {"and", "or", "unless"}


@pytest.fixture(scope="module")
def exposed(tmp_path_factory):
    """All there is: every flag on, a topic and a channel."""
    folder = tmp_path_factory.mktemp("exposed")
    with (
        start_nsqd("nsqfast", folder, "--metrics-latency-histogram") as server,
        Client(server.tcp) as client,
    ):
        client.sub("t", "c", 1)
        return scrape(server.http), scrape(server.http, OPENMETRICS)


def exposed_types(text):
    """Type by the name that a query uses for it."""
    return dict(re.findall(r"^# TYPE (\S+) (\w+)$", text, re.MULTILINE))


def labels_of(found):
    """By the name that stands in the page; what a histogram or summary adds is not told."""
    kinds = exposed_types(found.text)
    names = {}
    for name, labels in found.series():
        known = name if name in kinds else re.sub("_(bucket|sum|count)$", "", name)
        names.setdefault(known, set()).update(key for key, _ in labels if key != "le")
    return names


def test_the_page_is_what_is_exposed(exposed):
    text, _ = exposed
    rows = ROW.findall(PAGE.read_text())
    page = {name: kind for name, kind, _, _ in rows}
    assert len(page) == len(rows)
    assert page == exposed_types(text.text)
    labels = {name: set(filter(None, listed.strip().split(", "))) for name, _, listed, _ in rows}
    assert labels == labels_of(text)


def test_the_page_has_the_flags():
    options = parse([])
    flags = dict(FLAG.findall(PAGE.read_text()))
    names = {name for name in options.__slots__ if name.startswith("metrics_")}
    assert {"metrics_" + flag.removeprefix("metrics-").replace("-", "_") for flag in flags} == names
    for flag, default in flags.items():
        assert str(getattr(options, flag.replace("-", "_"))).lower() == default


def test_the_page_has_the_number_of_series(exposed):
    text, _ = exposed
    count = {"topic": 0, "channel": 0, "other": 0}
    histogram = 0
    for name, labels in text.series():
        keys = dict(labels)
        histogram += "e2e_processing_latency" in name
        count["channel" if "channel" in keys else "topic" if "topic" in keys else "other"] += 1
    page = PAGE.read_text()
    assert f"A topic has {count['topic']} series" in page
    assert (
        f"a channel {count['channel'] - histogram}, with the histogram {count['channel']}" in page
    )
    assert f"brings {histogram} series" in page
    assert f"The broker's own figures, {count['other']} series" in page


# -- what queries ask for


def names_in(expression):
    """Metrics and labels of an expression of PromQL; everything else in it has to be known."""
    text = re.sub(r'"[^"]*"', '""', expression)
    labels = set(re.findall(r"(\w+)\s*(?:=~|!~|!=|=)\s*\"\"", text))
    for listed in re.findall(r"\bby\s*\(([^)]*)\)", text):
        labels |= {label.strip() for label in listed.split(",")}
    text = re.sub(r"\bby\s*\([^)]*\)|\{[^}]*\}|\[[^\]]*\]", " ", text)
    called = set(re.findall(r"([a-z_]\w*)\s*\(", text))
    assert called <= FUNCTIONS, expression
    words = set(re.findall(r"(?<![\w.])[a-zA-Z_:][\w:]*", text)) - FUNCTIONS - WORDS
    return words, labels


def assert_is_exposed(expression, exposed):
    text, openmetrics = exposed
    metrics, labels = names_in(expression)
    known = {name for name, _ in text.series()} & {name for name, _ in openmetrics.series()}
    assert metrics, expression
    assert metrics <= known | {"up"}, expression
    have = {key for _, pairs in text.series() for key, _ in pairs}
    assert labels <= have | OUTER_LABELS, expression


def panels():
    found = json.loads(DASHBOARD.read_text())["panels"]
    return [inner for panel in found for inner in [panel, *panel.get("panels", [])]]


def test_the_dashboard_asks_for_what_there_is(exposed):
    expressions = [target["expr"] for panel in panels() for target in panel.get("targets", [])]
    assert len(expressions) > 40
    for expression in expressions:
        assert_is_exposed(expression, exposed)
    asked = set().union(*(names_in(expression)[0] for expression in expressions))
    ours = {name for name, _ in exposed[0].series() if name.startswith("nsqd_")}
    # A histogram's count and sum are in its buckets.
    unasked = {name for name in ours - asked if not re.search("_(count|sum)$", name)}
    assert unasked == set()


def test_the_dashboards_variables_are_declared(exposed):
    document = json.loads(DASHBOARD.read_text())
    declared = {item["name"] for item in document["templating"]["list"]}
    used = set(re.findall(r"\$\{?(\w+)", DASHBOARD.read_text())) - {"__rate_interval", "__all"}
    assert used == declared
    for item in document["templating"]["list"][1:]:
        assert item["datasource"]["uid"] == "${datasource}"
        inner = re.fullmatch(r"label_values\((.+), (\w+)\)", item["query"]["query"])
        assert_is_exposed(inner[1], exposed)


def rules():
    groups = yaml.safe_load(ALERTS.read_text())["groups"]
    return [rule for group in groups for rule in group["rules"]]


def test_the_alerts_ask_for_what_there_is(exposed):
    for rule in rules():
        assert_is_exposed(rule["expr"], exposed)
