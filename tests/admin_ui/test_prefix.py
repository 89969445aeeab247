"""Behind a proxy below a path: every link, script, question for news and export stays below it."""

import http.client
import http.server
import re
import threading
from urllib.parse import quote, unquote

import pytest
from playwright.sync_api import expect

from support.admin_cluster import AT, example_cluster
from support.admin_pages import AdminPages

pytestmark = [pytest.mark.slow, pytest.mark.soak]

PREFIX = "/nsq/admin"
LONG_TOPIC, LONG_CHANNEL = "n" * 64, "c" * 64


class Proxy(http.server.ThreadingHTTPServer):
    """Passes on what is below PREFIX, and notes what is not."""

    daemon_threads = True

    def __init__(self, port):
        self.port = port
        self.strays = []
        super().__init__(("127.0.0.1", 0), Handler)


class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.pass_on()

    def do_POST(self):
        self.pass_on()

    def pass_on(self):
        if not self.path.startswith(PREFIX + "/"):
            self.server.strays.append(self.path)
            self.send_error(404)
            return
        connection = http.client.HTTPConnection("127.0.0.1", self.server.port, timeout=10)
        names = ("Accept", "Cookie", "Content-Type", "Host", "Origin", "Sec-Fetch-Site")
        headers = {name: self.headers[name] for name in names if self.headers[name]}
        body = self.rfile.read(int(self.headers["Content-Length"] or 0)) or None
        connection.request(self.command, self.path, body, headers)
        answer = connection.getresponse()
        body = answer.read()
        connection.close()
        self.send_response_only(answer.status)
        for name, value in answer.getheaders():
            if name.lower() not in ("transfer-encoding", "content-length", "connection"):
                self.send_header(name, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        """Nobody reads it."""


@pytest.fixture(scope="module")
def site():
    with AdminPages(example_cluster(), f"--base-path={PREFIX}") as pages:
        proxy = Proxy(pages.port)
        thread = threading.Thread(target=proxy.serve_forever, daemon=True)
        thread.start()
        pages.outside = f"http://127.0.0.1:{proxy.server_port}{PREFIX}"
        pages.strays = proxy.strays
        yield pages
        proxy.shutdown()
        proxy.server_close()
        thread.join()


def test_every_address_in_every_page_is_below_the_prefix(site, page):
    found = set()
    paths = ["/", "/topics", "/topics/orders", "/topics/orders/billing", "/nodes", "/lookup"]
    for path in [*paths, "/problems", "/audit", "/counter"]:
        page.goto(site.outside + path)
        found |= set(
            page.evaluate(
                """() => [...document.querySelectorAll("[href], [src], form[action]")].map((each) =>
                    new URL(each.getAttribute("href") ?? each.getAttribute("src") ?? each.getAttribute("action"),
                        location.href).pathname)"""
            )
        )
    assert len(found) > 20
    assert [path for path in found if not path.startswith(PREFIX + "/")] == []
    assert site.strays == []


def test_news_come_through_the_proxy(site, page):
    page.goto(site.outside + "/topics/clicks")
    site.publish(example_cluster(tick=2, at=AT + 2))
    expect(page.locator("#clock")).to_have_text("22:13:22")
    assert site.strays == []


@pytest.mark.parametrize("topic", ["x#ephemeral", LONG_TOPIC])
def test_a_topic_opens_from_the_list(site, page, topic):
    page.goto(site.outside + "/topics")
    page.get_by_role("link", name=topic, exact=True).click()
    expect(page.get_by_role("heading", level=1)).to_have_text(topic)
    assert unquote(page.url) == f"{site.outside}/topics/{topic}"
    page.locator("[data-table=channels] tbody th a").click()
    expect(page.get_by_role("heading", level=1)).to_have_text(re.compile("^c"))


def test_an_action_goes_through_the_proxy(site, page):
    """On a name that has to be quoted in every address."""
    topic = "x#ephemeral"
    page.goto(site.outside + "/topics/" + quote(topic, safe=""))
    page.locator(".actions summary", has_text="More").click()
    page.get_by_role("button", name=f"Empty topic {topic}…", exact=True).click()
    dialog = page.locator("#action")
    dialog.get_by_label("Type the name").fill(topic)
    # One of all nodes is down, so nobody knows what it has.
    dialog.get_by_role("button", name=f"Empty {topic}: lose at least 0 messages").click()
    expect(dialog.get_by_text("done on some nodes only")).to_be_visible()
    assert site.context.upstream.told == [("10.0.0.1:4151", "/topic/empty?topic=x%23ephemeral")]
    assert site.strays == []


def test_an_export_is_downloaded(site, page):
    page.goto(site.outside + "/topics?q=orders")
    page.locator("[data-table=topics] summary", has_text="Export").click()
    with page.expect_download() as waiting:
        page.get_by_role("link", name="CSV, 1 row").click()
    with open(waiting.value.path(), encoding="utf-8", newline="") as file:
        assert file.read().split("\r\n")[1].startswith("orders,")
    assert waiting.value.suggested_filename == "nsqadmin-topics-topics.csv"


def test_the_theme_is_kept_below_the_prefix(site, page):
    page.goto(site.outside + "/topics")
    page.keyboard.press("t")
    assert page.context.cookies()[0]["path"] == PREFIX + "/"
    page.goto(site.outside + "/nodes")
    expect(page.locator("html")).to_have_attribute("data-theme", "dark")


def test_the_prefix_without_a_slash_leads_to_the_overview(site, page):
    page.goto(site.root + PREFIX)
    assert page.url == site.root + PREFIX + "/"


def test_a_prefix_may_hold_letters_that_addresses_quote(page):
    with AdminPages(example_cluster(), "--base-path=/nsq ä!") as site:
        page.goto(site.root + "/nsq ä!/")
        page.get_by_role("navigation", name="Pages").get_by_role("link", name="Topics").click()
        page.get_by_role("link", name="x#ephemeral", exact=True).click()
        assert unquote(page.url) == site.root + "/nsq ä!/topics/x#ephemeral"
        site.publish(example_cluster(tick=2, at=AT + 2))
        expect(page.locator("#clock")).to_have_text("22:13:22")
        page.keyboard.press("t")
        page.keyboard.press("g")
        page.keyboard.press("n")
        page.wait_for_url("**/nodes")
        expect(page.locator("html")).to_have_attribute("data-theme", "dark")
