"""What is wrong now, with real brokers and consumers; thresholds are short, the poll is quick."""

import contextlib
import json
import re
import threading
import time

import pytest

from support.admin import start_nsqadmin, wait_until
from support.json_lines import read_json_lines
from support.server import start_nsqd, start_nsqlookupd
from support.web import get, post, request
from support.wire import Client

QUICK = "--poll-interval=200ms"
JSON = {"Content-Type": "application/json"}

pytestmark = pytest.mark.slow


def problems(admin):
    answer = get(admin.http, "/ui/problems")
    assert answer.status == 200, answer
    return answer.json()["problems"]


def rules(admin):
    return sorted(problem["rule"] for problem in problems(admin))


def wait_for(admin, *expected, seconds_max=15.0):
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


@contextlib.contextmanager
def at_work(work, pause_s=0.0):
    """A thread that calls it again and again during the block; what it raises fails the test."""
    is_over, failures = threading.Event(), []

    def run():
        try:
            while not is_over.wait(pause_s):
                work()
        except Exception as error:
            failures.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield
    finally:
        is_over.set()
        thread.join()
    assert failures == []


def test_an_idle_cluster_has_none(nsqd):
    flags = ["--problem-no-consumers=0s", "--problem-no-channel=0s", "--problem-stuck=0s"]
    with start_nsqadmin("nsqfast", QUICK, *flags, nsqds=[nsqd]) as admin, Client(nsqd.tcp) as idle:
        idle.sub("orders", "billing", 10)
        post(nsqd.http, "/channel/create?topic=orders&channel=nobody")
        wait_for_ticks(admin, 10)
        assert rules(admin) == []


@pytest.mark.soak
def test_consumers_that_stop_are_missed_until_they_return(nsqd):
    with start_nsqadmin("nsqfast", QUICK, "--problem-no-consumers=1s", nsqds=[nsqd]) as admin:
        with Client(nsqd.tcp) as consumer:
            consumer.sub("orders", "billing", 1)
            post(nsqd.http, "/mpub?topic=orders", b"1\n2\n3")
            consumer.read_message()
            wait_for_ticks(admin, 3)
            assert rules(admin) == []
        found = wait_for(admin, "no_consumers")
        assert (found["severity"], found["topic"], found["channel"]) == (
            "crit",
            "orders",
            "billing",
        )
        assert re.fullmatch(r"3 messages wait.*; no consumers since \d\d:\d\d UTC", found["text"])
        assert abs(found["since"] - time.time()) < 30
        with Client(nsqd.tcp) as consumer:
            consumer.sub("orders", "billing", 1)
            for _ in range(3):
                consumer.fin(consumer.read_message())
            wait_for(admin)


def test_a_consumer_that_takes_and_never_finishes_is_stuck(nsqd):
    with (
        start_nsqadmin("nsqfast", QUICK, "--problem-stuck=1s", nsqds=[nsqd]) as admin,
        Client(nsqd.tcp) as consumer,
    ):
        consumer.sub("orders", "billing", 2)
        post(nsqd.http, "/mpub?topic=orders", b"1\n2\n3")
        held = [consumer.read_message() for _ in range(2)]
        found = wait_for(admin, "stuck_in_flight")
        assert found["severity"] == "crit"
        assert found["text"].startswith("2 messages in flight at 1 consumer, none finished since ")
        for message in [*held, None]:
            consumer.fin(message or consumer.read_message())
        wait_for(admin)


@pytest.mark.soak
def test_a_consumer_that_requeues_all_it_gets(nsqd):
    flags = ["--problem-window=2s", "--problem-stuck=1h"]
    with (
        start_nsqadmin("nsqfast", QUICK, *flags, nsqds=[nsqd]) as admin,
        Client(nsqd.tcp) as consumer,
    ):
        consumer.sub("orders", "billing", 1)
        post(nsqd.http, "/pub?topic=orders", b"1")

        def requeue():
            consumer.command("REQ", consumer.read_message().id, "5")

        with at_work(requeue):
            found = wait_for(admin, "high_requeue")
            assert found["severity"] == "crit"
            assert found["text"].endswith("were requeued: 100 %")
        consumer.fin(consumer.read_message())
        wait_for(admin)


