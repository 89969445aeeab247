"""Who is an admin, and that nobody else gets through."""

import http.client
import re

import pytest
from aiohttp import web

from nsqfast.errors import OptionsError
from nsqfast.nsqadmin.access.origin import Proxies, parse_peer_ip
from nsqfast.nsqadmin.access.permissions import admin_only, export_only
from nsqfast.nsqadmin.access.users import user_of
from nsqfast.nsqadmin.options import parse
from support.access import cookie_header, log_in, probed, refusal, run_admin, with_nsqd, write_users
from support.json_lines import read_json_lines
from support.waiting import wait_until
from support.web import request

HEADER = "X-Forwarded-User"
SAFE = {"GET", "HEAD", "OPTIONS"}
# Whoever has to log in must be able to; and a viewer may leave.
FOR_ALL = {("POST", "/login"), ("POST", "/logout")}
# A new route has to be named in one of these.
OPEN_READS = {"/login", "/ping", "/livez", "/readyz", "/static/x/x", "/ui/theme"}
ADMIN_READS = {
    *("/audit", "/policies", "/ui/policies", "/ui/effect", "/ui/actions/x"),
    *("/ui/messages/changes/x", "/config/x"),
}
VIEWER_READS = {
    *("/", "/topics", "/topics/x", "/topics/x/x", "/nodes", "/nodes/x", "/lookup", "/counter"),
    *("/problems", "/messages", "/topics/x/x/messages", "/topics/x/x/deferred"),
    *("/topics/x/x/dead", "/ui/dead"),
    *("/ui/live", "/ui/series", "/ui/export", "/ui/messages", "/ui/problems", "/ui/silences"),
    "/metrics",
    *("/api/topics", "/api/topics/x", "/api/topics/x/x", "/api/nodes", "/api/nodes/x"),
    *("/api/counter", "/api/graphite"),
}


def add_probes(app, context):
    async def do(asked):
        return web.json_response({"did": asked.path, "user": user_of(asked).name})

    for path, guard in (
        ("/api/probe", admin_only),
        ("/probe", admin_only),
        ("/ui/probe/export", export_only),
    ):
        app.router.add_route("*", context.urls.to(path), guard(do))


def ask(address, method, target, name=None):
    headers = {} if name is None else {HEADER: name}
    return request(address, method, target, headers=headers).status


@pytest.mark.parametrize(("proxies", "shown"), [([], ""), (["127.0.0.0/8"], "ana")])
def test_everybody_is_admin_where_nothing_is_configured(proxies, shown):
    with probed(add_probes, acl_trusted_cidr=proxies) as address:
        assert ask(address, "POST", "/api/probe") == 200
        answer = request(address, "POST", "/api/probe", headers={HEADER: "ana"})
        assert (answer.status, answer.json()["user"]) == (200, shown)


def test_the_header_names_the_admins(tmp_path):
    audit = tmp_path / "audit"
    with probed(add_probes, admin_users=["ana", "bo"], audit_file=str(audit)) as at:
        others = ("vic", "ANA", "ana ,", "ana, vic", "vic, ana", "ana\tx", "", None)
        found = [ask(at, "POST", "/api/probe", name) for name in ("ana", "bo", *others)]
        assert found == [200] * 2 + [403] * len(others)  # a name is compared whole
        assert request(at, "POST", "/api/probe").json() == {"message": "FORBIDDEN"}
        claimed = {"Accept": "text/html", "X-Forwarded-For": "198.51.100.4"}
        page = request(at, "GET", "/probe", headers=claimed)
        assert page.status == 403
        assert b"You may not do this" in page.body
        assert ask(at, "GET", "/ui/probe/export", "vic") == 200
    refused = [line for line in read_json_lines(audit) if line["outcome"] == "refused"]
    assert [line["action"] for line in refused] == [
        *["POST /api/probe"] * (len(others) + 1),
        "GET /probe",
    ]
    assert refused[0]["user"] == "vic"
    assert {(line["role"], line["ip"]) for line in refused} == {("viewer", "127.0.0.1")}


