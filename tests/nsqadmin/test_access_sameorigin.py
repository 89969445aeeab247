"""Requests that another site has a browser send."""

import socket

import pytest
from aiohttp import web

from nsqfast.errors import OptionsError
from nsqfast.nsqadmin.access.identity import csrf_token
from nsqfast.nsqadmin.access.origin import OwnNames
from nsqfast.nsqadmin.access.permissions import admin_only
from nsqfast.nsqadmin.options import Options
from nsqfast.wire.refusals import REFUSED
from support.access import FORM, cookie_header, log_in, probed, run_admin, write_users
from support.web import request

PROXIED = {"X-Forwarded-User": "ana", "X-Forwarded-Host": "127.0.0.1"}


def add_probes(app, context):
    async def do(asked):
        return web.json_response({"did": asked.path, "read": (await asked.read()).decode()})

    async def token(asked):
        return web.Response(text=csrf_token(asked))

    app.router.add_post(context.urls.to("/api/do"), admin_only(do))
    app.router.add_post(context.urls.to("/ui/do"), admin_only(do))
    app.router.add_get(context.urls.to("/ui/token"), token)


@pytest.fixture(scope="module")
def address():
    with probed(add_probes, allowed_hosts=["admin.example", "Other.Example."]) as address:
        yield address


def post(address, headers, body=b"{}", path="/api/do"):
    return request(address, "POST", path, body, headers).status


@pytest.mark.parametrize("site", ["cross-site", "same-site", "none", "", "same-origin, cross-site"])
def test_what_a_browser_says_comes_from_elsewhere_is_refused(address, site):
    assert post(address, {"Sec-Fetch-Site": site}) == 403
    assert request(address, "GET", "/ping", headers={"Sec-Fetch-Site": site}).status == 200


@pytest.mark.parametrize(
    ("origin", "status"),
    [
        ("http://{host}", 200),
        ("HTTP://{host}", 200),
        ("https://{host}", 200),  # the proxy in front of us took the encryption off
        ("http://evil.example", 403),
        ("http://{host}.evil.example", 403),
        ("http://evil.example/{host}", 403),
        ("http://{host}@evil.example", 403),
        ("http://127.0.0.1:1", 403),
        ("http://127.0.0.1", 403),
        ("null", 403),
        ("", 403),
        ("http://[", 403),
    ],
)
def test_the_origin_has_to_be_ours(address, origin, status):
    given = origin.format(host="{}:{}".format(*address))
    assert post(address, {"Origin": given}) == status


@pytest.mark.parametrize(("scheme", "port", "other"), [("https", 443, 80), ("http", 80, 443)])
def test_a_port_that_goes_without_saying_is_the_same(address, scheme, port, other):
    name = "admin.example"
    for host in (name, f"{name}:{port}"):
        for origin in (f"{scheme}://{name}", f"{scheme}://{name}:{port}"):
            assert post(address, {"Host": host, "Origin": origin}) == 200
    assert post(address, {"Host": f"{name}:{other}", "Origin": f"{scheme}://{name}"}) == 403


def test_a_script_without_these_headers_goes_on_working(address):
    assert post(address, {}) == 200
    assert post(address, FORM, b"{}") == 200  # what curl -d says


def test_the_host_that_the_browser_asked_for_is_believed_from_named_proxies():
    given = {"X-Forwarded-Host": "admin.example", "Origin": "https://admin.example"}
    with probed(add_probes) as address:
        assert post(address, given) == 403
    with probed(add_probes, acl_trusted_cidr=["127.0.0.1/32"]) as address:
        assert post(address, given) == 200
        assert post(address, given | {"Origin": "https://evil.example"}) == 403


@pytest.mark.parametrize(
    ("host", "status"),
    [
        ("evil.example", 403),
        ("evil.example.", 403),
        ("localhost.evil.example", 403),
        ("127.0.0.1.evil.example", 403),
        ("admin.example.evil.example", 403),
        ("[", 403),
        ("localhost", 200),
        ("LocalHost", 200),
        ("nsq.localhost", 200),
        ("127.0.0.1", 200),
        ("[::1]", 200),
        ("10.1.2.3", 200),
        ("ADMIN.example", 200),
        ("other.example", 200),
        (socket.gethostname(), 200),
    ],
)
def test_a_name_that_was_bound_anew_is_no_name_of_ours(address, host, status):
    """A page of such a name neither changes nor reads anything, whatever else it says, and nor does a script."""
    before = REFUSED["unknown_host"]
    for given in (host, f"{host}:{address[1]}", f"{host}:8080"):
        assert request(address, "GET", "/ping", headers={"Host": given}).status == status
        assert request(address, "GET", "/metrics", headers={"Host": given}).status == status
        answer = request(address, "POST", "/api/do", b"{}", {"Host": given, **PROXIED})
        assert answer.status == status
        if status == 403:
            assert answer.json() == {"message": "UNKNOWN_HOST"}
    assert REFUSED["unknown_host"] - before == (9 if status == 403 else 0)


