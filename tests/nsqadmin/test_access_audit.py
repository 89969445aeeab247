"""What is written down of every attempt, and who is told of it."""

import asyncio
import collections
import contextlib
import json
import logging
import os
import re
import socket
import time

import pytest
from aiohttp import web

from nsqfast.nsqadmin.access.audit import (
    ACTIONS,
    ENTRIES_KEPT,
    LINES_MAX,
    RESULTS_KEPT,
    TEXT_LENGTH_MAX,
    AuditFile,
    _plain,
)
from nsqfast.nsqadmin.outbox import QUEUE_MAX
from nsqfast.nsqadmin.results import Result
from support.access import FORM, cookie_header, log_in, probed, run_admin, start_admin, write_users
from support.admin import LiveCluster, text_of
from support.destination import Destination, answer
from support.json_lines import read_json_lines
from support.waiting import wait_until
from support.web import request

KEYS = [
    *("time", "user", "role", "ip", "action", "target"),
    *("effect", "results", "outcome", "request_id"),
]


class Noter:
    """A route that notes what it is told to; and the audit itself."""

    def __init__(self):
        self.audit = None

    def __call__(self, app, context):
        self.audit = context.audit
        app.router.add_post(context.urls.to("/api/note"), self.note)

    async def note(self, asked):
        given = await asked.json()
        results = [Result(**result) for result in given.pop("results", [])]
        for _ in range(given.pop("times", 1)):
            await self.audit.note(
                asked,
                given["action"],
                given.get("target", {}),
                effect=given.get("effect", {}),
                results=results,
                outcome=given["outcome"],
            )
        return web.json_response({})


@pytest.fixture
def noter():
    return Noter()


def note(address, action, target=None, outcome="ok", **more):
    body = {"action": action, "target": target or {}, "outcome": outcome, **more}
    answer = request(address, "POST", "/api/note", json.dumps(body).encode())
    assert answer.status == 200
    return answer


@contextlib.contextmanager
def endpoint_of(status=200):
    """Keeps what is posted to it."""
    with Destination(lambda *_: answer(status)) as endpoint:
        endpoint.url += "/hook?key=secret"
        yield endpoint


def told_to(endpoint):
    """All that it was told."""
    assert {asked.header("Content-Type") for asked in endpoint.requests} == {"application/json"}
    return [json.loads(body) for body in endpoint.bodies]


def test_an_attempt_is_one_line(tmp_path, noter):
    path = tmp_path / "audit"
    path.write_text('{"older":1}\n')
    results = [{"node": "a:4151", "ok": True}, {"node": "b:4151", "ok": False, "text": "refused"}]
    with probed(noter, audit_file=str(path)) as address:
        answer = note(
            address,
            "empty_channel",
            {"topic": "t", "channel": "c\n"},
            "partial",
            effect={"depth": 3},
            results=results,
        )
    first, line = read_json_lines(path)
    assert first == {"older": 1}
    assert list(line) == KEYS
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", line["time"])
    assert line | {"time": ""} == {
        "time": "",
        "user": "",
        "role": "admin",
        "ip": "127.0.0.1",
        "action": "empty_channel",
        "target": {"topic": "t", "channel": "c\n"},
        "effect": {"depth": 3},
        "results": [results[0] | {"text": ""}, results[1]],
        "outcome": "partial",
        "request_id": answer.headers["X-Request-Id"],
    }


def test_an_effect_that_is_no_json_is_noted_as_text(tmp_path):
    assert _plain({"names": {"a"}, "n": 1}) == {"names": ["a"], "n": 1}
    assert _plain({"where": tmp_path}) == {"where": str(tmp_path)}
    assert list(_plain({"name": "\udcff"})) == ["text"]
    assert len(_plain({"name": "x" * 100_000})["text"]) == TEXT_LENGTH_MAX