@pytest.mark.soak
@pytest.mark.timeout(120)
def test_a_producer_that_is_faster_than_its_consumer(nsqd):
    """Half of what comes is finished; how fast a backlog grows is known after some tens of seconds."""
    flags = ["--problem-backlog-depth=20", "--problem-backlog-time=1s", "--problem-backlog-age=1h"]
    with (
        start_nsqadmin("nsqfast", QUICK, *flags, nsqds=[nsqd]) as admin,
        Client(nsqd.tcp) as consumer,
    ):
        consumer.sub("orders", "billing", 1)

        def work():
            post(nsqd.http, "/mpub?topic=orders", b"1\n2")
            consumer.fin(consumer.read_message())

        with at_work(work, pause_s=0.02):  # fifty messages a second more
            found = wait_for(admin, "backlog_grows", seconds_max=60)
            assert found["severity"] == "warn"
            assert re.search(r"messages wait.*; [\d.]+/s more over the last 5 min", found["text"])


@pytest.mark.soak
def test_messages_that_time_out(tmp_path):
    flags = ["--problem-window=2s", "--problem-stuck=1h"]
    with (
        start_nsqd("nsqfast", tmp_path, "--msg-timeout=50ms") as nsqd,
        start_nsqadmin("nsqfast", QUICK, *flags, nsqds=[nsqd]) as admin,
        Client(nsqd.tcp) as consumer,
    ):
        consumer.sub("orders", "billing", 1)
        post(nsqd.http, "/pub?topic=orders", b"1")
        with at_work(consumer.read_message):
            found = wait_for(admin, "high_timeouts")
            assert found["severity"] == "crit"
            assert found["text"].endswith("timed out: 100 %")


