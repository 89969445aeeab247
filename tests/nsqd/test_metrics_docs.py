"""docs/METRICS.md, the dashboards and the alert rules against what the endpoints really say."""

import json
import re
from pathlib import Path

import pytest
import yaml

from nsqfast.nsqd.options import parse
from support.admin import start_nsqadmin, wait_until
from support.lookup import Node
from support.prometheus import OPENMETRICS, scrape
from support.server import start_nsqd, start_nsqlookupd
from support.web import get
from support.wire import Client

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "METRICS.md"
DASHBOARDS = ROOT / "examples" / "grafana"
ALERTS = ROOT / "examples" / "prometheus" / "alerts.yml"

ROW = re.compile(
    r"^\| `((?:nsqd?|process|python)_\w+)` \| (\w+) \|([^|]*)\| (.+) \|$", re.MULTILINE
)
FLAG = re.compile(r"^\| `--([\w-]+)` \| (\w+) \|", re.MULTILINE)
# Labels that Prometheus adds to what it scrapes, and those of a histogram's buckets.
OUTER_LABELS = {"job", "instance", "le"}
FUNCTIONS = set("sum min max by rate increase delta predict_linear histogram_quantile".split())
WORDS = {"and", "or", "unless"}
of_each_daemon = pytest.mark.parametrize("daemon", ["nsqd", "nsqlookupd", "nsqadmin"])


@pytest.fixture(scope="module")
def everything(tmp_path_factory):
    """All there is of each daemon: every flag on, a topic and a channel, an error, a problem."""
    folder = tmp_path_factory.mktemp("exposed")
    with (
        start_nsqd("nsqfast", folder, "--metrics-latency-histogram") as nsqd,
        start_nsqlookupd("nsqfast") as lookupd,
        start_nsqadmin("nsqfast", "--nsqd-http-address=127.0.0.1:1") as admin,
        Client(nsqd.tcp) as client,
    ):
        client.sub("t", "c", 1)
        with Node(lookupd.tcp, b"  V2") as wrong:
            wrong.read_to_end()
        with Node(lookupd.tcp) as node:
            node.identify()
        wait_until(lambda: get(admin.http, "/ui/problems").json()["total"], "a problem")
        daemons = {"nsqd": nsqd, "nsqlookupd": lookupd, "nsqadmin": admin}
        return {
            name: (scrape(server.http), scrape(server.http, OPENMETRICS))
            for name, server in daemons.items()
        }


@pytest.fixture(scope="module")
def exposed(everything):
    return everything["nsqd"]


@of_each_daemon
def test_every_help_is_a_sentence(everything, daemon):
    for found in everything[daemon]:
        helps = re.findall(r"^# HELP (\S+) (.*)$", found.text, re.MULTILINE)
        assert len(helps) >= len(found.families)
        assert [each for each in helps if not re.fullmatch(r"[A-Z].* .* .*\.", each[1])] == []


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


def panels(dashboard):
    found = dashboard["panels"]
    return [inner for panel in found for inner in [panel, *panel.get("panels", [])]]


def test_each_daemon_has_its_dashboard():
    found = {path.stem: json.loads(path.read_text()) for path in DASHBOARDS.iterdir()}
    assert sorted(found) == ["nsqadmin", "nsqd", "nsqlookupd"]
    assert {each["uid"] for each in found.values()} == {f"nsqfast-{name}" for name in found}
    for dashboard in found.values():
        numbers = [panel["id"] for panel in panels(dashboard)]
        assert len(set(numbers)) == len(numbers)


@pytest.mark.parametrize(
    ("daemon", "least_count"), [("nsqd", 41), ("nsqlookupd", 15), ("nsqadmin", 20)]
)
def test_the_dashboard_asks_for_what_there_is(everything, daemon, least_count):
    exposed = everything[daemon]
    found = panels(json.loads((DASHBOARDS / f"{daemon}.json").read_text()))
    expressions = [target["expr"] for panel in found for target in panel.get("targets", [])]
    assert len(expressions) >= least_count
    for expression in expressions:
        assert_is_exposed(expression, exposed)
    asked = set().union(*(names_in(expression)[0] for expression in expressions))
    ours = {name for name, _ in exposed[0].series() if name.startswith(f"{daemon}_")}
    # A histogram's count and sum are in its buckets.
    unasked = {name for name in ours - asked if not re.search("_(count|sum)$", name)}
    assert unasked == set()


@of_each_daemon
def test_the_dashboards_variables_are_declared(everything, daemon):
    exposed = everything[daemon]
    text = (DASHBOARDS / f"{daemon}.json").read_text()
    document = json.loads(text)
    declared = {item["name"] for item in document["templating"]["list"]}
    used = set(re.findall(r"\$\{?(\w+)", text)) - {"__rate_interval", "__all"}
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
