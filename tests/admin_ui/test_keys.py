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


@pytest.mark.parametrize(
    ("key", "path"),
    [("o", "/"), ("n", "/nodes"), ("l", "/lookup"), ("p", "/problems"), ("a", "/audit")],
)
def test_g_and_a_letter_go_to_a_page(site, topics, key, path):
    topics.keyboard.press("g")
    topics.keyboard.press(key)
    expect(topics).to_have_url(site.url + path)


def test_the_dialog_lists_every_key_and_gives_the_focus_back(topics):
    topics.locator("[data-key=orders] th a").focus()
    topics.keyboard.press("?")
    dialog = topics.get_by_role("dialog", name="Keys")
    expect(dialog).to_be_visible()
    listed = " ".join(dialog.locator("kbd").all_text_contents())
    assert all(key in listed.split() for key in "/ g o t n l p c a j k Enter x r t Esc ?".split())
    topics.keyboard.press("Escape")
    expect(dialog).to_be_hidden()
    expect(topics.locator("[data-key=orders] th a")).to_be_focused()


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


def test_keys_can_be_switched_off_for_good(topics):
    topics.keyboard.press("?")
    topics.get_by_role("checkbox", name="Keys are on").uncheck()
    topics.keyboard.press("Escape")
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


def test_rows_are_selected_by_x_and_in_ranges_with_shift(topics):
    topics.keyboard.press("j")
    topics.keyboard.press("x")
    picked = topics.locator("tbody input[name=pick]:checked")
    expect(picked).to_have_count(1)
    boxes = topics.locator("tbody input[name=pick]")
    boxes.nth(3).click(modifiers=["Shift"])
    expect(picked).to_have_count(4)
    topics.get_by_role("checkbox", name="Select all on this page").check()
    expect(picked).to_have_count(boxes.count())


def test_theme_goes_round_and_is_kept_by_the_server(site, topics):
    root = topics.locator("html")
    expect(root).to_have_attribute("data-theme", "auto")
    topics.keyboard.press("t")
    expect(root).to_have_attribute("data-theme", "dark")
    answer = topics.context.request.get(site.url + "/topics")
    assert 'data-theme="dark"' in answer.text()
    topics.get_by_role("button", name="Theme: dark").click()
    expect(root).to_have_attribute("data-theme", "light")


def test_a_link_is_copied_or_shown(topics):
    address = topics.url
    topics.evaluate("() => Object.defineProperty(navigator, 'clipboard', { value: undefined })")
    topics.get_by_role("button", name="Copy link").click()
    expect(topics.get_by_role("textbox", name="Link", exact=True)).to_have_value(address)
    expect(topics.get_by_role("textbox", name="Link", exact=True)).to_be_focused()


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