def test_consumers_that_are_not_ready_are_asked_about(nsqd):
    flags = ["--problem-not-ready=500ms"]
    with (
        start_nsqadmin("nsqfast", QUICK, *flags, nsqds=[nsqd]) as admin,
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


@pytest.mark.soak
def test_what_is_paused_on_one_of_two_nodes(tmp_path):
    flags = ["--problem-paused=1s"]
    with contextlib.ExitStack() as stack:
        nsqds = []
        for name in ("a", "b"):
            (tmp_path / name).mkdir()
            nsqds.append(stack.enter_context(start_nsqd("nsqfast", tmp_path / name)))
        admin = stack.enter_context(start_nsqadmin("nsqfast", QUICK, *flags, nsqds=nsqds))
        target = "?topic=orders&channel=billing"
        for one in nsqds:
            post(one.http, "/topic/create?topic=orders")
            post(one.http, "/channel/create" + target)
        post(nsqds[0].http, "/channel/pause" + target)
        found = wait_for(admin, "paused_on_some_nodes")
        assert found["text"].startswith("paused on 1 of 2 nodes since ")
        assert found["text"].endswith(": {}:{}".format(*nsqds[0].http))
        post(nsqds[1].http, "/channel/pause" + target)
        wait_for(admin)
        post(nsqds[1].http, "/pub?topic=orders", b"1")
        assert wait_for(admin, "paused_and_filling")["text"].endswith(
            "1 message waits, and more come"
        )
        post(nsqds[0].http, "/channel/unpause" + target)
        wait_for(admin, "paused_on_some_nodes")


@pytest.mark.soak
def test_a_topic_that_nobody_reads(nsqd):
    with start_nsqadmin("nsqfast", QUICK, "--problem-no-channel=500ms", nsqds=[nsqd]) as admin:
        post(nsqd.http, "/pub?topic=orders", b"1")
        found = wait_for(admin, "topic_without_channel")
        assert "1 message waits in the topic on 127.0.0.1:" in found["text"]


def test_dead_letters(nsqd):
    flags = ["--problem-window=2s", "--problem-no-channel=0s"]
    with start_nsqadmin("nsqfast", QUICK, *flags, nsqds=[nsqd]) as admin:
        for name in ("orders", "orders-dead"):
            post(nsqd.http, f"/topic/create?topic={name}")
        wait_until(lambda: b"nsqadmin_topics 2.0" in get(admin.http, "/metrics").body, "2 topics")
        wait_for_ticks(admin, 2)
        post(nsqd.http, "/pub?topic=orders-dead", b"1")
        found = wait_for(admin, "dead_letters")
        assert found["text"].startswith("1 dead letters in the last ")
        wait_for(admin)


@pytest.mark.soak
@pytest.mark.parametrize("through", ["nsqd", "nsqlookupd"])
def test_a_node_that_is_killed_is_down_within_ten_seconds(tmp_path, through):
    with start_nsqlookupd("nsqfast") as lookupd:
        flags = [f"--lookupd-tcp-address=127.0.0.1:{lookupd.tcp[1]}"]
        nsqd = start_nsqd("nsqfast", tmp_path, *flags)
        wait_until(lambda: get(lookupd.http, "/nodes").json()["producers"] != [], "a node")
        known = {"nsqds": [nsqd]} if through == "nsqd" else {"lookupds": [lookupd]}
        with start_nsqadmin("nsqfast", **known) as admin:
            wait_until(
                lambda: b'nsqadmin_nodes{state="up"} 1.0' in get(admin.http, "/metrics").body, "up"
            )
            assert rules(admin) == []
            nsqd.kill()
            found = wait_for(admin, "node_down", seconds_max=10)
            assert found["node"] == "{}:{}".format(*nsqd.http)
            assert "refused" in found["text"] or "nsqlookupd" in found["text"]
            ports = [
                f"--{kind}-address=127.0.0.1:{getattr(nsqd, kind)[1]}" for kind in ("tcp", "http")
            ]
            with start_nsqd("nsqfast", tmp_path, *flags, *ports):
                wait_for(admin, seconds_max=20)


def test_a_disk_with_less_free_than_it_should_have(nsqd):
    """All of a disk is never free; Go's nsqd does not say."""
    with start_nsqadmin("nsqfast", QUICK, "--problem-disk-free=1", nsqds=[nsqd]) as admin:
        found = wait_for(admin, "disk_low")
        assert re.fullmatch(r"[\d.]+ \w+ of [\d.]+ \w+ are free, \d+ %", found["text"])


@pytest.mark.go
def test_nothing_is_concluded_from_what_gos_nsqd_does_not_say(tmp_path):
    with (
        start_nsqd("go", tmp_path) as nsqd,
        start_nsqadmin(
            "nsqfast", QUICK, "--problem-disk-free=1", "--problem-not-ready=500ms", nsqds=[nsqd]
        ) as admin,
        Client(nsqd.tcp) as consumer,
    ):
        consumer.sub("orders", "billing", 0)
        post(nsqd.http, "/pub?topic=orders", b"1")
        wait_for(admin, "consumers_not_ready")  # this it says
        wait_for_ticks(admin, 10)
        assert rules(admin) == ["consumers_not_ready"]


def mute(admin, path="mute", headers=JSON, **body):
    return request(
        admin.http, "POST", f"/ui/problems/{path}", json.dumps(body).encode(), dict(headers)
    )


@pytest.fixture
def lonely(nsqd, tmp_path):
    """An nsqadmin with a problem."""
    audit = tmp_path / "audit"
    flags = ["--problem-no-consumers=0s", f"--audit-file={audit}", "--admin-user=ana"]
    with start_nsqadmin("nsqfast", QUICK, *flags, nsqds=[nsqd]) as admin:
        post(nsqd.http, "/topic/create?topic=orders")
        post(nsqd.http, "/channel/create?topic=orders&channel=billing")
        post(nsqd.http, "/pub?topic=orders", b"1")
        wait_for(admin, "no_consumers")
        admin.audit = audit
        yield admin


ANA = {**JSON, "X-Forwarded-User": "ana"}


def test_a_mute_is_kept_audited_and_out_of_the_metrics(lonely):
    [before] = problems(lonely)
    answer = mute(lonely, headers=ANA, id=before["id"])
    assert answer.status == 200
    until = answer.json()["muted_until"]
    assert abs(until - time.time() - 3600) < 30
    wait_for_ticks(lonely, 3)
    assert problems(lonely)[0]["muted_until"] == until
    figures = get(lonely.http, "/metrics").body
    assert b"nsqadmin_problem{" not in figures
    assert b"nsqadmin_problems_muted 1.0" in figures
    assert mute(lonely, "unmute", ANA, id=before["id"]).status == 200
    assert problems(lonely)[0]["muted_until"] == 0
    assert b"nsqadmin_problem{" in get(lonely.http, "/metrics").body
    wait_until(lambda: lonely.audit.exists() and len(read_json_lines(lonely.audit)) == 2, "audit")
    lines = read_json_lines(lonely.audit)
    assert [line["action"] for line in lines] == ["mute_problem", "unmute_problem"]
    assert lines[0]["user"] == "ana"
    assert lines[0]["target"] == {
        "problem": "no_consumers",
        "topic": "orders",
        "channel": "billing",
    }
    assert lines[0]["effect"] == {"hours": 1.0}


def restarted(nsqd, tmp_path):
    flags = ["--problem-no-consumers=0s", f"--history-file={tmp_path / 'history'}"]
    return start_nsqadmin("nsqfast", QUICK, *flags, nsqds=[nsqd])


def test_mutes_outlive_a_restart_beside_the_history_file(nsqd, tmp_path):
    post(nsqd.http, "/topic/create?topic=orders")
    for channel in ("billing", "archive", "etl"):
        post(nsqd.http, f"/channel/create?topic=orders&channel={channel}")
    post(nsqd.http, "/pub?topic=orders", b"1")
    with restarted(nsqd, tmp_path) as admin:
        wait_until(lambda: len(problems(admin)) == 3, "three problems")
        ids = {found["channel"]: found["id"] for found in problems(admin)}
        for channel in ("billing", "archive"):
            assert mute(admin, id=ids[channel], hours=5).status == 200
        assert mute(admin, "unmute", id=ids["archive"]).status == 200
        muted = {found["id"]: found["muted_until"] for found in problems(admin)}
        admin.kill()  # what was said is kept all the same
    with restarted(nsqd, tmp_path) as admin:
        wait_until(lambda: len(problems(admin)) == 3, "three problems")
        assert {found["id"]: found["muted_until"] for found in problems(admin)} == muted
        assert [until > time.time() for until in muted.values()].count(True) == 1


@pytest.mark.parametrize(
    "body",
    [b"", b"\xff\x00", b"{", b"[]", b'{"nsqadmin_mutes": {"a": "b"}}', b'{"mutes": {"a": 1}}'],
)
def test_a_damaged_file_of_mutes_is_one_warning(nsqd, tmp_path, body):
    path = tmp_path / "history.mutes"
    path.write_bytes(body)
    with restarted(nsqd, tmp_path) as admin:
        post(nsqd.http, "/topic/create?topic=orders")
        post(nsqd.http, "/channel/create?topic=orders&channel=billing")
        post(nsqd.http, "/pub?topic=orders", b"1")
        wait_for(admin, "no_consumers")
        (found,) = problems(admin)
        assert found["muted_until"] == 0
        assert mute(admin, id=found["id"]).status == 200
        lines = [line for line in admin.stderr.splitlines() if "mutes" in line]
        assert len(lines) == 1
        assert f"the mutes in {path} are ignored" in lines[0]
    assert list(json.loads(path.read_bytes())["nsqadmin_mutes"]) == [found["id"]]


def test_only_admins_mute(lonely):
    [found] = problems(lonely)
    assert mute(lonely, id=found["id"]).status == 403
    assert mute(lonely, headers={**JSON, "X-Forwarded-User": "bob"}, id=found["id"]).status == 403
    assert problems(lonely)[0]["muted_until"] == 0


@pytest.mark.parametrize(
    ("body", "status"),
    [
        ({"id": "no/such//"}, 404),
        ({}, 400),
        ({"id": 3}, 400),
        ({"id": "x", "hours": 0}, 400),
        ({"id": "x", "hours": -1}, 400),
        ({"id": "x", "hours": 1e9}, 400),
        ({"id": "x", "hours": "1"}, 400),
        ([], 400),
    ],
)
def test_mutes_that_make_no_sense(lonely, body, status):
    answer = request(lonely.http, "POST", "/ui/problems/mute", json.dumps(body).encode(), ANA)
    assert answer.status == status, answer
    assert answer.json()["message"]
    assert b"Traceback" not in answer.body


def test_a_form_without_scripts_mutes_and_leads_back(lonely):
    [found] = problems(lonely)
    headers = {"X-Forwarded-User": "ana", "Content-Type": "application/x-www-form-urlencoded"}
    body = f"id={found['id'].replace('/', '%2F')}&hours=2".encode()
    answer = request(lonely.http, "POST", "/ui/problems/mute", body, headers)
    assert (answer.status, answer.headers["Location"]) == (303, "/problems")
    assert abs(problems(lonely)[0]["muted_until"] - time.time() - 7200) < 30
    for bad in (b"", b"id=x&hours=x", b"id=x&hours=nan"):
        answer = request(lonely.http, "POST", "/ui/problems/mute", bad, headers)
        assert answer.status == 400, (bad, answer)
