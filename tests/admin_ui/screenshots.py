"""`make screenshots`: every page and dialog of nsqadmin at two widths in two themes, into docs/screenshots.

    python tests/admin_ui/screenshots.py [NAME ...]

What is taken is listed in tests/support/admin_ui_pages.py; the cluster is made up by tests/support/admin_cluster.py.
"""

import io
import shutil
import sys
from pathlib import Path

from PIL import Image
from playwright.sync_api import sync_playwright

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests"))

from support.admin_cluster import example_cluster, example_entries, example_problems  # noqa: E402
from support.admin_history import fill_history  # noqa: E402
from support.admin_pages import AdminPages  # noqa: E402
from support.admin_ui_pages import DIALOGS, PAGES  # noqa: E402

FOLDER = ROOT / "docs" / "screenshots"
WIDTHS = (1300, 375)
THEMES = ("light", "dark")
HEIGHT_MAX = 1400
COLOURS = 128
CHARTS_DRAWN = """() => [...document.querySelectorAll(".plot")].every(
    (plot) => plot.getAttribute("aria-label").includes(": "))"""


def save(picture: bytes, path: Path) -> None:
    """As a PNG with a palette, which is a fifth of the size."""
    with Image.open(io.BytesIO(picture)) as whole:
        cut = whole.convert("RGB").crop((0, 0, whole.width, min(whole.height, HEIGHT_MAX)))
    cut.quantize(COLOURS, dither=Image.Dither.NONE).save(path, optimize=True)


def take(page, url: str, name: str) -> None:
    """One page or dialog; all four of it."""
    path, opener, dialog = DIALOGS.get(name) or (PAGES[name], "", "")
    page.goto(url + path)
    page.wait_for_function(CHARTS_DRAWN)
    if opener:
        for selector in opener.split(" then "):
            page.locator(selector).first.click()
        page.locator(dialog).wait_for(state="visible")
    for width in WIDTHS:
        page.set_viewport_size({"width": width, "height": 900})
        for theme in THEMES:
            page.evaluate("(theme) => { document.documentElement.dataset.theme = theme }", theme)
            picture = page.screenshot(full_page=not opener, animations="disabled")
            save(picture, FOLDER / f"{name}-{width}-{theme}.png")


def main(names: list[str]) -> int:
    """All of them, or those that are named."""
    program = shutil.which("chromium")
    if program is None:
        print("no Chromium: apt install chromium", file=sys.stderr)
        return 1
    FOLDER.mkdir(parents=True, exist_ok=True)
    with (
        AdminPages(
            example_cluster(),
            problems=example_problems(),
            entries=example_entries(),
            fill=fill_history,
        ) as site,
        sync_playwright() as playwright,
    ):
        browser = playwright.chromium.launch(executable_path=program)
        page = browser.new_page(
            reduced_motion="reduce", timezone_id="UTC", locale="en-GB", color_scheme="light"
        )
        for name in names or [*PAGES, *DIALOGS]:
            take(page, site.url, name)
        browser.close()
    print(f"{len(names or [*PAGES, *DIALOGS])} pages and dialogs in {FOLDER}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
