"""The built-in login: passwords, cookies, limits, and where it leads to."""

import asyncio
import base64
import getpass
import io
import logging
import os
import signal
import sys

import argon2
import pytest
from aiohttp import web

from nsqfast.errors import OptionsError
from nsqfast.nsqadmin.access.identity import csrf_token
from nsqfast.nsqadmin.access.login import after_login
from nsqfast.nsqadmin.access.passwords import (
    ADDRESS_TRIES_MAX,
    CHECKS_MAX,
    KEYS_MAX,
    PAIR_TRIES_MAX,
    WINDOW_S,
    LoginAttempts,
    Passwords,
    TooManyTriesError,
)
from nsqfast.nsqadmin.access.sessions import ENDED_MAX, Session, Sessions
from nsqfast.nsqadmin.access.users import Role, print_account, read_users, user_of
from nsqfast.nsqadmin.context import Urls
from support.access import (
    CHEAP,
    FORM,
    NOWHERE,
    cookie_header,
    cookie_of,
    log_in,
    probed,
    run_admin,
    start_admin,
    write_users,
)
from support.waiting import wait_until
from support.web import request

HTML = {"Accept": "text/html"}
RIGHT = "right horse"


def add_probes(app, context):
    async def who(asked):
        user = user_of(asked)
        return web.json_response({"name": user.name, "role": user.role})

    async def token(asked):
        return web.Response(text=csrf_token(asked))

    app.router.add_get(context.urls.to("/ui/token"), token)
    for path in ("/ui/who", "/api/who", "/probe/who"):
        app.router.add_get(context.urls.to(path), who)


@pytest.fixture
def users(tmp_path):
    return write_users(
        tmp_path / "users", ("ana", "admin", RIGHT), ("Vic Ö.", "viewer", "pässword")
    )


@pytest.fixture
def address(users):
    with probed(add_probes, auth_file=users) as address:
        yield address


def basic(name, password):
    given = base64.b64encode(f"{name}:{password}".encode()).decode()
    return {"Authorization": f"Basic {given}"}


def test_pages_lead_to_the_login_and_back(address):
    answer = request(address, "GET", "/probe/who?q=a%26b&x=%2F", headers=HTML)
    assert answer.status == 303
    to = answer.headers["Location"]
    assert to.startswith("/login?next=")
    form = request(address, "GET", to, headers=HTML)
    assert form.status == 200
    assert b'value="/probe/who?q=a%26b&amp;x=%2F"' in form.body
    answer = log_in(address, "ana", RIGHT, then="/probe/who?q=a%26b&x=%2F")
    assert (answer.status, answer.headers["Location"]) == (303, "/probe/who?q=a%26b&x=%2F")
    session = cookie_header(answer)
    assert request(address, "GET", "/probe/who", headers=session).json()["name"] == "ana"
    answer = request(address, "GET", to, headers=session)  # is logged in already
    assert (answer.status, answer.headers["Location"]) == (303, "/probe/who?q=a%26b&x=%2F")


def test_the_login_page_tells_nothing_of_the_cluster(users):
    with run_admin(f"--auth-file={users}") as admin:

        def page(path, headers):
            return request(admin.http, "GET", path, headers=HTML | headers).body

        session = cookie_header(log_in(admin.http, "ana", RIGHT))
        wait_until(lambda: NOWHERE.encode() in page("/topics", session))
        assert NOWHERE.encode() not in page("/login", {})
        assert NOWHERE.encode() not in page("/nowhere", {})
        assert request(admin.http, "GET", "/ui/theme?to=dark&next=/login").status == 303


def test_scripts_are_told_that_they_have_to_log_in(address):
    for path, challenge in (("/api/who", 'Basic realm="nsqadmin"'), ("/ui/who", None)):
        answer = request(address, "GET", path)
        assert (answer.status, answer.json()) == (401, {"message": "UNAUTHORIZED"})
        assert answer.headers.get("WWW-Authenticate") == challenge
    assert request(address, "POST", "/probe/who").status == 401
    assert request(address, "GET", "/ping").status == 200