def test_bytes_that_are_no_text_are_noted_and_told_all_the_same(tmp_path, noter):
    path = tmp_path / "audit"
    with endpoint_of() as endpoint:
        options = {"audit_file": str(path), "notification_http_endpoint": endpoint.url}
        options |= {"acl_trusted_cidr": ["127.0.0.1/32"], "admin_users": ["x"]}
        with probed(noter, **options) as address:
            body = b'{"action":"pause_topic","target":{"topic":"t"},"outcome":"ok"}'
            with socket.create_connection(address, timeout=10) as connection:
                connection.sendall(
                    b"POST /api/note HTTP/1.1\r\nUser-Agent: \xff\r\nX-Forwarded-User: \xfe\r\n"
                    b"Host: localhost\r\nContent-Length: %d\r\n\r\n%s" % (len(body), body)
                )
                assert connection.recv(1000).startswith(b"HTTP/1.1 200 ")
            wait_until(lambda: endpoint.bodies)
    assert read_json_lines(path)[0]["user"] == "?"
    assert told_to(endpoint)[0]["user_agent"] == "?"


def test_logins_are_in_it_and_passwords_are_not(tmp_path):
    path = tmp_path / "audit"
    users = write_users(tmp_path / "users", ("ana", "admin", "the-right-one"))
    with run_admin(f"--auth-file={users}", f"--audit-file={path}") as admin:
        log_in(admin.http, "ana", "the-wrong-one")
        log_in(admin.http, "somebody\r\nelse", "x" * 9000)
        session = cookie_header(log_in(admin.http, "ana", "the-right-one"))
        page = request(admin.http, "GET", "/topics", headers=session).text
        token = page.split('name="csrf-token" content="', 1)[1].split('"', 1)[0]
        known = session | {"X-CSRF-Token": token}
        assert request(admin.http, "PUT", "/config/log_level", b"info", known).status == 200
        assert request(admin.http, "POST", "/logout", b"", known | FORM).status == 303
        basic = {"Authorization": "Basic YW5hOm5vdC1ldmVuLWNsb3Nl"}
        assert request(admin.http, "GET", "/api/topics", headers=basic).status == 401
    found = [(line["action"], line["user"], line["outcome"]) for line in read_json_lines(path)]
    assert found == [
        ("login", "ana", "refused"),
        ("login", "somebody\r\nelse", "refused"),
        ("login", "ana", "ok"),
        ("set_config", "ana", "ok"),
        ("logout", "ana", "ok"),
        ("login", "ana", "refused"),
    ]
    for password in ("the-wrong-one", "the-right-one", "not-even-close", "xxx"):
        assert password not in path.read_text()


def test_a_flood_of_logins_does_not_fill_it(tmp_path):
    path = tmp_path / "audit"
    users = write_users(tmp_path / "users", ("ana", "admin", "right"))
    with run_admin(f"--auth-file={users}", f"--audit-file={path}") as admin:
        for number in range(60):
            log_in(admin.http, f"name{number}", "wrong")
    assert len(read_json_lines(path)) == 20  # as many as one address may try


def test_the_last_thousand_are_kept_and_are_no_burden(noter):
    results = [
        {"node": str(number), "ok": number != 299, "text": "x" * 2000} for number in range(300)
    ]
    with probed(noter) as address:
        note(address, "peek", {"topic": "é" * 2000}, times=ENTRIES_KEPT + 5)
        note(address, "pause_topic", {"topic": "t"}, "partial", results=results)
        entries = noter.audit.last()
        assert len(entries) == ENTRIES_KEPT
        assert len(noter.audit.last(3)) == 3
        assert entries[0].action == "pause_topic"
        assert len(entries[0].results) == RESULTS_KEPT
        assert entries[0].results[0].node == "299"  # what failed is kept
        assert len(entries[0].results[0].text) == TEXT_LENGTH_MAX
        assert len(entries[1].target["topic"]) == TEXT_LENGTH_MAX


def test_a_full_disk_is_logged_and_does_no_harm():
    with start_admin("--admin-user=ana", "--audit-file=/dev/full") as admin:
        for _ in range(3):
            headers = {"Sec-Fetch-Site": "cross-site"}
            assert request(admin.http, "POST", "/api/x", headers=headers).status == 403
        admin.wait_for_line("ERROR: /dev/full: no space left on device; ")
        assert request(admin.http, "GET", "/ping").status == 200
    assert "Traceback" not in admin.stderr