AUDIT = ["/audit", "/ui/live?view=/audit", "/ui/export?view=/audit&table=audit"]


def test_the_audit_is_for_admins_where_there_are_any(tmp_path):
    audit = tmp_path / "audit"
    with run_admin("--admin-user=ana", f"--audit-file={audit}") as admin:
        assert ask(admin.http, "POST", "/api/topics", "vic") == 403
        for target in AUDIT:
            page = {HEADER: "vic", "Accept": "text/html"}
            answer = request(admin.http, "GET", target, headers=page)
            assert answer.status == 403
            assert b"127.0.0.1" not in answer.body
            answer = request(admin.http, "GET", target, headers={HEADER: "ana"})
            assert answer.status == 200
            assert b"vic" in answer.body
        for name, is_led in (("ana", True), ("vic", False)):
            page = request(admin.http, "GET", "/nodes", headers={HEADER: name})
            assert (page.status, b'href="/audit"' in page.body) == (200, is_led)
            assert b"No login configured" not in page.body
        wait_until(lambda: len(read_json_lines(audit)) == 5)  # an export of ana's among them
        refused = [line for line in read_json_lines(audit) if line["user"] == "vic"]
        assert [line["action"] for line in refused[1:]] == [
            "GET " + target.partition("?")[0] for target in AUDIT
        ]
    with run_admin() as admin:
        for target in AUDIT:
            assert request(admin.http, "GET", target).status == 200
        assert b"No login configured" in request(admin.http, "GET", "/topics").body


def test_a_header_that_is_sent_twice_names_nobody(tmp_path):
    audit = tmp_path / "audit"
    with probed(add_probes, admin_users=["ana"], audit_file=str(audit)) as address:
        connection = http.client.HTTPConnection(*address, timeout=10)
        connection.putrequest("POST", "/api/probe")
        for name in ("ana", "vic"):
            connection.putheader(HEADER, name)
        connection.endheaders()
        assert connection.getresponse().status == 403
        connection.close()
    (line,) = read_json_lines(audit)
    assert line["effect"] == {"reason": f"{HEADER} was sent 2 times"}


def test_a_header_from_elsewhere_is_ignored_and_audited(tmp_path):
    """A named proxy is believed, and so is the address that it saw."""
    audit = tmp_path / "audit"
    options = {"admin_users": ["ana"], "audit_file": str(audit)}
    with probed(add_probes, acl_trusted_cidr=["192.0.2.0/24"], **options) as address:
        assert ask(address, "POST", "/api/probe", "ana") == 403
        assert ask(address, "GET", "/ui/probe/export", "ana") == 200
    with probed(add_probes, acl_trusted_cidr=["127.0.0.0/8"], **options) as address:
        assert ask(address, "POST", "/api/probe", "ana") == 200
        for given in ("203.0.113.9, 198.51.100.4, 127.0.0.2", "198.51.100.4", "not an address"):
            headers = {"X-Forwarded-For": given}
            assert request(address, "POST", "/api/probe", headers=headers).status == 403
    line, *others = read_json_lines(audit)
    assert (line["user"], line["role"], line["outcome"]) == ("", "viewer", "refused")
    assert line["effect"] == {"reason": f"{HEADER} came from an address outside --acl-trusted-cidr"}
    assert [line["ip"] for line in others] == ["198.51.100.4", "198.51.100.4", "127.0.0.1"]


def test_flags_for_bodies_and_exports():
    with probed(add_probes, admin_users=["ana"], viewer_sees_bodies=True) as address:
        assert ask(address, "POST", "/api/probe", "vic") == 403
    with probed(add_probes, no_export=True) as address:
        assert ask(address, "GET", "/ui/probe/export") == 403
        assert ask(address, "POST", "/api/probe") == 200


