"""examples/prometheus, and what daemons and clients expose, as Prometheus's tool sees them: apt install prometheus."""

import re
import shutil
import subprocess

import pytest
import yaml

from support.admin import start_nsqadmin
from support.client_metrics import start_client
from support.server import ROOT, start_nsqd, start_nsqlookupd
from support.web import get, post
from support.wire import Client

FOLDER = ROOT / "examples" / "prometheus"
CONFIG = yaml.safe_load((FOLDER / "prometheus.yml").read_text())
JOBS = {job["job_name"]: job for job in CONFIG["scrape_configs"]}
PORTS = {"nsqd": 4151, "nsqlookupd": 4161, "nsqadmin": 4171, "consumers": 9102}

needs_promtool = pytest.mark.skipif(
    shutil.which("promtool") is None, reason="promtool is missing: apt install prometheus"
)


def rules(name):
    groups = yaml.safe_load((FOLDER / name).read_text())["groups"]
    return [rule for group in groups for rule in group["rules"]]


def test_the_configuration_has_every_job_and_every_rule():
    assert sorted(CONFIG["rule_files"]) == sorted(path.name for path in FOLDER.glob("*alerts.yml"))
    for name, port in PORTS.items():
        assert JOBS[name]["static_configs"] == [{"targets": [f"127.0.0.1:{port}"]}]
        assert "metrics_path" not in JOBS[name]  # it is Prometheus's own default
    used = {
        job
        for name in CONFIG["rule_files"]
        for rule in rules(name)
        for job in re.findall(r'job="(\w+)"', rule["expr"])
    }
    assert used == JOBS.keys() == PORTS.keys()


@pytest.mark.parametrize("name", CONFIG["rule_files"])
def test_every_rule_waits_and_says_what_is_wrong(name):
    found = rules(name)
    names = [rule["alert"] for rule in found]
    assert len(set(names)) == len(names) >= 5
    for rule in found:
        assert set(rule) == {"alert", "expr", "for", "labels", "annotations"}
        assert re.fullmatch(r"[1-9]\d*m", rule["for"])
        assert rule["labels"]["severity"] in ("critical", "warning", "info")
        assert rule["annotations"]["summary"]


@needs_promtool
def test_promtool_takes_the_configuration_with_its_rules():
    command = ["promtool", "check", "config", str(FOLDER / "prometheus.yml")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count("rules found") == len(CONFIG["rule_files"])


@needs_promtool
@pytest.mark.slow
def test_promtool_takes_what_is_exposed(tmp_path):
    with (
        start_nsqlookupd("nsqfast") as lookupd,
        start_nsqd("nsqfast", tmp_path, "--metrics-latency-histogram") as nsqd,
        start_nsqadmin("nsqfast", nsqds=[nsqd]) as admin,
        start_client(nsqd) as client_page,
        Client(nsqd.tcp) as client,
    ):
        client.sub("t", "c", 1)
        assert post(nsqd.http, "/pub?topic=t", b"x").status == 200
        client.fin(client.read_message())
        for page in (nsqd.http, lookupd.http, admin.http, client_page):
            text = get(page, "/metrics").body
            done = subprocess.run(
                ["promtool", "check", "metrics"], input=text, capture_output=True, check=False
            )
            assert done.returncode == 0, done.stdout + done.stderr


def test_the_rules_of_nsqlookupd_ask_for_what_there_is():
    with start_nsqlookupd("nsqfast") as lookupd:
        exposed = get(lookupd.http, "/metrics").text
    for rule in rules("nsqlookupd-alerts.yml"):
        for name in re.findall(r"\bnsq\w*_\w+", rule["expr"]):
            assert f"\n# TYPE {name} " in exposed, name
