"""docs/METRICS.md, the dashboards and the alert rules against what the endpoints really say."""

import json
import re
from pathlib import Path

import pytest
import yaml

from nsqfast.client.prometheus import NAMES_MAX, OTHER
from nsqfast.nsqd.options import parse
from support.admin import start_nsqadmin
from support.client_metrics import PREFIX, is_added, start_client
from support.lookup import Node
from support.prometheus import OPENMETRICS, scrape
from support.server import start_nsqd, start_nsqlookupd
from support.waiting import wait_until
from support.web import get
from support.wire import Client

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "METRICS.md"
DASHBOARDS = ROOT / "examples" / "grafana"
ALERTS = ROOT / "examples" / "prometheus"

ROW = re.compile(
    r"^\| `((?:nsqd?|process|python)_\w+)` \| (\w+) \|([^|]*)\| (.+) \|$", re.MULTILINE
)
CLIENT_ROW = re.compile(rf"^\| `({PREFIX}\w+)` \| (\w+) \|([^|]*)\| (.+) \|$", re.MULTILINE)
FLAG = re.compile(r"^\| `--([\w-]+)` \| (\w+) \|", re.MULTILINE)
# Labels that Prometheus adds to what it scrapes, and those of a histogram's buckets.
OUTER_LABELS = {"job", "instance", "le"}
FUNCTIONS = set("sum min max by rate increase delta predict_linear histogram_quantile".split())
WORDS = {"and", "or", "unless"}
FLAGS = ("--metrics-latency-histogram", "--durable=always", "--commit-log-size=33554432")
DAEMONS = ["nsqd", "nsqlookupd", "nsqadmin"]
of_each_daemon = pytest.mark.parametrize("daemon", DAEMONS)
of_each_dashboard = pytest.mark.parametrize("name", [*DAEMONS, "client"])


@pytest.fixture(scope="module")
def everything(tmp_path_factory):
    """All there is of each daemon, every flag on, a topic and a channel, an error, a problem; and of a client."""
    folder = tmp_path_factory.mktemp("exposed")
    with (
        start_nsqd("nsqfast", folder, *FLAGS) as nsqd,
        start_nsqlookupd("nsqfast") as lookupd,
        start_nsqadmin("nsqfast", "--nsqd-http-address=127.0.0.1:1") as admin,
        start_client(nsqd) as client_page,
        Client(nsqd.tcp) as client,
    ):
        client.sub("t", "c", 1)
        with Node(lookupd.tcp, b"  V2") as wrong:
            wrong.read_to_end()
        with Node(lookupd.tcp) as node:
            node.identify()
        wait_until(lambda: get(admin.http, "/ui/problems").json()["total"], "a problem")
        pages = {"nsqd": nsqd.http, "nsqlookupd": lookupd.http, "nsqadmin": admin.http}
        pages["client"] = client_page
        return {name: (scrape(page), scrape(page, OPENMETRICS)) for name, page in pages.items()}


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


def assert_are_rows(rows, kinds, labels):
    page = {name: kind for name, kind, _, _ in rows}
    assert len(page) == len(rows)
    assert page == kinds
    told = {name: set(filter(None, listed.strip().split(", "))) for name, _, listed, _ in rows}
    assert told == labels


def test_the_page_is_what_is_exposed(exposed):
    text, _ = exposed
    assert_are_rows(ROW.findall(PAGE.read_text()), exposed_types(text.text), labels_of(text))


def is_of_client(name):
    return name.startswith(PREFIX) and not is_added(name)


def test_the_page_is_what_a_client_exposes(everything):
    text, _ = everything["client"]
    kinds = {name: kind for name, kind in exposed_types(text.text).items() if is_of_client(name)}
    labels = {name: found for name, found in labels_of(text).items() if is_of_client(name)}
    assert_are_rows(CLIENT_ROW.findall(PAGE.read_text()), kinds, labels)