@pytest.fixture(scope="module")
def routes():
    """(method, path) of every route that there is."""
    found = set()

    def look(app, _context):
        for route in app.router.routes():
            methods = ("GET", "POST") if route.method == "*" else (route.method,)
            path = re.sub(r"\{[^{}]*\}", "x", route.resource.canonical)
            found.update((method, path) for method in methods)

    with probed(look):
        pass
    assert found >= FOR_ALL | {("DELETE", "/api/topics/x"), ("PUT", "/config/x")}
    return sorted(found - FOR_ALL)


@pytest.fixture
def changes(routes):
    """Those that change something."""
    return [each for each in routes if each[0] not in SAFE]


def statuses(admin, routes, headers):
    """Of one request each; redirects are not followed."""
    given = {"Content-Type": "application/json", **headers}
    return {
        (method, path): request(admin.http, method, path, b"{}", given).status
        for method, path in routes
    }


def with_token(admin, answer):
    """What a page of somebody who has just logged in sends."""
    session = cookie_header(answer)
    page = request(admin.http, "GET", "/topics", headers=session).body.decode()
    token = re.search(r'name="csrf-token" content="([0-9a-f]+)"', page)[1]
    return session | {"X-CSRF-Token": token}


def test_only_admins_by_header_get_through_routes_that_change_something(changes):
    flags = ("--admin-user=ana", "--acl-trusted-cidr=127.0.0.1/32")
    with run_admin(*flags) as admin:
        for name in ("vic", ""):
            found = statuses(admin, changes, {HEADER: name})
            assert found == dict.fromkeys(changes, 403)
        assert not {401, 403} & set(statuses(admin, changes, {HEADER: "ana"}).values())


def test_only_admins_by_login_get_through_routes_that_change_something(changes, tmp_path):
    users = write_users(tmp_path / "users", ("vic", "viewer", "right"), ("ana", "admin", "right"))
    with run_admin(f"--auth-file={users}") as admin:
        basic = {"Authorization": "Basic dmljOnJpZ2h0"}
        assert statuses(admin, changes, basic) == dict.fromkeys(changes, 403)
        assert statuses(admin, changes, {}) == dict.fromkeys(changes, 401)
        viewer, boss = (with_token(admin, log_in(admin.http, n, "right")) for n in ("vic", "ana"))
        assert statuses(admin, changes, viewer) == dict.fromkeys(changes, 403)
        assert not {401, 403} & set(statuses(admin, changes, boss).values())
        # The role is not all: another site has no token.
        del boss["X-CSRF-Token"]
        assert statuses(admin, changes, boss) == dict.fromkeys(changes, 403)


def test_of_every_route_it_is_decided_who_may_read_it(routes, tmp_path):
    reads = {path for method, path in routes if method in SAFE}
    assert reads == OPEN_READS | VIEWER_READS | ADMIN_READS
    users = write_users(tmp_path / "users", ("vic", "viewer", "right"), ("ana", "admin", "right"))
    with run_admin(f"--auth-file={users}") as admin:

        def denied(headers):
            found = statuses(
                admin, [("GET", path) for path in reads - {"/login", "/ui/theme"}], headers
            )
            return {path for (_, path), status in found.items() if status in (401, 403, 303)}

        assert denied({}) == VIEWER_READS | ADMIN_READS
        assert denied({"Authorization": "Basic dmljOnJpZ2h0"}) == ADMIN_READS
        assert denied({"Authorization": "Basic YW5hOnJpZ2h0"}) == set()


@pytest.mark.parametrize("method", ["GET", "PUT"])
@pytest.mark.parametrize("flags", [[], ["--acl-trusted-cidr=127.0.0.1/32"]])
def test_settings_are_for_admins_whatever_address_a_viewer_has(method, flags):
    with run_admin("--admin-user=ana", *flags) as admin:
        for name, status in (("", 403), ("vic", 403), ("ana", 200)):
            headers = {HEADER: name} if name else {}
            answer = request(admin.http, method, "/config/log_level", b"info", headers)
            assert answer.status == status


