"""What is wrong now, with real brokers and consumers; thresholds are short, the poll is quick. Mutes of it."""

import asyncio
import json
import re
import time

import pytest

from nsqfast.nsqadmin.options import parse
from nsqfast.nsqadmin.problems.report import Problems
from nsqfast.nsqadmin.problems.silences import Scope, Silence
from support.access import run_admin
from support.admin import text_of
from support.admin_cluster import example_cluster, example_problems
from support.admin_pages import AdminPages
from support.server import start_nsqd
from support.waiting import wait_until
from support.web import get, post, request
from support.wire import Client

QUICK = "--poll-interval=200ms"
JSON = {"Content-Type": "application/json"}
ANA = {**JSON, "X-Forwarded-User": "ana"}

pytestmark = pytest.mark.slow


def problems(admin):
    answer = get(admin.http, "/ui/problems")
    assert answer.status == 200, answer
    return answer.json()["problems"]


def rules(admin):
    return sorted(problem["rule"] for problem in problems(admin))


def wait_for(admin, *expected, seconds_max=50.0):
    """Until these rules are reported and no others; then the first of them."""
    wait_until(lambda: rules(admin) == sorted(expected), f"problems {expected}", seconds_max)
    return next(iter(problems(admin)), None)


def wait_for_ticks(admin, count):
    """So many more were judged."""
    goal = get(admin.http, "/ui/problems").json()["tick"] + count
    wait_until(lambda: get(admin.http, "/ui/problems").json()["tick"] >= goal, f"tick {goal}")


@pytest.fixture
def nsqd(tmp_path):
    with start_nsqd("nsqfast", tmp_path) as server:
        yield server


def test_consumers_that_stop_are_missed_until_they_return(nsqd):
    with run_admin(
        f"--nsqd-http-address={text_of(nsqd.http)}", QUICK, "--problem-no-consumers=1s"
    ) as admin:
        with Client(nsqd.tcp) as consumer:
            consumer.sub("orders", "billing", 1)
            wait_for_ticks(admin, 3)  # an idle cluster has none
            assert rules(admin) == []
            post(nsqd.http, "/mpub?topic=orders", b"1\n2\n3")
            consumer.read_message()
            wait_for_ticks(admin, 3)
            assert rules(admin) == []
        found = wait_for(admin, "no_consumers")
        names = [found[name] for name in ("severity", "topic", "channel")]
        assert names == ["crit", "orders", "billing"]
        assert re.fullmatch(r"3 messages wait.*; no consumers since \d\d:\d\d UTC", found["text"])
        assert abs(found["since"] - time.time()) < 30
        with Client(nsqd.tcp) as consumer:
            consumer.sub("orders", "billing", 1)
            for _ in range(3):
                consumer.fin(consumer.read_message())
            wait_for(admin)


def test_consumers_that_are_not_ready_are_asked_about(nsqd):
    flags = ["--problem-not-ready=500ms"]
    with (
        run_admin(f"--nsqd-http-address={text_of(nsqd.http)}", QUICK, *flags) as admin,
        Client(nsqd.tcp) as one,
        Client(nsqd.tcp) as other,
    ):
        for consumer in (one, other):
            consumer.sub("orders", "billing", 0)
        post(nsqd.http, "/pub?topic=orders", b"1")
        found = wait_for(admin, "consumers_not_ready")
        assert found["text"].startswith(
            "1 message waits; 2 consumers connected, none ready (RDY 0) since "
        )
        one.command("RDY", "1")
        one.fin(one.read_message())
        wait_for(admin)


def test_a_disk_with_less_free_than_it_should_have(nsqd):
    """All of a disk is never free; Go's nsqd does not say."""
    with run_admin(
        f"--nsqd-http-address={text_of(nsqd.http)}", QUICK, "--problem-disk-free=1"
    ) as admin:
        found = wait_for(admin, "disk_low")
        assert re.fullmatch(r"[\d.]+ \w+ of [\d.]+ \w+ are free, \d+ %", found["text"])