async def test_a_file_that_can_be_written_again_goes_on_with_a_whole_line(tmp_path, monkeypatch):
    path = tmp_path / "audit"
    room = [7]
    real = os.write

    def write(file, data):
        if room[0] == 0:
            raise OSError(28, "No space left on device")
        part = bytes(data)[: room[0]] if room[0] > 0 else data
        written = real(file, part)
        room[0] = max(0, room[0] - written) if room[0] > 0 else room[0]
        return written

    file = AuditFile(str(path))
    monkeypatch.setattr(os, "write", write)
    file.add(b'{"first":1}\n')
    await file.close(5.0)
    room[0] = -1
    file.add(b'{"second":2}\n')
    await file.close(5.0)
    assert path.read_bytes() == b'{"first\n{"second":2}\n'


async def test_lines_that_wait_for_a_disk_do_not_grow(tmp_path, monkeypatch, caplog):
    monkeypatch.setattr(logging.getLogger("nsqadmin"), "propagate", True)

    file = AuditFile(str(tmp_path / "audit"))
    for number in range(LINES_MAX + 5):
        file.add(b"%d\n" % number)
    await file.close(5.0)
    assert len((tmp_path / "audit").read_bytes().split()) == LINES_MAX
    assert "; 5 lines are lost" in caplog.text


def test_a_file_may_be_renamed_at_any_time(tmp_path, noter):
    path = tmp_path / "audit"
    with probed(noter, audit_file=str(path)) as address:
        note(address, "first")
        wait_until(lambda: path.read_text().endswith("\n"))
        path.rename(tmp_path / "audit.1")
        note(address, "second")
    assert [line["action"] for line in read_json_lines(tmp_path / "audit.1")] == ["first"]
    assert [line["action"] for line in read_json_lines(path)] == ["second"]


def test_the_endpoint_is_told_of_actions_of_nsq_in_their_order(noter):
    with endpoint_of() as endpoint:
        options = {"notification_http_endpoint": endpoint.url}
        with probed(noter, **options) as address:
            for action in sorted(ACTIONS):
                for outcome in ("ok", "partial", "failed", "refused"):
                    note(address, action, {"topic": outcome, "channel": ""}, outcome)
            for action in ("login", "peek", "export", "mute"):
                note(address, action, {"topic": "t"})
            note(address, "create_topic", {"topic": "last"}, times=20)  # the stop waits for them
    told = collections.defaultdict(list)
    for body in told_to(endpoint):
        told[body["action"]].append(body["topic"])
    assert set(told) == ACTIONS
    assert [told["create_topic"].pop() for _ in range(20)] == ["last"] * 20
    for action, outcomes in told.items():
        # NSQ tells of these even when they failed on every node.
        always = action.startswith(("pause_", "unpause_", "empty_"))
        assert outcomes == ["ok", "partial", *(["failed"] if always else [])]


def test_the_endpoint_is_told_whenever_an_action_comes():
    """Also while the session of the action before is being closed: so many turns of the loop after it was told."""
    told = []

    def add_route(app, context):
        async def note_all(asked):
            for number in range(120):
                await context.audit.note(
                    asked, "create_topic", {"topic": str(number)}, outcome="ok"
                )
                deadline = time.monotonic() + 5
                while len(endpoint.bodies) <= number and time.monotonic() < deadline:
                    await asyncio.sleep(0)
                told.append(len(endpoint.bodies))
                for _ in range(number % 60):
                    await asyncio.sleep(0)
            return web.json_response({})

        app.router.add_post(context.urls.to("/api/note"), note_all)

    with endpoint_of() as endpoint:
        url = endpoint.url
        with probed(add_route, notification_http_endpoint=url) as address:
            assert request(address, "POST", "/api/note").status == 200
    assert told == list(range(1, 121))