def test_settings_are_shown_without_their_secrets():
    flags = (
        "--graphite-url=http://joe:hidden@graphite.example/a?key=hidden",
        "--notification-http-endpoint=https://joe:hidden@hooks.example/hidden?key=hidden",
    )
    with run_admin(*flags) as admin:
        shown = [
            request(admin.http, "GET", f"/config/{name}").text
            for name in ("graphite_url", "notification_http_endpoint", "log_prefix")
        ]
    assert shown == [
        "http://xxxxx@graphite.example/a?key=xxxxx",
        "https://hooks.example",
        "[nsqadmin] ",
    ]


@pytest.mark.parametrize(
    ("flags", "text"),
    [
        (("--admin-user=",), "--admin-user must not be empty"),
        (("--admin-user=a", "--auth-file=x"), "use --auth-file or --admin-user, not both"),
        (("--auth-file=/nowhere/users",), "failed to read --auth-file /nowhere/users: no such"),
        (("--acl-trusted-cidr=x/8",), "failed to parse --acl-trusted-cidr: 'x/8'"),
        (("--session-lifetime=0s",), "--session-lifetime must be more than 0"),
        (("--nsqd-http-address=",), "failed to"),  # Go starts, and then finds nobody
        (("--lookupd-http-address=no-such-host.invalid:4161",), "failed to"),
        (("--http-client-tls-key=/dev/null", "--http-client-tls-cert=/dev/null"), "failed to"),
        (("--proxy-graphite",), "failed to"),
        (("--proxy-graphite", "--graphite-url=graphite.example"), "failed to"),
        (("--audit-file=/nowhere/audit",), "failed to open --audit-file /nowhere/audit: no such"),
        (("--audit-file=/tmp",), "failed to open --audit-file /tmp: is a directory"),
        (
            ("--notification-http-endpoint=ftp://a/",),
            "--notification-http-endpoint has to be http://",
        ),
        (("--graphite-url=http://a;script-src *",), "--graphite-url has to be http://HOST"),
        (("--graphite-url=http://a b",), "--graphite-url has to be http://HOST"),
        (("--graphite-url=g.example",), "--graphite-url has to be http://HOST"),
        (("--graphite-url=javascript:1",), "--graphite-url has to be http://HOST"),
    ],
)
def test_settings_that_cannot_be_meant_are_refused(flags, text):
    assert text in refusal(parse(with_nsqd(flags)))


@pytest.mark.parametrize(
    ("networks", "address", "is_in"),
    [
        (["10.0.0.0/8"], "10.1.2.3", True),
        (["10.0.0.0/8"], "11.0.0.1", False),
        (["127.0.0.1/8"], "127.9.9.9", True),
        (["10.0.0.0/8"], "::ffff:10.1.2.3", True),
        (["fd00::/8"], "fd00::1%eth0", True),
        (["fd00::/8"], "fe80::1", False),
        (["::/0"], "10.1.2.3", False),
        (["192.0.2.7"], "192.0.2.7", True),
        (["192.0.2.7"], "192.0.2.8", False),
        (["10.0.0.0/8", "192.0.2.0/24"], "192.0.2.8", True),
        ([], "127.0.0.1", False),
        (["0.0.0.0/0"], "", False),
        (["0.0.0.0/0"], "unix", False),
    ],
)
def test_addresses_are_in_networks(networks, address, is_in):
    assert Proxies(networks).includes(parse_peer_ip(address)) is is_in
    for text in ("10.0.0.0/33", "host/8", "", "10.0.0.0/8,11.0.0.0/8"):
        with pytest.raises(OptionsError, match="^failed to parse --acl-trusted-cidr: "):
            Proxies([text])