def test_a_request_without_a_host_is_that_of_an_old_script(address):
    with socket.create_connection(address, 10) as connection:
        connection.sendall(b"GET /ping HTTP/1.0\r\n\r\n")
        assert connection.makefile("rb").readline() == b"HTTP/1.0 200 OK\r\n"


def test_who_is_refused_by_name_reads_what_to_set(address):
    headers = {"Host": "evil.example", "Accept": "text/html"}
    assert "--allowed-host" in request(address, "GET", "/", headers=headers).text


def test_a_login_belongs_to_its_name_anyway(tmp_path):
    users = write_users(tmp_path / "users", ("ana", "admin", "right"))
    with probed(add_probes, auth_file=users) as address:
        given = f"nsq.example:{address[1]}"
        headers = {"Host": given, "Origin": f"http://{given}"}
        assert log_in(address, "ana", "right", headers=headers).status == 303


@pytest.mark.parametrize(
    ("address", "name"), [("0.0.0.0:0", ""), (":0", ""), ("localhost:0", "localhost")]
)
def test_every_listener_looks_at_names(address, name):
    with run_admin(f"--http-address={address}") as admin:
        for host in (name, "evil.example", ":80"):
            answer = request(
                admin.http, "GET", "/api/nodes", headers={"Host": host} if host else {}
            )
            assert answer.status == (502 if host == name else 403)


@pytest.mark.parametrize("name", ["", "http://nsq.example", "nsq.example:80", "a b", "ä.example"])
def test_what_is_no_name_is_refused_at_the_start(name):
    with pytest.raises(OptionsError, match="--allowed-host"):
        OwnNames(Options(allowed_hosts=[name]))


@pytest.mark.parametrize(
    ("kind", "status"),
    [
        ("application/json", 200),
        ("application/json; charset=utf-8", 200),
        ("application/x-www-form-urlencoded", 200),
        ("text/plain", 415),
        ("multipart/form-data; boundary=x", 415),
        ("application/json-x", 415),
        (None, 415),
    ],
)
def test_our_own_pages_send_json_or_forms(address, kind, status):
    headers = {} if kind is None else {"Content-Type": kind}
    assert post(address, headers, b"1", "/ui/do") == status
    assert post(address, headers, b"1", "/api/do") == 200


def test_a_login_by_cookie_needs_its_token(tmp_path):
    users = write_users(
        tmp_path / "users", ("ana", "admin", "right"), ("bea", "admin", "right too")
    )
    with probed(add_probes, auth_file=users) as address:
        ana = cookie_header(log_in(address, "ana", "right"))
        bea = cookie_header(log_in(address, "bea", "right too"))
        token = request(address, "GET", "/ui/token", headers=ana).body.decode()
        other = request(address, "GET", "/ui/token", headers=bea).body.decode()
        assert len(token) == 64
        assert token != other
        assert post(address, ana) == 403
        assert post(address, ana | {"X-CSRF-Token": other}) == 403
        assert post(address, ana | {"X-CSRF-Token": "é"}) == 403
        assert post(address, ana | {"X-CSRF-Token": token}) == 200
        body = f"csrf={token}&topic=a".encode()
        answer = request(address, "POST", "/ui/do", body, ana | FORM)
        assert answer.json() == {"did": "/ui/do", "read": body.decode()}
        assert post(address, ana | FORM, b"csrf=" + other.encode()) == 403
        parts = f'--x\r\nContent-Disposition: form-data; name="csrf"\r\n\r\n{token}\r\n--x--\r\n'
        kind = {"Content-Type": "multipart/form-data; boundary=x"}
        assert post(address, ana | kind, parts.encode()) == 403
        # The token alone does not let another site through.
        assert post(address, ana | {"X-CSRF-Token": token, "Sec-Fetch-Site": "cross-site"}) == 403


def test_another_site_cannot_log_somebody_in_or_out(tmp_path):
    users = write_users(tmp_path / "users", ("ana", "admin", "right"))
    with probed(add_probes, auth_file=users) as address:
        foreign = {"Origin": "http://evil.example"}
        assert log_in(address, "ana", "right", headers=foreign).status == 403
        session = cookie_header(log_in(address, "ana", "right"))
        assert post(address, session | foreign, b"", "/logout") == 403
        assert request(address, "GET", "/ui/token", headers=session).status == 200
