"""nsqadmin's /metrics against what it did, the page that describes it, and the alert rules."""

import re
from pathlib import Path

import pytest
import yaml

from nsqfast.nsqadmin.live.probes import Probes
from nsqfast.nsqadmin.live.rules import Rules
from nsqfast.nsqadmin.options import Options, parse
from nsqfast.options import declared
from support.admin import start_nsqadmin, wait_until
from support.prometheus import OPENMETRICS, TEXT, scrape
from support.server import start_nsqd
from support.web import get, post

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "ADMIN.md"
ALERTS = ROOT / "examples" / "prometheus" / "nsqadmin-alerts.yml"
ROW = re.compile(r"^\| `(nsqadmin_\w+)` \| (\w+) \|([^|]*)\| (.+) \|$", re.MULTILINE)

pytestmark = pytest.mark.slow


def has_at_least(found, wanted):
    return all(found[name] >= value for name, value in wanted.items())


@pytest.fixture(scope="module")
def admin(tmp_path_factory):
    """Below a base path, with an nsqd that is up and one that is not, and a channel without consumers."""
    with (
        start_nsqd("nsqfast", tmp_path_factory.mktemp("nsqd")) as nsqd,
        start_nsqadmin(
            "nsqfast",
            "--base-path=/nsq",
            "--poll-interval=200ms",
            "--problem-no-consumers=0s",
            "--nsqd-http-address=127.0.0.1:1",
            nsqds=[nsqd],
        ) as server,
    ):
        post(nsqd.http, "/topic/create?topic=orders")
        post(nsqd.http, "/channel/create?topic=orders&channel=billing")
        post(nsqd.http, "/pub?topic=orders", b"1")
        asked = {"total": 2, "tick": 2}
        wait_until(
            lambda: has_at_least(get(server.http, "/nsq/ui/problems").json(), asked), "2 problems"
        )
        yield server


@pytest.fixture(scope="module")
def figures(admin):
    for path in (
        "/nsq/ping",
        "/nsq/api/topics/orders",
        "/nsq/api/topics/unknown",
        "/<script>",
        "/nsq/{x}",
    ):
        get(admin.http, path)
    return scrape(admin.http, target="/nsq/metrics")


def test_each_problem_is_a_series(figures):
    found = [labels for _, labels in figures.samples("nsqadmin_problem")]
    assert found == [
        {
            "rule": "node_down",
            "severity": "crit",
            "topic": "",
            "channel": "",
            "node": "127.0.0.1:1",
        },
        {
            "rule": "no_consumers",
            "severity": "crit",
            "topic": "orders",
            "channel": "billing",
            "node": "",
        },
    ]
    assert {value for value, _ in figures.samples("nsqadmin_problem")} == {1.0}
    assert figures.value("nsqadmin_problems", severity="crit") == 2
    assert figures.value("nsqadmin_problems", severity="warn") == 0
    assert figures.value("nsqadmin_problems_muted") == 0


def test_the_poll(figures):
    assert figures.value("nsqadmin_ticks_total") > 1
    assert 0 <= figures.value("nsqadmin_tick_age_seconds") < 5
    assert figures.value("nsqadmin_poll_interval_seconds") == 0.2
    assert 0 < figures.value("nsqadmin_poll_duration_seconds") < 5
    assert 0 < figures.value("nsqadmin_poll_cpu_seconds") < 1
    assert figures.value("nsqadmin_nodes", state="up") == 1
    assert figures.value("nsqadmin_nodes", state="down") == 1
    assert figures.value("nsqadmin_nodes", state="stale") == 0
    assert figures.value("nsqadmin_lookupds", state="up") == 0
    assert figures.value("nsqadmin_topics") == 1
    assert figures.value("nsqadmin_channels") == 1
    asked = figures.value("nsqadmin_upstream_requests_total")
    assert 0 < figures.value("nsqadmin_upstream_errors_total") < asked


def test_requests_are_counted_by_route_never_by_what_was_written(figures):
    counted = {
        (labels["path"], labels["status"]): value
        for value, labels in figures.samples("nsqadmin_http_requests_total")
    }
    assert counted["/ping", "200"] == 1
    assert counted["/api/topics/{topic}", "200"] == 1
    assert counted["other", "404"] >= 1
    assert not any("script" in path or "unknown" in path for path, _ in counted)


def test_both_formats_say_the_same(admin, figures):
    other = scrape(admin.http, OPENMETRICS, target="/nsq/metrics")
    assert (figures.content_type, other.content_type) == (TEXT, OPENMETRICS)
    added = {"/metrics"}  # counted since
    assert {
        series
        for series in other.series() ^ figures.series()
        if dict(series[1]).get("path") not in added
    } == set()


def test_the_page_is_what_is_exposed(figures):
    kinds = dict(re.findall(r"^# TYPE (nsqadmin_\S+) (\w+)$", figures.text, re.MULTILINE))
    rows = ROW.findall(PAGE.read_text())
    assert {name: kind for name, kind, _, _ in rows} == kinds
    labels = {}
    for name, pairs in figures.series():
        labels.setdefault(name, set()).update(key for key, _ in pairs)
    for name, _, told, meaning in rows:
        assert set(re.findall(r"\w+", told)) == labels[name], name
        assert meaning


def rules():
    return [
        rule for group in yaml.safe_load(ALERTS.read_text())["groups"] for rule in group["rules"]
    ]


def test_the_alerts_have_prometheus_shape_and_ask_for_what_there_is(figures):
    names = [rule["alert"] for rule in rules()]
    assert len(set(names)) == len(names) >= 3
    for rule in rules():
        assert set(rule) <= {"alert", "expr", "for", "labels", "annotations"}
        assert re.fullmatch(r"\d+m", rule.get("for", "0m"))
        assert rule["labels"]["severity"] in ("critical", "warning")
        assert rule["annotations"]["summary"]
        used = set(re.findall(r"nsqadmin_\w+", rule["expr"]))
        assert used <= figures.families.keys() | {name for name, _ in figures.series()}, rule
    severities = set(re.findall(r'severity="(\w+)"', ALERTS.read_text()))
    assert severities == {"crit", "warn"}


def test_the_page_names_every_rule():
    table = re.findall(r"^\| `(\w+)` \| (?:crit|warn|info)", PAGE.read_text(), re.MULTILINE)
    assert sorted(table) == sorted(Rules(parse([]), Probes(None)).by_name)


def test_the_page_names_every_threshold_beside_its_rule():
    flags = [item.flag for item in declared(Options) if item.flag.startswith("problem-")]
    named = re.findall(r"`--(problem-[\w-]+)`", PAGE.read_text())
    assert {flag: named.count(flag) for flag in flags if named.count(flag) < 2} == {}