@pytest.fixture
def site():
    """Whose problems are made up."""
    flags = ("--admin-user=ana",)
    with AdminPages(example_cluster(), *flags, problems=example_problems()) as pages:
        pages.http = ("127.0.0.1", pages.port)
        yield pages


def mute(site, body, path="mute", headers=ANA):
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    return request(site.http, "POST", f"/ui/problems/{path}", data, dict(headers))


def muted_until(site, problem):
    return next(each["muted_until"] for each in problems(site) if each["id"] == problem)


def test_a_mute_is_kept_audited_and_out_of_the_metrics(site):
    answer = mute(site, {"id": "p0"})
    assert (answer.status, answer.json()["muted_until"]) == (200, muted_until(site, "p0"))
    assert abs(muted_until(site, "p0") - time.time() - 3600) < 30
    figures = get(site.http, "/metrics").body
    assert b'rule="no_consumers"' not in figures
    assert b"nsqadmin_problems_muted 2.0" in figures  # one of them was so before
    assert mute(site, {"id": "p0"}, "unmute").status == 200
    assert muted_until(site, "p0") == 0
    assert b'rule="no_consumers"' in get(site.http, "/metrics").body
    last, first = site.context.audit.last(2)
    assert [(each.action, each.user) for each in (first, last)] == [
        ("mute_problem", "ana"),
        ("unmute_problem", "ana"),
    ]
    assert first.target == {"problem": "no_consumers", "topic": "orders", "channel": "billing"}
    assert first.effect == {"hours": 1.0}


def test_mutes_that_make_no_sense(site):
    for body, status in (
        ({"id": "no/such//"}, 404),
        ({}, 400),
        ({"id": 3}, 400),
        ({"id": "p0", "hours": 0}, 400),
        ({"id": "p0", "hours": -1}, 400),
        ({"id": "p0", "hours": 1e9}, 400),
        ({"id": "p0", "hours": "1"}, 400),
        ([], 400),
    ):
        answer = mute(site, body)
        assert answer.status == status, body
        assert answer.json()["message"]
    assert muted_until(site, "p0") == 0


def test_a_form_without_scripts_mutes_and_leads_back(site):
    headers = ANA | {"Content-Type": "application/x-www-form-urlencoded"}
    answer = mute(site, b"id=p0&hours=2", headers=headers)
    assert (answer.status, answer.headers["Location"]) == (303, "/problems")
    assert abs(muted_until(site, "p0") - time.time() - 7200) < 30
    for bad in (b"", b"id=p0&hours=x", b"id=p0&hours=nan"):
        assert mute(site, bad, headers=headers).status == 400, bad


def silence(site, body, path="", headers=ANA):
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    return request(site.http, "POST", f"/ui/silences{path}", data, dict(headers))


def silences(site):
    return get(site.http, "/ui/silences").json()["silences"]


NODE = "10.0.0.3:4151"


def test_a_node_a_topic_and_everything_can_be_silenced(site):
    given = {"scope": "node", "target": NODE, "hours": 2, "reason": "its disk\n is changed"}
    answer = silence(site, given)
    assert answer.status == 200
    (made,) = silences(site)
    assert made == answer.json()
    assert made["until"] - made["since"] == 7200
    names = [made[name] for name in ("scope", "target", "reason", "user")]
    assert names == ["node", NODE, "its disk is changed", "ana"]
    assert muted_until(site, "p1") == made["until"]
    assert muted_until(site, "p0") == 0
    assert silence(site, given | {"scope": "topic", "target": "orders"}).status == 200
    assert muted_until(site, "p0") > 0 == muted_until(site, "p3")
    page = get(site.http, "/problems").text
    assert f"node {NODE}" in page
    assert "its disk is changed" in page
    assert silence(site, given | {"scope": "everything", "target": "", "hours": 3}).status == 200
    assert muted_until(site, "p3") > 0
    assert b"nsqadmin_problem{" not in get(site.http, "/metrics").body
    assert "Everything is silenced until " in get(site.http, "/").text
    for scope, target in (("everything", ""), ("topic", "orders"), ("node", NODE)):
        assert silence(site, {"scope": scope, "target": target}, "/end").status == 200
    assert silences(site) == []
    assert muted_until(site, "p1") == 0
    last = site.context.audit.last(6)
    assert [each.action for each in last] == ["end_silence"] * 3 + ["silence"] * 3
    assert [each.target for each in last[3:]] == [
        {"scope": "everything"},
        {"topic": "orders"},
        {"node": NODE},
    ]
    assert last[-1].effect == {"hours": 2, "reason": "its disk is changed"}


