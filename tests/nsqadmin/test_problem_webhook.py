"""--problem-webhook: what is sent when, with real brokers and a real endpoint; the order of events tick by tick."""

import json
import time

import pytest

from nsqfast.errors import OptionsError
from nsqfast.nsqadmin.options import parse
from nsqfast.nsqadmin.problems import alerts as module
from nsqfast.nsqadmin.problems.alerts import ProblemWebhook
from nsqfast.nsqadmin.problems.cases import Severity
from nsqfast.nsqadmin.problems.report import Problems
from nsqfast.nsqadmin.problems.silences import Scope, Silence
from support.access import run_admin
from support.admin import start_nsqadmin, text_of
from support.admin_cluster import make_problem
from support.destination import Destination, answer
from support.server import start_nsqd
from support.waiting import wait_until
from support.web import get, post, request
from support.wire import Client

JSON = {"Content-Type": "application/json"}
FORM = {"Content-Type": "application/x-www-form-urlencoded"}
FLAGS = ("--poll-interval=200ms", "--problem-no-consumers=0s")


@pytest.fixture
def nsqd(tmp_path):
    with start_nsqd("nsqfast", tmp_path) as server:
        yield server


def direct(nsqd):
    return f"--nsqd-http-address={text_of(nsqd.http)}"


def told(endpoint):
    assert {asked.header("Content-Type") for asked in endpoint.requests} <= {"application/json"}
    return [json.loads(body) for body in endpoint.bodies]


def wait_for(endpoint, count):
    wait_until(lambda: len(endpoint.bodies) >= count, f"{count} posts")
    return told(endpoint)


def leave_alone(nsqd, topic="orders"):
    """A message that nobody reads."""
    post(nsqd.http, f"/topic/create?topic={topic}")
    post(nsqd.http, f"/channel/create?topic={topic}&channel=billing")
    assert post(nsqd.http, f"/pub?topic={topic}", b"1").status == 200


def read_all(nsqd, topic="orders"):
    client = Client(nsqd.tcp)
    client.sub(topic, "billing", 1)
    client.fin(client.read_message())
    return client


def test_what_is_raised_and_over_is_sent_once(nsqd):
    with Destination() as endpoint:
        flag = f"--problem-webhook={endpoint.url}"
        with run_admin(direct(nsqd), *FLAGS, flag) as admin:
            leave_alone(nsqd)
            (first,) = wait_for(endpoint, 1)
            (event,) = first["events"]
            (problem,) = get(admin.http, "/ui/problems").json()["problems"]
            assert event["status"] == "raised"
            assert event["problem"] | {"text": ""} == problem | {"text": ""}
            with read_all(nsqd):
                _, last = wait_for(endpoint, 2)
            assert [one["status"] for one in last["events"]] == ["resolved"]
            assert last["events"][0]["problem"]["id"] == problem["id"]


def test_the_forms_that_receivers_know(nsqd):
    with Destination() as pager, Destination() as chat:
        flags = [
            (f"--problem-webhook={pager.url}", "--problem-webhook-form=alertmanager"),
            (f"--problem-webhook={chat.url}", "--problem-webhook-form=slack"),
        ]
        with (
            run_admin(direct(nsqd), *FLAGS, *flags[0]),
            run_admin(direct(nsqd), *FLAGS, *flags[1]),
        ):
            leave_alone(nsqd)
            wait_for(pager, 1)
            wait_for(chat, 1)
            with read_all(nsqd):
                alerts, lines = wait_for(pager, 2), wait_for(chat, 2)
    first, last = alerts
    assert (first["version"], first["status"], last["status"]) == ("4", "firing", "resolved")
    (alert,), (ended,) = first["alerts"], last["alerts"]
    names = {"topic": "orders", "channel": "billing"}
    assert alert["labels"] == {
        "alertname": "NsqProblem",
        "rule": "no_consumers",
        "severity": "critical",
        **names,
    }
    assert alert["annotations"]["summary"].startswith("1 message waits")
    assert alert["endsAt"] == "0001-01-01T00:00:00Z" < alert["startsAt"] <= ended["endsAt"]
    assert alert["fingerprint"] == ended["fingerprint"]
    assert lines[0]["text"].startswith("Critical: no_consumers orders/billing: 1 message waits")
    assert lines[1]["text"].startswith("Over: no_consumers orders/billing: ")


def test_an_endpoint_that_is_down_for_a_while_is_told_later(nsqd):
    answers = iter([503, 429, 200])
    with Destination(lambda *_: answer(next(answers))) as endpoint:
        url = f"{endpoint.url}/services/T0/secret"
        flag = f"--problem-webhook={url}"
        with start_nsqadmin("nsqfast", *FLAGS, flag, nsqds=[nsqd]) as admin:
            leave_alone(nsqd)
            first, second, third = wait_for(endpoint, 3)
            assert first == second == third
            admin.wait_for_line("answered 503")
            admin.wait_for_line("answered 429")
            assert "secret" not in admin.stderr


def test_a_url_that_nobody_can_ask_is_not_told(nsqd):
    """aiohttp's own text of it has the path, which is a secret."""
    flag = "--problem-webhook=http://\u2028x/services/T0/secret"
    with start_nsqadmin("nsqfast", *FLAGS, flag, nsqds=[nsqd]) as admin:
        failed = request(admin.http, "POST", "/ui/problems/test", b"{}", JSON)
        assert failed.status == 502
        leave_alone(nsqd)
        admin.wait_for_line("no server can be asked at this URL")
        assert "secret" not in admin.stderr + failed.text