def test_the_page_has_the_number_of_a_clients_series(everything):
    text, _ = everything["client"]
    counts = {"channel": [0, 0], "topic": [0, 0]}
    for name, labels in text.series():
        keys = dict(labels)
        if name.startswith(PREFIX) and OTHER not in keys.values():
            counts["channel" if "channel" in keys else "topic"][is_added(name)] += 1
    (channel, added), (topic, added_of_topic) = counts.values()
    assert added == added_of_topic
    page = PAGE.read_text()
    assert f"A channel has {channel} series, a topic {topic}, and each {added} more" in page
    assert f"The first {NAMES_MAX:,} topics" in page


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
    of_log = sum(name.startswith("nsqd_commit_log_") for name, _ in text.series())
    said = f"{count['other']} series with a commit log and {count['other'] - of_log} without"
    assert f"The broker's own figures, {said}" in page


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


def test_each_daemon_and_the_client_has_its_dashboard():
    found = {path.stem: json.loads(path.read_text()) for path in DASHBOARDS.iterdir()}
    assert sorted(found) == ["client", "nsqadmin", "nsqd", "nsqlookupd"]
    assert {each["uid"] for each in found.values()} == {f"nsqfast-{name}" for name in found}
    for dashboard in found.values():
        numbers = [panel["id"] for panel in panels(dashboard)]
        assert len(set(numbers)) == len(numbers)


@pytest.mark.parametrize(
    ("name", "prefix", "least_count"),
    [
        ("nsqd", "nsqd_", 41),
        ("nsqlookupd", "nsqlookupd_", 15),
        ("nsqadmin", "nsqadmin_", 20),
        ("client", PREFIX, 20),
    ],
)
def test_the_dashboard_asks_for_what_there_is(everything, name, prefix, least_count):
    exposed = everything[name]
    found = panels(json.loads((DASHBOARDS / f"{name}.json").read_text()))
    expressions = [target["expr"] for panel in found for target in panel.get("targets", [])]
    assert len(expressions) >= least_count
    for expression in expressions:
        assert_is_exposed(expression, exposed)
    asked = set().union(*(names_in(expression)[0] for expression in expressions))
    series = {each for each, _ in exposed[0].series()}
    ours = {each for each in series if each.startswith(prefix) and not is_added(each)}
    # A histogram's count and sum are in its buckets.
    unasked = {each for each in ours - asked if not re.search("_(count|sum)$", each)}
    assert unasked == set()


def assert_is_there(selector, exposed):
    """What a variable selects: a series by its name, or several by a pattern."""
    if pattern := re.match(r'\{__name__=~"([^"]+)"', selector):
        named = {name for name, _ in exposed[0].series() if re.fullmatch(pattern[1], name)}
        assert len(named) > 1, selector
        selector = min(named) + selector.replace(pattern[0], "{", 1)
    assert_is_exposed(selector, exposed)


@of_each_dashboard
def test_the_dashboards_variables_are_declared(everything, name):
    exposed = everything[name]
    text = (DASHBOARDS / f"{name}.json").read_text()
    document = json.loads(text)
    declared = {item["name"] for item in document["templating"]["list"]}
    used = set(re.findall(r"\$\{?(\w+)", text)) - {"__rate_interval", "__all"}
    assert used == declared
    for item in document["templating"]["list"][1:]:
        assert item["datasource"]["uid"] == "${datasource}"
        inner = re.fullmatch(r"label_values\((.+), (\w+)\)", item["query"]["query"])
        assert_is_there(inner[1], exposed)


def rules(name):
    groups = yaml.safe_load((ALERTS / name).read_text())["groups"]
    return [rule for group in groups for rule in group["rules"]]


@pytest.mark.parametrize(
    ("name", "alerts"), [("nsqd", "alerts.yml"), ("client", "client-alerts.yml")]
)
def test_the_alerts_ask_for_what_there_is(everything, name, alerts):
    for rule in rules(alerts):
        assert_is_exposed(rule["expr"], everything[name])
