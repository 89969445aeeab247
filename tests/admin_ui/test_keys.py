"""Keys: they move, open, select and pause; they are dead in fields, and can be switched off."""

import pytest
from playwright.sync_api import expect

pytestmark = [pytest.mark.slow, pytest.mark.soak]


@pytest.fixture
def topics(site, page):
    page.goto(site.url + "/topics?sort=name")
    page.locator("#pause").wait_for()
    return page


def test_rows_are_reached_and_opened_by_keyboard_alone(topics):
    topics.keyboard.press("j")
    expect(topics.locator("[data-key=clicks] th a")).to_be_focused()
    topics.keyboard.press("j")
    topics.keyboard.press("k")
    expect(topics.locator("[data-key=clicks] th a")).to_be_focused()
    topics.keyboard.press("Enter")
    topics.wait_for_url("**/topics/clicks")
    topics.locator("#pause").wait_for()
    topics.keyboard.press("j")
    expect(topics.locator("[data-table=problems] tbody th a")).to_be_focused()
    topics.keyboard.press("j")
    expect(topics.locator("[data-key=etl] th a")).to_be_focused()
    topics.keyboard.press("Enter")
    topics.wait_for_url("**/topics/clicks/etl")


def test_x_selects_the_row_as_a_click_does_and_shift_those_between(topics):
    said = topics.locator(".bulk strong")
    topics.keyboard.press("j")
    topics.keyboard.press("x")
    expect(said).to_have_text("1 selected")
    expect(topics.get_by_label("Select clicks", exact=True)).to_be_checked()
    topics.get_by_label("Select orders", exact=True).click(modifiers=["Shift"])
    count = topics.locator("tbody input[name=pick]:checked").count()
    assert count > 2
    expect(said).to_have_text(f"{count} selected")
    topics.locator("[data-key=clicks] th a").focus()
    topics.keyboard.press("x")
    expect(said).to_have_text(f"{count - 1} selected")
    expect(topics.get_by_label("Select clicks", exact=True)).not_to_be_checked()


def test_the_link_is_copied_and_shown_where_there_is_no_clipboard(topics):
    topics.context.grant_permissions(["clipboard-read", "clipboard-write"])
    topics.get_by_role("button", name="Copy link").click()
    expect(topics.get_by_text("Link copied")).to_be_visible()
    assert topics.evaluate("() => navigator.clipboard.readText()") == topics.url
    topics.evaluate("() => Object.defineProperty(navigator, 'clipboard', { value: undefined })")
    topics.get_by_role("button", name="Copy link").click()
    expect(topics.get_by_label("Link", exact=True)).to_have_value(topics.url)
    assert topics.evaluate("() => getSelection().toString()") == topics.url


def test_keys_are_dead_in_fields(topics):
    topics.keyboard.press("/")
    field = topics.get_by_role("searchbox", name="Search topics")
    expect(field).to_be_focused()
    theme = topics.locator("html").get_attribute("data-theme")
    topics.keyboard.type("?trgx")
    expect(field).to_have_value("?trgx")
    expect(topics.locator("#keys-dialog")).to_be_hidden()
    assert topics.locator("html").get_attribute("data-theme") == theme
    expect(topics.get_by_role("status").first).to_have_text("Live 2 s")
    topics.keyboard.press("Escape")
    expect(field).not_to_be_focused()


def test_keys_can_be_switched_off_for_good_in_their_dialog(topics):
    topics.locator("[data-key=orders] th a").focus()
    topics.keyboard.press("?")
    topics.get_by_role("checkbox", name="Keys are on").uncheck()
    topics.keyboard.press("Escape")
    expect(topics.locator("[data-key=orders] th a")).to_be_focused()
    topics.keyboard.press("r")
    expect(topics.get_by_role("status").first).to_have_text("Live 2 s")
    topics.reload()
    topics.keyboard.press("?")
    expect(topics.locator("#keys-dialog")).to_be_hidden()
    topics.get_by_role("button", name="Keys").click()
    topics.get_by_role("checkbox", name="Keys are on").check()
    topics.keyboard.press("Escape")
    topics.keyboard.press("r")
    expect(topics.get_by_role("status").first).to_have_text("Paused")


def test_the_first_tab_stop_skips_to_the_content(topics):
    topics.keyboard.press("Tab")
    skip = topics.get_by_role("link", name="Skip to content")
    expect(skip).to_be_focused()
    topics.keyboard.press("Enter")
    expect(topics.locator("#main")).to_be_focused()


def test_menus_close_with_escape_and_give_the_focus_back(topics):
    menu = topics.locator("[data-table=topics] details.menu", has_text="Export")
    menu.locator("summary").focus()
    topics.keyboard.press("Enter")
    expect(menu.locator("a").first).to_be_visible()
    topics.keyboard.press("Tab")
    topics.keyboard.press("Escape")
    expect(menu.locator("a").first).to_be_hidden()
    expect(menu.locator("summary")).to_be_focused()