def test_an_endpoint_that_says_no_is_not_asked_again(nsqd):
    answers = iter([404, 200])
    with Destination(lambda *_: answer(next(answers))) as endpoint:
        flag = f"--problem-webhook={endpoint.url}"
        with start_nsqadmin("nsqfast", *FLAGS, flag, nsqds=[nsqd]) as admin:
            leave_alone(nsqd)
            admin.wait_for_line("answered 404")
            leave_alone(nsqd, "clicks")
            _, second = wait_for(endpoint, 2)
            assert [one["problem"]["topic"] for one in second["events"]] == ["clicks"]


def test_a_restart_raises_nothing_again_and_tells_what_is_over(nsqd, tmp_path):
    history = f"--history-file={tmp_path / 'history'}"
    with Destination() as endpoint:
        flags = (*FLAGS, history, f"--problem-webhook={endpoint.url}")
        with run_admin(direct(nsqd), *flags):
            leave_alone(nsqd)
            wait_for(endpoint, 1)
        with run_admin(direct(nsqd), *flags):
            with read_all(nsqd):
                _, last = wait_for(endpoint, 2)
            assert [one["status"] for one in last["events"]] == ["resolved"]


def test_a_test_from_the_page(nsqd):
    answers = iter([200, 500, 200])
    with Destination(lambda *_: answer(next(answers))) as endpoint:
        flag = f"--problem-webhook={endpoint.url}"
        with run_admin(direct(nsqd), *FLAGS, flag) as admin:
            assert "Test the webhook" in get(admin.http, "/problems").text
            assert request(admin.http, "POST", "/ui/problems/test", b"{}", JSON).status == 200
            (event,) = told(endpoint)[0]["events"]
            assert event["problem"]["text"] == "a test from nsqadmin: nothing is wrong"
            failed = request(admin.http, "POST", "/ui/problems/test", b"{}", JSON)
            assert failed.status == 502
            assert failed.json()["message"].endswith("answered 500")
            done = request(admin.http, "POST", "/ui/problems/test", b"", FORM)
            assert (done.status, done.headers["Location"]) == (303, "/problems")
    with run_admin(direct(nsqd), *FLAGS) as admin:
        assert "Test the webhook" not in get(admin.http, "/problems").text
        failed = request(admin.http, "POST", "/ui/problems/test", b"{}", JSON)
        assert failed.status == 502
        assert "--problem-webhook is not given" in failed.json()["message"]


@pytest.mark.parametrize("url", ["x", "ftp://a/", "http://", "http://[a/", "http://a:99999/"])
def test_what_is_no_url(url):
    options = parse([f"--problem-webhook={url}"])
    with pytest.raises(OptionsError, match="^--problem-webhook has to be http://"):
        ProblemWebhook(options, Problems(options))


# -- which events, tick by tick


class Told:
    """The events of each tick; `tick` takes the problems that are found, and how many are reported besides."""

    def __init__(self):
        options = parse(["--problem-webhook=http://127.0.0.1:1/"])
        self.problems = Problems(options)
        self.webhook = ProblemWebhook(options, self.problems)
        self.webhook._outbox = self
        self.events = []
        self.others = ()
        self.problems.is_reported = lambda problem: problem.id in self.others
        self.webhook.begin()

    def add(self, body, _what):
        self.events = [(one["status"], one["problem"]["id"]) for one in json.loads(body)["events"]]

    def tick(self, *found):
        self.events = []
        self.problems.found = list(found)
        self.problems._mute_found()
        self.webhook._tell()
        return self.events


def test_a_change_of_severity_is_told():
    scene = Told()
    warn, crit = make_problem(0, Severity.WARN), make_problem(0, Severity.CRIT)
    assert scene.tick(warn) == [("raised", "p0")]
    assert scene.tick(warn) == []
    assert scene.tick(crit) == [("changed", "p0")]
    assert scene.tick(crit) == []
    assert scene.tick() == [("resolved", "p0")]
    assert scene.tick() == []


def test_what_is_muted_is_not_told_unless_it_is_over():
    scene = Told()
    silence = Silence(Scope.TOPIC, "orders", time.time() + 1000)
    scene.problems.silence(silence)
    warn, crit = make_problem(0, Severity.WARN), make_problem(0, Severity.CRIT)
    assert scene.tick(warn) == []
    assert scene.tick() == []
    scene.problems.end_silence(Scope.TOPIC, "orders")
    assert scene.tick(warn) == [("raised", "p0")]
    scene.problems.silence(silence)
    assert scene.tick(crit) == []
    scene.problems.end_silence(Scope.TOPIC, "orders")
    assert scene.tick(crit) == [("changed", "p0")]
    scene.problems.silence(silence)
    assert scene.tick() == [("resolved", "p0")]


def test_what_is_beyond_the_list_is_not_over():
    scene = Told()
    assert scene.tick(make_problem(0), make_problem(1)) == [("raised", "p0"), ("raised", "p1")]
    scene.others = ("p1",)
    assert scene.tick(make_problem(0)) == []
    assert scene.tick(make_problem(0), make_problem(1)) == []
    scene.others = ()
    assert scene.tick(make_problem(1)) == [("resolved", "p0")]


def test_what_peers_name_steers_nothing():
    """Slack's own marks, ends of lines, and bytes that are not UTF-8."""
    node = "<!channel>&\udce4"
    problem = make_problem(0, topic="", channel="", node=node, rule="node_down", text="a <b> & c")
    events = [module.make_event("raised", problem)] * 25
    lines = json.loads(module.slack_form(events))["text"].split("\n")
    assert lines[0] == "Critical: node_down &lt;!channel&gt;&amp;?: a &lt;b&gt; &amp; c"
    assert (len(lines), lines[-1]) == (21, "and 5 more")
    (alert, *_) = json.loads(module.alertmanager_form(events))["alerts"]
    assert alert["labels"]["node"] == "<!channel>&?"
    assert json.loads(module.own_form(events))["events"][0]["status"] == "raised"
