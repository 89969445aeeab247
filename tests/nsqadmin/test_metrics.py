"""nsqadmin's /metrics against what it did, the alert rules, and docs/ADMIN.md: its figures, rules and flags."""

import re
from pathlib import Path

import pytest
import yaml

from nsqfast.nsqadmin.cluster.probes import Probes
from nsqfast.nsqadmin.options import Options, parse
from nsqfast.nsqadmin.problems.report import Rules
from nsqfast.nsqd.options import Options as NsqdOptions
from nsqfast.program.options import declared
from support.admin import start_nsqadmin
from support.prometheus import scrape
from support.server import start_nsqd
from support.waiting import wait_until
from support.web import get, post

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "ADMIN.md").read_text(encoding="utf-8")
ALERTS = ROOT / "examples" / "prometheus" / "nsqadmin-alerts.yml"
ROW = re.compile(r"^\| `(nsqadmin_\w+)` \| (\w+) \|([^|]*)\| (.+) \|$", re.MULTILINE)
FLAG_ROWS = re.findall(r"^\| `--([\w-]+)` \| `?(.+?)`? \| (.+) \|$", PAGE, re.MULTILINE)
FLAGS = {item.flag: item for item in declared(Options)}
EVERYWHERE = {"config", "version", "help"}
OF_MAKE = {"demo-cluster", "nsqd-only"}
NONE = "–"

pytestmark = pytest.mark.slow


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

        def is_judged():
            found = get(server.http, "/nsq/ui/problems").json()
            return found["total"] >= 2 and found["tick"] >= 2

        wait_until(is_judged, "2 problems")
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


def test_the_poll_and_each_problem(figures):
    found = [
        (labels["rule"], labels["severity"]) for _, labels in figures.samples("nsqadmin_problem")
    ]
    assert found == [("node_down", "crit"), ("no_consumers", "crit")]
    labels = {"topic": "orders", "channel": "billing", "node": ""}
    assert figures.value("nsqadmin_problem", rule="no_consumers", severity="crit", **labels) == 1
    assert figures.value("nsqadmin_problems", severity="crit") == 2
    assert figures.value("nsqadmin_problems", severity="warn") == 0
    assert figures.value("nsqadmin_problems_muted") == 0
    assert figures.value("nsqadmin_ticks_total") > 1
    assert 0 <= figures.value("nsqadmin_tick_age_seconds") < 20
    assert figures.value("nsqadmin_poll_interval_seconds") == 0.2
    assert figures.value("nsqadmin_poll_cpu_seconds") > 0
    assert 0 < figures.value("nsqadmin_poll_duration_seconds") < 20
    states = [figures.value("nsqadmin_nodes", state=one) for one in ("up", "stale", "down")]
    assert states == [1, 0, 1]
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


def test_the_page_is_what_is_exposed(figures):
    kinds = dict(re.findall(r"^# TYPE (nsqadmin_\S+) (\w+)$", figures.text, re.MULTILINE))
    rows = ROW.findall(PAGE)
    assert {name: kind for name, kind, _, _ in rows} == kinds
    labels = {}
    for name, pairs in figures.series():
        labels.setdefault(name, set()).update(key for key, _ in pairs)
    for name, _, told, meaning in rows:
        assert set(re.findall(r"\w+", told)) == labels[name], name
        assert meaning
    table = re.findall(r"^\| `(\w+)` \| (?:crit|warn|info)", PAGE, re.MULTILINE)
    assert sorted(table) == sorted(Rules(parse([]), Probes(None)).by_name)
    named = re.findall(r"`--(problem-[\w-]+)`", PAGE)
    for item in declared(Options):  # beside the rule, too
        assert not item.flag.startswith("problem-") or named.count(item.flag) >= 2


def rules():
    return [
        rule for group in yaml.safe_load(ALERTS.read_text())["groups"] for rule in group["rules"]
    ]


def test_the_alerts_ask_for_what_there_is(figures):
    for rule in rules():
        used = set(re.findall(r"nsqadmin_\w+", rule["expr"]))
        assert used <= figures.families.keys() | {name for name, _ in figures.series()}, rule
    severities = set(re.findall(r'severity="(\w+)"', ALERTS.read_text()))
    assert severities == {"crit", "warn"}


def test_every_flag_has_one_row():
    assert sorted(flag for flag, _, _ in FLAG_ROWS) == sorted(FLAGS)


@pytest.mark.parametrize(("flag", "value", "_text"), FLAG_ROWS, ids=[row[0] for row in FLAG_ROWS])
def test_a_row_has_the_default(flag, value, _text):
    default = getattr(parse([]), FLAGS[flag].attribute)
    if value == NONE:
        assert default in ("", [])
    else:
        assert getattr(parse([f"--{flag}={value}"]), FLAGS[flag].attribute) == default


def test_lists_are_called_so():
    lists = {flag for flag, item in FLAGS.items() if getattr(parse([]), item.attribute) == []}
    assert {flag for flag, _, text in FLAG_ROWS if text.startswith("list: ")} == lists


def test_no_flag_is_named_that_there_is_not():
    named = set(re.findall(r"(?<![\w-])--([a-z][\w-]*)", PAGE.replace("problem-…", "")))
    of_nsqd = {item.flag for item in declared(NsqdOptions)}
    assert named - FLAGS.keys() - of_nsqd - EVERYWHERE - OF_MAKE == set()
