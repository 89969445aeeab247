"""The login page, the way back from it, and what viewers are not shown."""

import pytest
from playwright.sync_api import expect

from support.access import write_users
from support.admin_pages import example_pages
from support.destination import Destination, answer

pytestmark = [pytest.mark.slow, pytest.mark.soak]

PASSWORD = "correct horse battery"


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    users = write_users(tmp_path_factory.mktemp("auth") / "users", ("ana", "admin", PASSWORD))
    with example_pages(f"--auth-file={users}") as pages:
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


def test_a_page_that_logs_out_asks_nothing_more(site, page):
    """Told that nobody is logged in, it would lead to a login that leads back."""
    asked = []
    page.clock.install()
    page.goto(site.url + "/login")
    log_in(page, "ana")
    page.wait_for_url(site.url + "/")
    with page.expect_request("**/ui/live*"):
        page.clock.run_for(5000)
    page.route("**/logout", lambda route: route.fulfill(status=204))  # the page stays for now
    page.on("request", lambda request: asked.append(request.url))
    with page.expect_response("**/logout"):
        page.get_by_role("button", name="Log out").click()
    page.clock.run_for(15_000)  # many times the interval at which it would ask
    page.unroute("**/logout")
    page.get_by_role("button", name="Log out").click()
    page.wait_for_url(site.url + "/login")
    assert not [url for url in asked if "/ui/live" in url]


def test_a_login_that_ends_meanwhile_asks_again_and_leads_back(site, page, watch):
    page.goto(site.url + "/nodes")
    log_in(page, "ana")
    page.wait_for_url(site.url + "/nodes")
    page.context.clear_cookies()
    page.wait_for_url("**/login?next=*")
    log_in(page, "ana")
    page.wait_for_url(site.url + "/nodes")
    assert all("401" in fault for fault in watch.take_faults())


def make_form(address):
    """Posts JSON, as far as a form can."""
    field = """<input name='{"action":"pause","topic":"orders","x":"' value='"}'>"""
    return f"<form method=post enctype=text/plain action='{address}'>{field}<button>Win</button></form>"


def test_a_page_of_another_site_cannot_act(page, watch, visiting):
    """Neither by a form nor by a script, also where everybody is admin."""
    with (
        Destination(lambda *_: answer(200, "Content-Type: text/html", body=forms)) as other,
        visiting(example_pages()) as site,
    ):
        targets = [site.url + "/ui/actions", site.url + "/api/topics/orders"]
        forms = "".join(map(make_form, targets)).encode()
        for number, target in enumerate(targets):
            page.goto(other.url)
            with page.expect_response(target) as refusal:
                page.get_by_role("button").nth(number).click()
            assert refusal.value.status == 403
            page.wait_for_url(target)  # one that is left before it stands is not reported
            page.goto(other.url)
            page.evaluate(
                "([url, body]) => fetch(url, { method: 'POST', mode: 'no-cors', body }).catch(() => {})",
                [target, '{"action":"pause","topic":"orders"}'],
            )
        assert site.context.upstream.told == []
        refused = site.context.audit.last(4)
        assert [entry.outcome for entry in refused] == ["refused"] * 4
        reasons = {entry.effect["reason"] for entry in refused}
        assert reasons == {"sent by another site (Sec-Fetch-Site)"}
    assert len(watch.take_faults()) >= 4  # Chromium reports each refusal