def test_the_cookie_is_for_our_server_and_our_path_alone(users):
    options = {"base_path": "/nsq/admin", "session_lifetime_ns": 3600 * 10**9}
    with probed(add_probes, auth_file=users, **options) as address:
        body = f"name=ana&password={RIGHT.replace(' ', '+')}".encode()
        answer = request(address, "POST", "/nsq/admin/login", body, FORM)
        assert answer.headers["Location"] == "/nsq/admin/"
        (cookie,) = cookie_of(answer).values()
        assert cookie["httponly"]
        assert cookie["samesite"] == "Lax"
        assert cookie["path"] == "/nsq/admin"
        assert cookie["max-age"] == "3600"
        assert not cookie["domain"]
        assert not cookie["secure"]
        assert RIGHT not in base64.urlsafe_b64decode(cookie.value + "==").decode("latin-1")


def test_the_cookie_is_secure_where_a_named_proxy_says_https(users):
    for trusted, headers, is_secure in (
        ("127.0.0.1/32", {"X-Forwarded-Proto": "https"}, True),
        ("127.0.0.1/32", {"X-Forwarded-Proto": "https, http"}, True),
        ("127.0.0.1/32", {"X-Scheme": "HTTPS"}, True),
        ("127.0.0.1/32", {"X-Forwarded-Proto": "http"}, False),
        ("192.0.2.1/32", {"X-Forwarded-Proto": "https"}, False),
    ):
        with probed(add_probes, auth_file=users, acl_trusted_cidr=[trusted]) as address:
            (cookie,) = cookie_of(log_in(address, "ana", RIGHT, headers=headers)).values()
        assert bool(cookie["secure"]) is is_secure, headers


def test_a_wrong_name_and_a_wrong_password_look_the_same(address):
    for name, password in (
        ("ana", "wrong"),
        ("nobody", RIGHT),
        ("", ""),
        ("ana", ""),
        ("ANA", RIGHT),
        ("ana", RIGHT * 200),
        ("ana\r\nSet-Cookie: x=y\r\n\r\n<script>", "wrong"),
    ):
        answer = log_in(address, name, password)
        assert answer.status == 403
        assert "Set-Cookie" not in answer.headers
        assert b"The name or the password is wrong." in answer.body
        assert b"<script>" not in answer.body


@pytest.fixture
def hashed(monkeypatch):
    """What is hashed: the parameters and the password."""
    found = []
    real = argon2.PasswordHasher.verify

    def verify(self, known, password):
        found.append((argon2.extract_parameters(known), password))
        return real(self, known, password)

    monkeypatch.setattr(argon2.PasswordHasher, "verify", verify)
    return found


def test_an_unknown_name_costs_as_much_as_a_known_one(users, hashed):
    found = read_users(users)
    assert found.verify("ana", "wrong") is None
    assert found.verify("nobody", "wrong") is None
    assert len(hashed) == 2
    assert hashed[0] == hashed[1]
    assert found.verify("ana", "no text: \udcff") is None


def test_tries_are_limited_for_each_user_and_address(address):
    """And a right password forgives the wrong ones."""
    statuses = [log_in(address, "ana", "wrong").status for _ in range(PAIR_TRIES_MAX)]
    assert statuses == [403] * PAIR_TRIES_MAX
    answer = log_in(address, "ana", RIGHT)
    assert answer.status == 429
    assert answer.headers["Retry-After"] == "60"
    assert b"Wait a minute" in answer.body
    assert request(address, "GET", "/api/who", headers=basic("ana", RIGHT)).status == 429
    for _ in range(2):
        wrong = [log_in(address, "Vic Ö.", "wrong").status for _ in range(PAIR_TRIES_MAX - 1)]
        assert wrong == [403] * (PAIR_TRIES_MAX - 1)
        assert log_in(address, "Vic Ö.", "pässword").status == 303


def test_the_table_of_tries():
    tries = LoginAttempts()
    for number in range(PAIR_TRIES_MAX):
        assert tries.take("ana", "192.0.2.1", float(number))
    assert not tries.take("ana", "192.0.2.1", 59.0)
    assert tries.take("ana", "192.0.2.2", 59.0)
    assert tries.take("ana", "192.0.2.1", WINDOW_S)  # the first one is a minute ago
    assert not tries.take("ana", "192.0.2.1", WINDOW_S)
    tries.forgive("ana", "192.0.2.1")
    assert tries.take("ana", "192.0.2.1", WINDOW_S)