def test_a_dead_endpoint_and_one_that_says_no_are_logged_and_do_no_harm(monkeypatch, noter, caplog):
    monkeypatch.setattr(logging.getLogger("nsqadmin"), "propagate", True)
    with socket.socket() as closed, endpoint_of(status=300) as endpoint:
        closed.bind(("127.0.0.1", 0))
        dead = f"http://user:secret@127.0.0.1:{closed.getsockname()[1]}/hook?key=secret"
        for url, text in ((dead, "Cannot connect"), (endpoint.url, "answered 300")):
            with probed(noter, notification_http_endpoint=url) as address:
                note(address, "create_topic", {"topic": "t"}, times=3)
                wait_until(lambda text=text: f"{text}" in caplog.text)
    assert "webhook: " in caplog.text
    assert "secret" not in caplog.text


def test_a_slow_endpoint_delays_neither_actions_nor_the_stop(noter, caplog):
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"http://127.0.0.1:{silent.getsockname()[1]}/"
        with probed(noter, notification_http_endpoint=url) as address:
            # It never answers: if an action waited for it, or the stop, they would not end in time.
            note(address, "create_topic", {"topic": "t"}, times=QUEUE_MAX + 50)
    assert "was not sent: 1000 wait" in caplog.text
    assert "1000 notifications were not sent" in caplog.text


HEADERS = {
    "Authorization": "Basic YW5hOm5vYm9keSBjaGVja3MgaXQ=",
    "User-Agent": "a-script/1.0",
    "X-Scheme": "https",
    "Content-Type": "application/json",
}


def act(address, node):
    """The eleven actions of NSQ, as scripts ask for them, on a topic that is there."""
    for method, path, body in (
        ("POST", "/api/topics", {"topic": "new"}),
        ("POST", "/api/topics?x=%2F", {"topic": "t", "channel": "d"}),
        ("POST", "/api/topics/t", {"action": "pause"}),
        ("POST", "/api/topics/t", {"action": "unpause"}),
        ("POST", "/api/topics/t", {"action": "empty"}),
        ("POST", "/api/topics/t/c", {"action": "pause"}),
        ("POST", "/api/topics/t/c", {"action": "unpause"}),
        ("POST", "/api/topics/t/c", {"action": "empty"}),
        ("POST", "/api/topics/t/missing", {"action": "empty"}),
        ("DELETE", "/api/topics/t/c", None),
        ("DELETE", f"/api/nodes/{node}", {"topic": "t"}),
        ("DELETE", "/api/topics/new", None),
        ("DELETE", "/api/topics/never-there", None),
    ):
        data = json.dumps(body).encode() if body is not None else None
        request(address, method, path, data, HEADERS)


@pytest.mark.go
def test_the_endpoint_is_told_what_nsqadmin_of_go_tells(tmp_path):
    """Field by field, in the same order; what must differ has the same form."""
    told = {}
    with LiveCluster(tmp_path, ("go",), ("go",)) as cluster:
        for kind in ("nsqfast", "go"):
            cluster.make("t", "c")
            with endpoint_of() as endpoint:
                flag = f"--notification-http-endpoint={endpoint.url}"
                with cluster.admin(kind, flag) as admin:
                    act(admin.http, text_of(cluster.nsqds[0].http))
                    wait_until(
                        lambda known=endpoint: "delete_topic" in str(known.bodies),
                        what=lambda known=endpoint: (known.bodies, admin.stderr),
                    )
                    address = text_of(admin.http)
            told[kind] = told_to(endpoint)
            for body in told[kind]:
                assert abs(body["timestamp"] - time.time()) < 60
                assert re.fullmatch(r"127\.0\.0\.1:\d+", body["remote_ip"])
                body["url"] = body["url"].replace(address, "HOST")
                body["remote_ip"] = body["timestamp"] = ""
            told[kind].sort(key=json.dumps)
    assert [list(body) for body in told["nsqfast"]] == [list(body) for body in told["go"]]
    assert told["nsqfast"] == told["go"]
    assert {body["action"] for body in told["go"]} == ACTIONS
