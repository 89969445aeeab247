"""Requests that another site has a browser send."""

import pytest
from aiohttp import web

from nsqfast.nsqadmin.access.identity import csrf_token
from nsqfast.nsqadmin.access.roles import admin_only
from support.access import FORM, cookie_header, log_in, probed, write_users
from support.web import request

JSON = {"Content-Type": "application/json"}


def add_probes(app, context):
    async def do(asked):
        return web.json_response({"did": asked.path, "read": (await asked.read()).decode()})

    async def token(asked):
        return web.Response(text=csrf_token(asked))

    app.router.add_post(context.urls.to("/api/do"), admin_only(do))
    app.router.add_post(context.urls.to("/ui/do"), admin_only(do))
    app.router.add_get(context.urls.to("/ui/token"), token)


@pytest.fixture
def address(monkeypatch):
    with probed(monkeypatch, add_probes) as address:
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


def test_a_port_that_goes_without_saying_is_the_same(address):
    for host in ("admin.example", "admin.example:443"):
        for origin in ("https://admin.example", "https://admin.example:443"):
            assert post(address, {"Host": host, "Origin": origin}) == 200
    assert post(address, {"Host": "admin.example:80", "Origin": "https://admin.example"}) == 403


def test_a_script_without_these_headers_goes_on_working(address):
    assert post(address, {}) == 200
    assert post(address, FORM, b"{}") == 200  # what curl -d says


def test_the_host_that_the_browser_asked_for_is_believed_from_named_proxies(monkeypatch):
    given = {"X-Forwarded-Host": "admin.example", "Origin": "https://admin.example"}
    with probed(monkeypatch, add_probes) as address:
        assert post(address, given) == 403
    with probed(monkeypatch, add_probes, acl_trusted_cidr=["127.0.0.1/32"]) as address:
        assert post(address, given) == 200
        assert post(address, given | {"Origin": "https://evil.example"}) == 403


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
    assert post(address, headers, b"{}", "/ui/do") == status
    assert post(address, headers, b"{}", "/api/do") == 200


def test_a_login_by_cookie_needs_its_token(monkeypatch, tmp_path):
    users = write_users(
        tmp_path / "users", ("ana", "admin", "right"), ("bea", "admin", "right too")
    )
    with probed(monkeypatch, add_probes, auth_file=users) as address:
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
        # The token alone does not let another site through.
        assert post(address, ana | {"X-CSRF-Token": token, "Sec-Fetch-Site": "cross-site"}) == 403


def test_another_site_cannot_log_somebody_in_or_out(monkeypatch, tmp_path):
    users = write_users(tmp_path / "users", ("ana", "admin", "right"))
    with probed(monkeypatch, add_probes, auth_file=users) as address:
        foreign = {"Origin": "http://evil.example"}
        assert log_in(address, "ana", "right", headers=foreign).status == 403
        session = cookie_header(log_in(address, "ana", "right"))
        assert post(address, session | foreign, b"", "/logout") == 403
        assert request(address, "GET", "/ui/token", headers=session).status == 200