def test_one_address_cannot_try_many_names():
    tries = LoginAttempts()
    taken = [tries.take(f"name{number}", "192.0.2.1", 0.0) for number in range(100)]
    assert taken == [True] * ADDRESS_TRIES_MAX + [False] * (100 - ADDRESS_TRIES_MAX)
    tries = LoginAttempts()
    # All of one network of IPv6, which one customer has.
    taken = [tries.take(f"name{number}", f"2001:db8::{number:x}", 0.0) for number in range(100)]
    assert sum(taken) == ADDRESS_TRIES_MAX
    assert not tries.take("another", "2001:db8::8000:0:0:1", 0.0)
    assert tries.take("another", "2001:db8:0:1::", 0.0)


def test_the_table_of_tries_does_not_grow():
    tries = LoginAttempts()
    for number in range(KEYS_MAX + 100):
        assert tries.take("ana", f"10.{number >> 16}.{number >> 8 & 255}.{number & 255}", 0.0)
    assert len(tries.pairs.times) == KEYS_MAX
    assert len(tries.addresses.times) == KEYS_MAX


def test_a_cookie_is_what_we_signed_or_nothing(address):
    (value,) = (morsel.value for morsel in cookie_of(log_in(address, "ana", RIGHT)).values())
    (name,) = cookie_of(log_in(address, "ana", RIGHT))
    body = base64.urlsafe_b64decode(value + "==")
    changed = base64.urlsafe_b64encode(body.replace(b'"ana"', b'"bob"')).decode().rstrip("=")
    for forged in (
        changed,
        value[:-1],
        value[::-1],
        value + "x",
        "",
        "x",
        "%%%",
        "A" * 5000,
        base64.urlsafe_b64encode(bytes(32) + body[32:]).decode(),
        base64.urlsafe_b64encode(body[32:]).decode(),
    ):
        answer = request(address, "GET", "/ui/who", headers={"Cookie": f"{name}={forged}"})
        assert answer.status == 401, forged
    assert request(address, "GET", "/ui/who", headers={"Cookie": f"{name}={value}"}).status == 200


def test_a_login_ends():
    sessions = Sessions(lifetime_s=60.0)
    cookie = sessions.begin("ana", "hash", 1000.0)
    session = sessions.read(cookie, 1059.9)
    assert isinstance(session, Session)
    assert (session.name, session.ends_at) == ("ana", 1060.0)
    assert sessions.read(cookie, 1060.0) is None
    assert Sessions(lifetime_s=60.0).read(cookie, 1000.0) is None  # another start, another key


def test_logins_that_were_left_do_not_grow():
    sessions = Sessions(lifetime_s=60.0)
    for number in range(ENDED_MAX + 10):
        sessions.end(Session(str(number), "ana", "", 60.0), 0.0)
    assert len(sessions._ended) == ENDED_MAX
    sessions.end(Session("late", "ana", "", 200.0), 100.0)
    assert sessions._ended == {"late": 200.0}


def test_leaving_ends_the_login_also_for_a_copy_of_its_cookie(address):
    session = cookie_header(log_in(address, "ana", RIGHT))
    token = request(address, "GET", "/ui/token", headers=session).body
    answer = request(address, "POST", "/logout", b"csrf=" + token, session | FORM)
    assert (answer.status, answer.headers["Location"]) == (303, "/login")
    (cookie,) = cookie_of(answer).values()
    assert (cookie["max-age"], cookie["path"]) == ("0", "/")
    assert request(address, "GET", "/ui/who", headers=session).status == 401
    assert request(address, "GET", "/logout", headers=session).status in (303, 405)


