"""Headers that every response has, and answers for what went wrong."""

import logging
import re
import socket

import pytest
from aiohttp import web

from nsqfast.nsqadmin.access.answers import SecurityHeaders
from nsqfast.nsqadmin.options import Options
from support.access import log_in, probed, run_admin, start_admin, write_users
from support.waiting import wait_until
from support.web import request

POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
    "form-action 'self'; base-uri 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; "
    "trusted-types 'none'"
)
HEADERS = {
    "Content-Security-Policy": POLICY,
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "same-origin",
    "X-Frame-Options": "DENY",
    "Cross-Origin-Opener-Policy": "same-origin",
}
HTML = {"Accept": "text/html,*/*"}
SECRET = "what the browser must not see"


def add_probes(app, context):
    async def fail(_request):
        raise RuntimeError(SECRET)

    async def stream(asked):
        answer = web.StreamResponse()
        answer.headers["Content-Security-Policy"] = "default-src *"
        await answer.prepare(asked)
        await answer.write(b"part")
        if "fails" in asked.query:
            raise RuntimeError(SECRET)
        return answer

    async def hostile(_request):
        raise web.HTTPBadRequest(text="<img src=x onerror=alert(1)>")

    probes = {"/probe/fail": fail, "/api/probe/fail": fail, "/probe/stream": stream}
    for path, probe in (probes | {"/probe/hostile": hostile}).items():
        app.router.add_get(context.urls.to(path), probe)


@pytest.fixture(scope="module")
def address():
    with probed(add_probes) as address:
        yield address


def raw(address, data):
    """What comes back until the other end closes."""
    with socket.create_connection(address, timeout=10) as connection:
        connection.sendall(data)
        return b"".join(iter(lambda: connection.recv(65536), b""))


def check(headers):
    assert {name: headers.get(name) for name in HEADERS} == HEADERS


@pytest.mark.parametrize("accept", ["text/html", "*/*"])
def test_every_response_has_them(address, accept):
    for method, target, status in (
        ("GET", "/ping", 200),
        ("HEAD", "/ping", 405),
        ("GET", "/nowhere", 404),
        ("GET", "/api/nowhere", 404),
        ("DELETE", "/ping", 405),
        ("GET", "/login", 404),
        ("GET", "/probe/fail", 500),
        ("GET", "/api/probe/fail", 500),
        ("GET", "/probe/stream", 200),
        ("GET", "/probe/hostile", 400),
    ):
        answer = request(address, method, target, headers={"Accept": accept})
        assert answer.status == status, target
        check(answer.headers)
        assert answer.headers["Cache-Control"] == "no-store"
        assert re.fullmatch("[0-9a-f]{16}", answer.headers["X-Request-Id"])


def test_answers_before_and_after_the_login_have_them(tmp_path):
    users = write_users(tmp_path / "users", ("ana", "admin", "right"))
    with run_admin(f"--auth-file={users}") as admin:
        answers = [
            request(admin.http, "GET", "/"),
            request(admin.http, "GET", "/login"),
            request(admin.http, "GET", "/api/topics"),
            request(admin.http, "POST", "/nowhere"),
            log_in(admin.http, "ana", "wrong"),
            log_in(admin.http, "ana", "right"),
        ]
        # Scripts and styles of the login page, which are open.
        files = re.findall(r'(?:href|src)="(/static/[^"]+)"', answers[1].body.decode())
        found = [request(admin.http, "GET", file) for file in [*files, "/static/nowhere"]]
    assert [answer.status for answer in answers] == [303, 200, 401, 401, 403, 303]
    assert files
    assert [answer.status for answer in found] == [*[200] * len(files), 404]
    for answer in answers + found:
        check(answer.headers)


def test_what_is_no_request_has_them_and_leaves_no_traceback():
    garbage = (
        b"GARBAGE\r\n\r\n",
        b"GET / HTTP/9.9\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: localhost\r\nA: " + b"x" * 20_000 + b"\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03 this is TLS",
        b"POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: -1\r\n\r\n",
    )
    with start_admin() as admin:
        for data in garbage:
            head, _, body = raw(admin.http, data).decode().partition("\r\n\r\n")
            head = head.split("\r\n")
            assert body == "BAD_REQUEST"
            assert re.fullmatch(r"HTTP/1.\d 400 .*", head[0])
            check(dict(line.split(": ", 1) for line in head[1:]))
        wait_until(lambda: admin.stderr.count(") sent what is no request") == len(garbage))
    assert "HTTP: client(127.0.0.1:" in admin.stderr
    assert "Traceback" not in admin.stderr


