"""Requests that another site has a browser send."""

import pytest
from aiohttp import web

from nsqfast.errors import OptionsError
from nsqfast.nsqadmin.access.identity import csrf_token
from nsqfast.nsqadmin.access.permissions import admin_only
from nsqfast.nsqadmin.access.rebinding import Names, is_loopback
from nsqfast.nsqadmin.options import Options
from support.access import FORM, cookie_header, log_in, probed, run_admin, write_users
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


@pytest.fixture(scope="module")
def address():
    with probed(add_probes) as address:
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
        ("evil.example:{port}", 403),
        ("evil.example.:{port}", 403),
        ("localhost.evil.example:{port}", 403),
        ("127.0.0.1.evil.example:{port}", 403),
        ("localhost:{port}", 200),
        ("LocalHost:{port}", 200),
        ("nsq.localhost:{port}", 200),
        ("127.0.0.1:{port}", 200),
        ("[::1]:{port}", 200),
        ("10.1.2.3:{port}", 200),
        ("nsq.example", 200),  # a proxy's port
        ("nsq.example:8080", 200),
    ],
)
def test_a_name_that_was_bound_anew_is_no_name_of_ours(address, host, status):
    given = host.format(port=address[1])
    same = {"Host": given, "Origin": f"http://{given}"}
    assert post(address, same) == status
    assert post(address, same | {"Sec-Fetch-Site": "same-origin"}) == status
    assert post(address, {"Host": given}) == 200  # a script
    assert request(address, "GET", "/ping", headers=same).status == 200


def test_a_page_that_came_encrypted_came_through_a_proxy(address):
    given = f"nsq.example:{address[1]}"
    assert post(address, {"Host": given, "Origin": f"https://{given}"}) == 200


def test_names_can_be_allowed():
    names = ["nsq.example", "Other.Example."]
    with probed(add_probes, allowed_hosts=names) as address:
        for name, status in (("NSQ.example", 200), ("other.example", 200), ("evil.example", 403)):
            given = f"{name}:{address[1]}"
            assert post(address, {"Host": given, "Origin": f"http://{given}"}) == status


def test_the_header_of_a_proxy_does_not_help_a_name_that_was_bound_anew():
    options = {"admin_users": ["ana"], "acl_trusted_cidr": ["127.0.0.1/32"]}
    with probed(add_probes, **options) as address:
        given = f"evil.example:{address[1]}"
        headers = {"Host": given, "Origin": f"http://{given}", "X-Forwarded-User": "ana"}
        answer = request(address, "POST", "/api/do", b"{}", headers)
        assert answer.status == 403
        assert "--allowed-host=evil.example" in answer.json()["message"]


def test_a_login_belongs_to_its_name_anyway(tmp_path):
    users = write_users(tmp_path / "users", ("ana", "admin", "right"))
    with probed(add_probes, auth_file=users) as address:
        given = f"nsq.example:{address[1]}"
        headers = {"Host": given, "Origin": f"http://{given}"}
        assert log_in(address, "ana", "right", headers=headers).status == 303


@pytest.mark.parametrize(
    ("address", "allowed", "status"),
    [
        ("0.0.0.0:0", [], 200),  # its names are the operator's
        ("0.0.0.0:0", ["nsq.example"], 403),
        ("localhost:0", [], 403),
    ],
)
def test_which_listeners_look_at_names(address, allowed, status):
    flags = [f"--allowed-host={name}" for name in allowed]
    with run_admin(f"--http-address={address}", *flags) as admin:
        given = f"evil.example:{admin.http[1]}"
        headers = {"Host": given, "Origin": f"http://{given}", **JSON}
        answer = request(admin.http, "POST", "/ui/problems/unmute", b'{"id": "x"}', headers)
        assert answer.status == (404 if status == 200 else status)


def test_addresses_of_the_loopback_interface():
    for host in ("127.0.0.1", "127.1.2.3", "[::1]", "::1", "localhost", "LOCALHOST"):
        assert is_loopback(host), host
    for host in ("", "0.0.0.0", "[::]", "10.0.0.1", "nsq.example", "[::ffff:10.0.0.1]"):
        assert not is_loopback(host), host


@pytest.mark.parametrize("name", ["", "http://nsq.example", "nsq.example:80", "a b", "ä.example"])
def test_what_is_no_name_is_refused_at_the_start(name):
    with pytest.raises(OptionsError, match="--allowed-host"):
        Names(Options(allowed_hosts=[name]))


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
