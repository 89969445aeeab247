"""`make screenshots`: every page and dialog of nsqadmin at two widths in two themes.

    python tests/admin_ui/screenshots.py [NAME ...]

Those that a document shows go to docs/screenshots, which has no others; all others go to build/screenshots. Each says
in itself which version it is of (tests/source/test_screenshots.py). It needs Chromium: `apt install chromium`.

What is taken is listed in tests/support/admin_ui_pages.py and admin_ui_sites.py; clusters are made up by
tests/support/admin_cluster.py.
"""

import io
import json
import shutil
import sys
import tempfile
from collections.abc import Collection
from pathlib import Path

from PIL import Image
from PIL.PngImagePlugin import PngInfo
from playwright.sync_api import Browser, Page, sync_playwright

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests"))

from nsqfast import __version__  # noqa: E402
from support.access import write_users  # noqa: E402
from support.admin_cluster import AT  # noqa: E402
from support.admin_pages import example_pages  # noqa: E402
from support.admin_ui_pages import DIALOGS, PAGES  # noqa: E402
from support.admin_ui_sites import SITES  # noqa: E402
from support.screenshots import FOLDER, list_shown  # noqa: E402

OTHERS = ROOT / "build" / "screenshots"
WIDTHS = (1300, 375)
THEMES = ("light", "dark")
CONTEXT = {"reduced_motion": "reduce", "timezone_id": "UTC", "locale": "en-GB"}
# The audit first, because looking at messages is audited.
ALL = list(
    dict.fromkeys(
        ["audit", *PAGES, *DIALOGS, *(n for s in SITES.values() for n in s.paths), "tail", "login"]
    )
)
HEIGHT_MAX = 1400
COLOURS = 128
CHARTS_DRAWN = """() => [...document.querySelectorAll(".plot")].every(
    (plot) => plot.getAttribute("aria-label").includes(": "))"""


def pick_colours(picture: Image.Image) -> list[tuple[int, int, int]]:
    """The most frequent ones, what is not grey first; of colours that nobody can tell apart, one."""
    counted = picture.getcolors(picture.width * picture.height)
    counted.sort(key=lambda each: each[0] * (1 + max(each[1]) - min(each[1])), reverse=True)
    found = {}
    for _, colour in counted:
        found.setdefault(tuple(part >> 2 for part in colour), colour)
    return list(found.values())[:COLOURS]


def save(picture: bytes, name: str) -> None:
    """With a palette of the most frequent colours, which is a fifth of the size."""
    with Image.open(io.BytesIO(picture)) as whole:
        cut = whole.convert("RGB").crop((0, 0, whole.width, min(whole.height, HEIGHT_MAX)))
    palette = Image.new("P", (1, 1))
    palette.putpalette([part for colour in pick_colours(cut) for part in colour])
    info = PngInfo()
    info.add_text("Software", f"nsqfast {__version__}")
    folder = FOLDER if name in list_shown() else OTHERS
    cut.quantize(palette=palette, dither=Image.Dither.NONE).save(
        folder / name, optimize=True, pnginfo=info
    )


def shoot(page: Page, name: str, *, full_page: bool = True, is_odd: bool = False) -> None:
    """What is open now, four times; what is out of the ordinary twice, because the files add up."""
    for width in WIDTHS:
        page.set_viewport_size({"width": width, "height": 900})
        for theme in THEMES:
            if is_odd and (width == WIDTHS[0]) != (theme == THEMES[0]):
                continue
            page.emulate_media(color_scheme=theme)
            picture = page.screenshot(full_page=full_page, animations="disabled")
            save(picture, f"{name}-{width}-{theme}.png")


def take(page: Page, url: str, name: str) -> None:
    """One page or dialog of the example."""
    path, opener, dialog = DIALOGS.get(name) or (PAGES[name], "", "")
    page.goto(url + path)
    page.wait_for_function(CHARTS_DRAWN)
    for selector in opener.split(" then ") if opener else ():
        page.locator(selector).first.click()
    if dialog:
        page.locator(dialog).wait_for(state="visible")
    shoot(page, name, full_page=not opener)


def take_login(browser: Browser) -> None:
    """Which has pages of its own: before, and after a wrong password."""
    with tempfile.TemporaryDirectory() as folder:
        users = write_users(Path(folder) / "users", ("ana", "admin", "right horse"))
        site = example_pages(f"--auth-file={users}")
        with site, browser.new_context(**CONTEXT) as context:
            page = context.new_page()
            page.goto(site.url + "/topics")
            shoot(page, "login")
            page.get_by_label("Name").fill("ana")
            page.get_by_label("Password").fill("wrong horse")
            page.get_by_role("button", name="Log in").click()
            page.get_by_role("alert").wait_for(state="visible")
            shoot(page, "login-failed")


def take_tail(page: Page, url: str) -> None:
    """With events of our own, because the nodes of the example do not listen."""
    facts = {"node": "10.0.0.1:4151", "time": AT, "is_hex": False, "is_masked": False}
    events = []
    for number, text in enumerate(('{"order": 7, "total": 129.90}', "GET /health 200")):
        message = {
            "id": f"0a1b2c3d4e5f000{number}",
            "size": len(text),
            "text": text,
            "kind": "text",
        }
        events.append(f"event: message\ndata: {json.dumps(facts | message)}\n\n")
    page.route("**/ui/tail", lambda route: route.fulfill(body="".join(events)))
    page.goto(f"{url}/messages?topic=orders&node=10.0.0.2:4151")
    page.locator("#tail-start").click()
    page.get_by_text("The tail ended.").wait_for()
    shoot(page, "tail")


def take_sites(browser: Browser, names: Collection[str]) -> None:
    """Pages of clusters that are out of the ordinary."""
    for site in SITES.values():
        wanted = [name for name in site.paths if name in names]
        if not wanted:
            continue
        context = browser.new_context(**CONTEXT, java_script_enabled=site.scripts)
        with site.start() as running, context:
            page = context.new_page()
            for name in wanted:
                page.goto(running.url + site.paths[name])
                if site.scripts:
                    page.wait_for_function(CHARTS_DRAWN)
                shoot(page, name, is_odd=True)


def main(given: list[str]) -> int:
    """All of them, or those that are named."""
    program = shutil.which("chromium")
    if program is None:
        print("no Chromium: apt install chromium", file=sys.stderr)
        return 1
    OTHERS.mkdir(parents=True, exist_ok=True)
    names = given or ALL
    with example_pages() as example, sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=program)
        page = browser.new_page(**CONTEXT)
        for name in names:
            if name in PAGES or name in DIALOGS:
                take(page, example.url, name)
        if "tail" in names:
            take_tail(page, example.url)
        take_sites(browser, names)
        if "login" in names:
            take_login(browser)
        browser.close()
    print(f"{len(names)} pages and dialogs in {OTHERS}, what documents show in {FOLDER}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