def test_pictures_of_graphite_are_allowed_where_the_browser_loads_them():
    def policy(**options):
        return SecurityHeaders(Options(**options)).headers["Content-Security-Policy"]

    with_graphite = policy(graphite_url="https://graphite.example:8080/render?x=1")
    assert "img-src 'self' data: https://graphite.example:8080;" in with_graphite
    assert with_graphite.replace(" https://graphite.example:8080", "") == POLICY
    assert policy(graphite_url="http://g", proxy_graphite=True) == POLICY


def test_our_fault_is_logged_once_and_shown_to_nobody(address, caplog, monkeypatch):
    monkeypatch.setattr(logging.getLogger("nsqadmin"), "propagate", True)
    page = request(address, "GET", "/probe/fail", headers=HTML)
    script = request(address, "GET", "/api/probe/fail")
    for answer in (page, script):
        assert answer.status == 500
        assert SECRET.encode() not in answer.body
        assert b"Traceback" not in answer.body
    assert b"500 Internal Server Error" in page.body
    assert script.json() == {"message": "INTERNAL_ERROR"}
    failed = [record for record in caplog.records if record.exc_info]
    assert [record.getMessage() for record in failed] == [
        f"HTTP: GET /probe/fail failed (request {page.headers['X-Request-Id']})",
        f"HTTP: GET /api/probe/fail failed (request {script.headers['X-Request-Id']})",
    ]


def test_an_answer_that_fails_after_it_began_is_cut_off(address, caplog, monkeypatch):
    monkeypatch.setattr(logging.getLogger("nsqadmin"), "propagate", True)
    caplog.set_level(logging.INFO, "nsqadmin")
    answer = raw(address, b"GET /probe/stream?fails HTTP/1.1\r\nHost: localhost\r\n\r\n")
    assert answer.count(b"HTTP/1.1") == 1
    assert answer.endswith(b"4\r\npart\r\n")  # and not the last, empty piece
    assert SECRET.encode() not in answer
    assert "0 GET /probe/stream?fails" in [record.getMessage()[:25] for record in caplog.records]


def test_pages_show_texts_of_others_as_text(address):
    answer = request(address, "GET", "/probe/hostile", headers=HTML)
    assert answer.headers["Content-Type"] == "text/html; charset=utf-8"
    assert b"<img" not in answer.body
    assert b"&lt;img" in answer.body


def test_a_request_is_one_line_of_the_log_in_the_form_of_nsq():
    with start_admin() as admin:
        # What is asked for constantly is not logged, unless it fails.
        request(admin.http, "GET", "/ping")
        request(admin.http, "GET", "/static/nowhere")
        request(admin.http, "GET", "/a%0d%0a[nsqadmin]?x=%0a&y=%1b")
        admin.wait_for_line(" 404 GET /a")
        lines = [line for line in admin.lines if " GET " in line]
    form = r".* INFO: 404 GET /a%0d%0a\[nsqadmin\]\?x=%0a&y=%1b \(127\.0\.0\.1:\d+\) [\d.]+(µs|ms)"
    assert len(lines) == 2
    assert " 404 GET /static/nowhere " in lines[0]
    assert re.fullmatch(form, lines[1])


def test_a_request_id_is_taken_from_named_proxies_alone():
    given = {"X-Request-Id": "of-the-proxy.1"}
    with run_admin() as admin:
        answer = request(admin.http, "GET", "/ping", headers=given)
        assert answer.headers["X-Request-Id"] != given["X-Request-Id"]
    with run_admin("--acl-trusted-cidr=127.0.0.1/32") as admin:
        answer = request(admin.http, "GET", "/ping", headers=given)
        assert answer.headers["X-Request-Id"] == given["X-Request-Id"]
        answer = request(admin.http, "GET", "/ping", headers={"X-Request-Id": "two words"})
        assert re.fullmatch("[0-9a-f]{16}", answer.headers["X-Request-Id"])
