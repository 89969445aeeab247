"""--base-path with letters that an address has to quote: routes, links, cookies and the way back stay below it."""

from urllib.parse import quote, unquote

import pytest

from nsqfast.errors import OptionsError
from nsqfast.nsqadmin.checks import check_options
from nsqfast.nsqadmin.context import Urls
from nsqfast.nsqadmin.options import Options
from support.access import FORM, run_admin, write_users
from support.admin_cluster import example_cluster
from support.admin_pages import AdminPages
from support.page_html import PageHtml
from support.web import request

BASES = ["/nsq admin", "/nsq/ä", "/a%20{topic}", "/a+b!&c;d=e|?#"]


@pytest.fixture(params=BASES)
def site(request):
    with AdminPages(example_cluster(), f"--base-path={request.param}") as pages:
        pages.whole = quote(request.param)
        yield pages


def test_every_page_and_all_that_it_links_to_is_there(site):
    links = set()
    for path in ("/", "/topics", "/topics/orders/billing", "/nodes", "/problems"):
        answer = site.get(site.whole + path)
        assert (path, answer.status) == (path, 200)
        links |= {
            each.attributes[name]
            for each in PageHtml(answer.text).elements
            for name in ("href", "src")
            if each.attributes.get(name, "").startswith("/")
        }
    assert len(links) > 20
    assert [link for link in links if site.get(link).status not in (200, 303)] == []
    first = site.get(site.whole)
    assert first.status == 302
    assert unquote(first.headers["Location"]) == unquote(site.whole) + "/"


@pytest.mark.parametrize("safe", ["/", "/!$&'()*+,:=@~|;"])
def test_live_and_export_know_the_page_however_it_is_quoted(site, safe):
    view = quote(unquote(site.whole), safe=safe) + "/topics?q=orders"
    answer = site.get(f"{site.whole}/ui/live?view={quote(view, safe='')}&since=0")
    assert (answer.status, '"orders"' in answer.text) == (200, True)
    target = f"{site.whole}/ui/export?view={quote(view, safe='')}&table=topics"
    answer = site.get(target)
    assert (answer.status, answer.text.count("\r\n")) == (200, 2)
    assert answer.headers["Content-Disposition"].endswith('filename="nsqadmin-topics-topics.csv"')


@pytest.mark.parametrize("base", BASES)
def test_a_login_leads_back_and_its_cookie_comes_with_every_link(tmp_path, base):
    users = write_users(tmp_path / "users", ("ana", "admin", "right"))
    with run_admin(f"--auth-file={users}", f"--base-path={base}") as admin:
        typed = quote(base)  # quotes more than links of ours do
        asked = request(admin.http, "GET", f"{typed}/topics")
        assert asked.status == 303
        login, _, then = asked.headers["Location"].partition("?next=")
        assert unquote(login) == base + "/login"
        body = f"name=ana&password=right&next={then}".encode()
        answer = request(admin.http, "POST", login, body, FORM)
        assert answer.status == 303
        cookie, *settings = answer.headers["Set-Cookie"].split("; ")
        (path,) = (each for each in settings if each.startswith("Path="))
        assert answer.headers["Location"] == path.removeprefix("Path=") + "/topics"
        again = request(admin.http, "GET", answer.headers["Location"], headers={"Cookie": cookie})
        assert again.status == 200


def test_a_base_that_is_no_text_is_refused_at_the_start():
    with pytest.raises(OptionsError, match=r"--base-path \('/a.udcff'\) has to be UTF-8"):
        check_options(Options(nsqd_http_addresses=["127.0.0.1:1"], base_path="/a\udcff"))


@pytest.mark.parametrize(
    ("path", "below"),
    [
        ("/a%21/%C3%A4", ""),
        ("/a!/%c3%a4/topics/x%23y", "/topics/x%23y"),
        ("/a%21/ä/", "/"),
        ("/a!", None),
        ("/a!/%C3%A4x", None),
        ("/a%2521/%C3%A4", None),
        ("a!/%C3%A4", None),
        ("", None),
    ],
)
def test_what_is_below_the_base(path, below):
    assert Urls("/a!/ä").below(path) == below