def test_silences_that_make_no_sense(site):
    good = {"scope": "node", "target": NODE, "hours": 1, "reason": "r"}
    for change, status in (
        ({"hours": 0}, 400),  # without an end
        ({"hours": 1e9}, 400),
        ({"hours": None}, 400),
        ({"reason": " \n"}, 400),
        ({"reason": "x" * 201}, 400),
        ({"scope": "world"}, 400),
        ({"scope": "everything"}, 404),
        ({"scope": "topic"}, 404),
        ({"target": "elsewhere:1"}, 404),
    ):
        answer = silence(site, good | change)
        assert answer.status == status, change
        assert answer.json()["message"]
    for body in (b"", b"[]", b"{"):
        assert silence(site, body).status == 400
    viewer = JSON | {"X-Forwarded-User": "eve"}
    assert silence(site, good, headers=viewer).status == 403
    assert silence(site, {"scope": "node", "target": "elsewhere:1"}, "/end").status == 404
    assert silences(site) == []


def test_a_form_silences_and_leads_to_the_list(site):
    headers = ANA | {"Content-Type": "application/x-www-form-urlencoded"}
    body = b"scope=node&target=10.0.0.3%3A4151&hours=4&reason=a+disk"
    answer = silence(site, body, headers=headers)
    assert (answer.status, answer.headers["Location"]) == (303, "/problems")
    assert muted_until(site, "p1") > 0
    for bad in (b"", b"scope=node", body.replace(b"4&", b"nan&"), body.replace(b"4&", b"x&")):
        assert silence(site, bad, headers=headers).status == 400, bad


def restarted(path):
    """One of the same cluster, which knows the mutes of the one before."""
    made = Problems(parse([f"--history-file={path}"]))
    asyncio.run(made.silences.read())
    made.found = example_problems()
    return made


def test_silences_outlive_a_restart_beside_the_history_file(tmp_path):
    before = restarted(tmp_path / "history")
    now = time.time()
    made = [
        Silence(Scope.PROBLEM, "p0", now + 18_000),
        Silence(Scope.NODE, NODE, now + 18_000, "its disk", "ana", now),
    ]
    for one in [*made, Silence(Scope.PROBLEM, "p1", now + 18_000)]:
        before.silence(one)
    before.end_silence(Scope.PROBLEM, "p1")
    asyncio.run(before.silences.save())
    assert list(restarted(tmp_path / "history").silences) == made


def test_the_mutes_of_nsqfast_0_2_0_are_read(tmp_path):
    until = time.time() + 1000
    kept = {"nsqadmin_mutes": {"no_consumers/orders/billing/": until}}
    (tmp_path / "history.mutes").write_text(json.dumps(kept))
    (only,) = restarted(tmp_path / "history").silences
    assert only == Silence(Scope.PROBLEM, "no_consumers/orders/billing/", until)


@pytest.mark.parametrize(
    "body",
    [b"", b"\xff\x00", b"{", b"[]", b'{"nsqadmin_mutes": {"a": "b"}}', b'{"mutes": {"a": 1}}'],
)
def test_a_damaged_file_of_mutes_is_one_warning_and_then_a_new_one(tmp_path, caplog, body):
    path = tmp_path / "history.mutes"
    path.write_bytes(body)
    made = restarted(tmp_path / "history")
    (line,) = (record.getMessage() for record in caplog.records)
    assert line.startswith(f"problems: the mutes in {path} are ignored: ")
    made.silence(Silence(Scope.PROBLEM, "p0", time.time() + 60))
    asyncio.run(made.silences.save())
    assert list(json.loads(path.read_bytes())["nsqadmin_mutes"]) == ["p0"]