def test_the_file_is_read_again_at_sighup(tmp_path):
    path = tmp_path / "users"
    write_users(path, ("ana", "admin", RIGHT), ("bo", "admin", RIGHT), ("vic", "viewer", RIGHT))
    with start_admin(f"--auth-file={path}") as admin:
        sessions = {name: cookie_header(log_in(admin.http, name, RIGHT)) for name in ("ana", "bo")}

        def status(name):
            return request(admin.http, "GET", "/api/nothing", headers=sessions[name]).status

        assert (status("ana"), status("bo")) == (404, 404)
        assert request(admin.http, "GET", "/api/x", headers=basic("vic", RIGHT)).status == 404
        # One has gone, one has another password.
        write_users(path, ("bo", "admin", "another"), ("cy", "viewer", RIGHT))
        admin.process.send_signal(signal.SIGHUP)
        admin.wait_for_line("SIGHUP: read 2 users from --auth-file")
        assert (status("ana"), status("bo")) == (401, 401)
        assert request(admin.http, "GET", "/api/x", headers=basic("vic", RIGHT)).status == 401
        assert log_in(admin.http, "cy", RIGHT).status == 303
        path.write_text("nonsense\n")
        admin.process.send_signal(signal.SIGHUP)
        admin.wait_for_line("SIGHUP: the users stay as they were: ")
        assert log_in(admin.http, "bo", "another").status == 303


def test_scripts_log_in_by_http_basic(address):
    def who(headers):
        return request(address, "GET", "/api/who", headers=headers)

    assert who(basic("ana", RIGHT)).json() == {"name": "ana", "role": "admin"}
    assert who(basic("Vic Ö.", "pässword")).json()["role"] == "viewer"
    for headers in (
        {"Authorization": "Basic"},
        {"Authorization": "Basic !!"},
        {"Authorization": "Basic " + base64.b64encode(b"ana").decode()},
        {"Authorization": basic("ana", RIGHT)["Authorization"].replace("Basic", "Bearer")},
        {"X-Forwarded-User": "ana"},
        basic("ana", "wrong"),
    ):
        assert who(headers).status == 401


def test_a_password_that_is_meant_for_a_proxy_does_not_keep_anybody_from_logging_in(address):
    foreign = basic("proxy", "user")
    for _ in range(PAIR_TRIES_MAX * 2):
        assert request(address, "GET", "/login", headers=foreign).status == 200
    session = cookie_header(log_in(address, "ana", RIGHT, headers=foreign))
    for _ in range(PAIR_TRIES_MAX * 2):
        answer = request(address, "GET", "/ui/who", headers=session | foreign)
        assert answer.json()["name"] == "ana"


def test_a_password_that_was_right_is_not_hashed_for_each_request(address, hashed):
    for _ in range(10):
        assert request(address, "GET", "/api/who", headers=basic("ana", RIGHT)).status == 200
    assert [password for _, password in hashed] == [RIGHT]


def test_a_login_leads_to_no_other_site(address):
    for then in (
        "//evil.example",
        "///evil.example",
        "/\\evil.example",
        "\\\\evil.example",
        "https:evil.example",
        "https://evil.example/",
        "javascript:alert(1)",
        "evil.example",
        "/\tevil",
        "/\n/evil.example",
        "\t//evil.example",
        " //evil.example",
        "/a\r\nSet-Cookie: x=y",
        "/é",
        "/" + "a" * 3000,
        "",
        "/login?next=/",
        "/logout",
    ):
        answer = log_in(address, "ana", RIGHT, then=then)
        assert (answer.status, answer.headers["Location"]) == (303, "/"), then
        assert "x=y" not in answer.headers["Set-Cookie"]


def test_a_login_stays_below_the_base_path():
    urls = Urls("/nsq")
    assert after_login("/nsq/topics?q=1", urls) == "/nsq/topics?q=1"
    assert after_login("/nsq", urls) == "/nsq"
    for text in (
        "/topics",
        "/nsqx",
        "/nsqevil",
        "/nsq/login",
        "/nsq/login?next=%2Fnsq",
        "//nsq/",
        "",
    ):
        assert after_login(text, urls) == "/nsq/"


def test_only_a_form_logs_in(address):
    body = b'{"name":"ana","password":"right horse"}'
    answer = request(address, "POST", "/login", body, {"Content-Type": "application/json"})
    assert answer.status == 415
    # What the form does not have is as good as empty.
    assert request(address, "POST", "/login", b"%zz&&=", FORM).status == 403


async def test_a_password_that_was_right_when_its_check_began_may_be_of_no_use(users, tmp_path):
    passwords = Passwords(read_users(users))
    checked = asyncio.create_task(passwords.check("ana", RIGHT, "192.0.2.1"))
    await asyncio.sleep(0)
    passwords.replace(read_users(write_users(tmp_path / "new", ("ana", "admin", "another"))))
    assert await checked is None
    passwords._checks = dict.fromkeys(range(CHECKS_MAX))
    with pytest.raises(TooManyTriesError):
        await passwords.check("ana", "another", "192.0.2.1")
    passwords.close()


