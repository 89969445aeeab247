"""A real Chromium for each session, and a page of its own for each test that fails when something is amiss in it.

Without Chromium (`apt install chromium`) all are skipped.

What fails a test: an error in the console, an exception of a script, a violation of the content security policy, a
request to another host.
"""

import contextlib
import hashlib
import json
import shutil
from urllib.parse import urlsplit

import pytest

from support.admin_pages import example_pages
from support.server import ROOT

NO_CHROMIUM = "nsqfast: no Chromium, so what needs a browser is skipped: apt install chromium fonts-dejavu-core"
AXE = ROOT / "tests" / "vendor" / "axe-core" / "axe.min.js"
AXE_SHA256 = "29348999450cdf2849a8e70b7912fc2da85a849da39c0d0d5394f51d4a9ed95c"
AXE_TAGS = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice"]
WIDTH = 1300
WAIT_MS = 20_000  # a bound: whatever is waited for comes within a second on an idle machine
CONTEXT = {
    "reduced_motion": "reduce",
    "timezone_id": "UTC",
    "locale": "en-GB",
    "viewport": {"width": WIDTH, "height": 900},
}
# In the page from before its first script: the policy's reports do not all come by the console.
REPORT = """
    addEventListener("securitypolicyviolation", (event) =>
        console.error(`policy: ${event.violatedDirective} ${event.blockedURI} ${event.sample}`));
"""


def pytest_report_header():
    return NO_CHROMIUM if shutil.which("chromium") is None else None


@pytest.fixture(scope="session")
def browser():
    program = shutil.which("chromium")
    if program is None:
        pytest.skip(NO_CHROMIUM)
    from playwright.sync_api import expect, sync_playwright

    expect.set_options(timeout=WAIT_MS)
    with sync_playwright() as playwright:
        running = playwright.chromium.launch(executable_path=program)
        yield running
        running.close()


class Watch:
    """What went wrong in pages; a test that expects something removes it from `faults`."""

    def __init__(self, browser):
        self._browser = browser
        self._contexts = []
        self.faults = []

    def page(self, **changes):
        """A page in a context of its own, cookies and all."""
        context = self._browser.new_context(**(CONTEXT | changes))
        context.set_default_timeout(WAIT_MS)
        context.add_init_script(REPORT)
        self._contexts.append(context)
        page = context.new_page()
        self.watch(page)
        return page

    def watch(self, page):
        hosts = set()

        def note_request(request):
            parts = urlsplit(request.url)
            if parts.scheme not in ("data", "blob"):
                hosts.add(parts.hostname)
            if hosts - {"127.0.0.1"}:
                self.faults.append(f"request to another host: {request.url}")

        page.on("request", note_request)
        page.on("pageerror", lambda error: self.faults.append(f"exception: {error}"))
        page.on("console", self._note_console)

    def _note_console(self, message):
        if message.type in ("error", "warning"):
            self.faults.append(f"console: {message.text} {message.location}")

    def take_faults(self):
        """Those until now, which are then not amiss."""
        taken, self.faults = self.faults, []
        return taken

    @contextlib.contextmanager
    def visiting(self, server):
        """`server` while it is entered; the pages leave before it ends, or they would say that they lost it."""
        with server as running:
            try:
                yield running
            finally:
                for page in [page for context in self._contexts for page in context.pages]:
                    page.goto("about:blank")

    def close(self):
        for context in self._contexts:
            context.close()


@pytest.fixture
def watch(browser):
    watching = Watch(browser)
    yield watching
    watching.close()
    assert watching.faults == []


@pytest.fixture
def page(watch):
    return watch.page()


@pytest.fixture(scope="module")
def lasting_watch(browser):
    """For `lasting`."""
    watching = Watch(browser)
    yield watching
    watching.close()


@pytest.fixture(scope="module")
def lasting_page(lasting_watch):
    """For `lasting`."""
    return lasting_watch.page()


@pytest.fixture
def lasting(lasting_watch, lasting_page):
    """A page for many tests of a module, clean for each: the first page of a new one takes half a second."""
    lasting_page.set_viewport_size(CONTEXT["viewport"])
    yield lasting_page
    lasting_page.evaluate("() => { localStorage.clear(); sessionStorage.clear(); }")
    lasting_page.goto("about:blank")
    lasting_page.context.clear_cookies()
    assert lasting_watch.take_faults() == []


@pytest.fixture
def visiting(watch):
    """For a server that a test starts for itself: see Watch."""
    return watch.visiting


@pytest.fixture(scope="session")
def axe():
    """axe.check(page) gives what is against the guidelines, as lines."""
    source = AXE.read_text(encoding="utf-8")
    assert hashlib.sha256(source.encode()).hexdigest() == AXE_SHA256

    class Axe:
        @staticmethod
        def check(page, rules=()):
            """With `rules`, only those."""
            if not page.evaluate("() => 'axe' in window"):
                page.evaluate(source)
            found = page.evaluate(
                "(only) => axe.run(document, {runOnly: only, resultTypes: ['violations'], preload: false})",
                {"type": "rule", "values": rules} if rules else {"type": "tag", "values": AXE_TAGS},
            )
            return [
                f"{each['id']}: {each['help']} {json.dumps([node['target'] for node in each['nodes'][:5]])}"
                for each in found["violations"]
            ]

    return Axe


@pytest.fixture(scope="session")
def site():
    """An nsqadmin whose cluster has something of everything; nobody changes it."""
    with example_pages() as pages:
        yield pages
        told = pages.context.upstream.told  # a mark or pause of one test would be seen by the next
        assert told == []
