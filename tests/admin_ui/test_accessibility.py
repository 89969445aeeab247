"""Every page and dialog at both widths and in both themes: within its width, and without a finding of axe."""

import pytest

from support.access import write_users
from support.admin_pages import example_pages
from support.admin_ui_pages import DIALOGS, PAGES
from support.admin_ui_sites import SITES

pytestmark = pytest.mark.soak

WIDTHS = (1300, 375)
# Themes differ in colours alone.
COLOUR_RULES = ["color-contrast", "link-in-text-block"]
THEMES = {"light": [], "dark": COLOUR_RULES}
SET_THEME = "(theme) => { document.documentElement.dataset.theme = theme }"
OVERFLOW = "() => document.scrollingElement.scrollWidth - window.innerWidth"


def too_wide(page):
    """What does not fit into the width of the window, at 200 % either."""
    found = []
    for width in (*WIDTHS, 650):
        page.set_viewport_size({"width": width, "height": 900})
        over = page.evaluate(OVERFLOW)
        if over > 0:
            found.append(f"{width}: {over} px too wide")
    return found


def look(page, axe):
    """What is wrong in any of the widths and themes."""
    found = too_wide(page)
    for width in WIDTHS:
        page.set_viewport_size({"width": width, "height": 900})
        for theme, rules in THEMES.items():
            page.evaluate(SET_THEME, theme)
            found += [f"{width} {theme}: {line}" for line in axe.check(page, rules)]
    return found


@pytest.mark.parametrize("name", PAGES)
def test_page_is_accessible_and_fits(site, lasting, lasting_watch, axe, name):
    lasting.goto(site.url + PAGES[name])
    if name == "not-found":
        assert all("404" in fault for fault in lasting_watch.take_faults())
    assert look(lasting, axe) == []
    assert lasting.locator("h1").count() == 1


def test_the_login_page_is_accessible_and_fits(tmp_path, page, visiting, axe):
    users = write_users(tmp_path / "users", ("ana", "admin", "right"))
    with visiting(example_pages(f"--auth-file={users}")) as site:
        page.goto(site.url + "/login")
        assert look(page, axe) == []


@pytest.fixture
def dialog_url(request, name):
    """Nobody changes `site`: what is seen after an action has a cluster of its own."""
    if name not in {"result", "toast"}:
        yield request.getfixturevalue("site").url
        return
    with example_pages() as own:
        yield own.url


@pytest.mark.parametrize("name", DIALOGS)
def test_dialog_is_accessible_and_fits(dialog_url, lasting, axe, name):
    path, opener, dialog = DIALOGS[name]
    lasting.goto(dialog_url + path)
    for selector in opener.split(" then "):
        lasting.locator(selector).first.click()
    lasting.locator(dialog).wait_for(state="visible")
    assert look(lasting, axe) == []


@pytest.mark.parametrize("name", SITES)
def test_what_is_out_of_the_ordinary_is_accessible_and_fits(watch, visiting, axe, name):
    """No data, many digits, hostile names, no nsqlookupd, a viewer, no scripts."""
    site = SITES[name]
    page = watch.page(java_script_enabled=site.scripts)
    with visiting(site.start()) as running:
        for path in site.paths.values():
            page.goto(running.url + path)
            # Axe is a script itself: without scripts only the width can be looked at.
            found = too_wide(page)
            assert found + (axe.check(page) if site.scripts else []) == [], path
