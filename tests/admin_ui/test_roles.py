"""The login page, the way back from it, and what viewers are not shown."""

import http.server
import threading

import argon2
import pytest
from playwright.sync_api import expect

from support.admin_cluster import example_cluster, example_problems
from support.admin_pages import AdminPages

pytestmark = [pytest.mark.slow, pytest.mark.soak]

PASSWORD = "correct horse battery"


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    hashed = argon2.PasswordHasher(time_cost=1, memory_cost=1024).hash(PASSWORD)
    file = tmp_path_factory.mktemp("auth") / "users"
    file.write_text(f"ana:admin:{hashed}\nvera:viewer:{hashed}\n")
    file.chmod(0o600)
    with AdminPages(example_cluster(), f"--auth-file={file}", problems=example_problems()) as pages:
        yield pages


def log_in(page, name, password=PASSWORD):
    page.get_by_label("Name").fill(name)
    page.get_by_label("Password").fill(password)
    page.get_by_role("button", name="Log in").click()


def test_a_login_leads_back_to_where_one_wanted_to_be(site, page, watch):
    page.goto(site.url + "/topics?sort=-depth")
    expect(page.get_by_role("heading", level=1)).to_have_text("Log in")
    log_in(page, "ana", "wrong")
    expect(page.get_by_role("alert")).to_contain_text("is wrong")
    expect(page.get_by_label("Name")).to_have_value("ana")
    assert all("403" in fault for fault in watch.take_faults())
    log_in(page, "ana")
    page.wait_for_url(site.url + "/topics?sort=-depth")
    expect(page.locator(".user")).to_have_text("ana admin")
    page.get_by_role("button", name="Log out").click()
    expect(page.get_by_role("heading", level=1)).to_have_text("Log in")


def test_a_login_that_ends_meanwhile_asks_again_and_leads_back(site, page, watch):
    page.goto(site.url + "/nodes")
    log_in(page, "ana")
    page.wait_for_url(site.url + "/nodes")
    page.context.clear_cookies()
    page.wait_for_url("**/login?next=*")
    log_in(page, "ana")
    page.wait_for_url(site.url + "/nodes")
    assert all("401" in fault for fault in watch.take_faults())


class Elsewhere(http.server.BaseHTTPRequestHandler):
    """Another origin, of which every address shows the same."""

    body = b""

    def do_GET(self):
        self.send_response(200)
        self.send_header("Content-Type", "text/html")
        self.send_header("Content-Length", str(len(self.body)))
        self.end_headers()
        self.wfile.write(self.body)

    def log_message(self, *_):
        """Nobody reads it."""


@pytest.fixture
def elsewhere():
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Elsewhere) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}/"
        server.shutdown()
        thread.join()


def make_form(address):
    """Posts JSON, as far as a form can."""
    field = """<input name='{"action":"pause","topic":"orders","x":"' value='"}'>"""
    return f"<form method=post enctype=text/plain action='{address}'>{field}<button>Win</button></form>"


def test_a_page_of_another_site_cannot_act(elsewhere, page, watch, visiting):
    """Neither by a form nor by a script, also where everybody is admin."""
    with visiting(AdminPages(example_cluster())) as site:
        targets = [site.url + "/ui/actions", site.url + "/api/topics/orders"]
        Elsewhere.body = "".join(map(make_form, targets)).encode()
        for number, target in enumerate(targets):
            page.goto(elsewhere)
            with page.expect_response(target) as answer:
                page.get_by_role("button").nth(number).click()
            assert answer.value.status == 403
            page.goto(elsewhere)
            page.evaluate(
                "([url, body]) => fetch(url, { method: 'POST', mode: 'no-cors', body }).catch(() => {})",
                [target, '{"action":"pause","topic":"orders"}'],
            )
        assert site.context.upstream.told == []
        refused = site.context.audit.last()
        assert [entry.outcome for entry in refused] == ["refused"] * 4
        reasons = {entry.effect["reason"] for entry in refused}
        assert reasons == {"sent by another site (Sec-Fetch-Site)"}
    assert len(watch.take_faults()) >= 4  # Chromium reports each refusal


def test_the_login_page_is_accessible_and_fits(site, page, axe):
    page.goto(site.url + "/login")
    for width in (1300, 375):
        page.set_viewport_size({"width": width, "height": 900})
        for theme in ("light", "dark"):
            page.evaluate("(theme) => { document.documentElement.dataset.theme = theme }", theme)
            assert axe.check(page) == []
        assert page.evaluate("() => document.scrollingElement.scrollWidth <= window.innerWidth")