@pytest.mark.parametrize(
    ("line", "text"),
    [
        ("ana", "expected name:role:hash"),
        ("ana:admin", "expected name:role:hash"),
        ("ana:admin:", "the hash is no argon2id hash"),
        ("ana:admin:$2b$12$abcdefghijklmnopqrstuv", "the hash is no argon2id hash"),
        ("ana:root:x", "a role is viewer or admin"),
        (":admin:x", "a user's name has"),
        ("a\x07b:admin:x", "a user's name has"),
    ],
)
def test_a_line_that_is_wrong_is_named_and_not_shown(tmp_path, line, text):
    path = tmp_path / "users"
    path.write_text(f"# users\n\nok:viewer:{CHEAP.hash('x')}\n{line}\n")
    with pytest.raises(OptionsError, match=f"line 4: .*{text}") as caught:
        read_users(str(path))
    assert "$2b" not in str(caught.value)


def test_a_user_stands_in_the_file_once(tmp_path):
    path = write_users(tmp_path / "users", ("ana", "admin", "a"), ("ana", "viewer", "b"))
    with pytest.raises(OptionsError, match="line 2: this user stands there twice"):
        read_users(path)
    (tmp_path / "users").write_text("# nobody\n")
    with pytest.raises(OptionsError, match="has no users"):
        read_users(path)
    (tmp_path / "users").write_bytes(b"\xff\n")
    with pytest.raises(OptionsError, match="is no UTF-8 text"):
        read_users(path)


@pytest.mark.parametrize(("mode", "is_named"), [(0o600, False), (0o604, True)])
def test_a_file_that_everybody_can_read_is_named(users, mode, is_named, caplog, monkeypatch):
    monkeypatch.setattr(logging.getLogger("nsqadmin"), "propagate", True)
    os.chmod(users, mode)
    read_users(users)
    assert (f"{users} can be read by everybody" in caplog.text) is is_named


class Terminal(io.BytesIO):
    def isatty(self):
        return True


def hash_password(monkeypatch, capsys, data, kind=io.BytesIO):
    """What it prints for what stands on its standard input."""
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(kind(data), "utf-8"))
    print_account()
    return capsys.readouterr().out


def test_hash_password_makes_a_line_that_logs_in(monkeypatch, capsys, tmp_path):
    line = hash_password(monkeypatch, capsys, " Zoë\nviewer \n with spaces \n".encode())
    assert line.count("\n") == 1
    (tmp_path / "users").write_text(line, encoding="utf-8")
    users = read_users(str(tmp_path / "users"))
    account = users.verify("Zoë", " with spaces ")
    assert account is not None
    assert account.role is Role.VIEWER
    assert users.verify("Zoë", "with spaces") is None


@pytest.mark.parametrize(
    ("data", "text"),
    [
        (b"", "no name, role and password were given"),
        (b"ana\nadmin\n", "no name, role and password were given"),
        (b"ana\nadmin\n\n", "the password is empty"),
        (b"a:b\nadmin\nx\n", "a user's name has"),
        (b"ana\nroot\nx\n", "a role is viewer or admin"),
        (b"\xff\nadmin\nx\n", "UTF-8"),
        (b"ana\nadmin\n" + b"x" * 2000 + b"\n", "more than 1024 bytes"),
    ],
)
def test_hash_password_says_what_it_cannot_use(monkeypatch, capsys, data, text):
    with pytest.raises(OptionsError, match=text):
        hash_password(monkeypatch, capsys, data)
    assert capsys.readouterr().out == ""


def test_hash_password_asks_at_a_terminal_and_twice_for_the_password(monkeypatch, capsys):
    typed = iter(["hidden", "hidden", "hidden", "other"])
    monkeypatch.setattr(getpass, "getpass", lambda _: next(typed))  # which shows nothing
    line = hash_password(monkeypatch, capsys, b"ana\nadmin\n", Terminal)
    assert line.startswith("ana:admin:$argon2id$")
    with pytest.raises(OptionsError, match="the two passwords differ"):
        hash_password(monkeypatch, capsys, b"ana\nadmin\n", Terminal)
