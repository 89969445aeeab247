"""The site: `make docs` has nothing to warn of, needs no network, and would notice a wrong link."""

import os
import re
import shutil
import subprocess
import sys

import pytest
from playwright.sync_api import expect, sync_playwright

from support.server import ROOT

pytest.importorskip("material", reason="mkdocs-material is missing: pip install --group docs")
pytestmark = pytest.mark.slow

CONFIG = (ROOT / "mkdocs.yml").read_text(encoding="utf-8")
# What a browser gets without being asked: a link (<a href>) is not among it.
LOADED = re.compile(
    r"""<(?:script|img|iframe|source)\b[^>]*\bsrc=["']?([^"'\s>]+)"""
    r"""|<link\b[^>]*\bhref=["']?([^"'\s>]+)"""
)


def build(folder, config=ROOT / "mkdocs.yml"):
    return subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "-f", config, "-d", folder],
        capture_output=True,
        text=True,
        cwd=ROOT,
        env=os.environ | {"NO_MKDOCS_2_WARNING": "1"},
        check=False,
    )


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    folder = tmp_path_factory.mktemp("site")
    done = build(folder)
    assert done.returncode == 0, done.stderr
    return folder


def test_every_document_is_in_it(site):
    pages = {path.relative_to(ROOT / "docs") for path in (ROOT / "docs").rglob("*.md")}
    built = {path.relative_to(site).with_suffix(".md") for path in site.rglob("*.html")}
    missing = {str(page) for page in pages - built} - {"spec/README.md"}
    assert missing == set()
    assert (site / "spec" / "index.html").exists()


def test_nothing_is_loaded_from_elsewhere(site):
    loaded = {
        address
        for path in site.rglob("*.html")
        for found in LOADED.finditer(path.read_text(encoding="utf-8"))
        for address in found.groups()
        if address
    }
    assert loaded
    assert [address for address in loaded if "://" in address or address.startswith("//")] == []


def test_marks_of_tests_are_not_shown(site):
    text = "".join(path.read_text(encoding="utf-8") for path in site.rglob("*.html"))
    assert "<!-- not run" not in text
    assert "<!-- run" not in text


@pytest.mark.skipif(
    not shutil.which("chromium"), reason="chromium is missing: apt install chromium"
)
def test_the_search_works_from_the_disk_and_without_a_network(site):
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=shutil.which("chromium"), args=["--no-sandbox"]
        )
        page = browser.new_context(offline=True).new_page()
        errors = []
        page.on("pageerror", lambda error: errors.append(error))
        page.goto((site / "howto" / "tls.html").as_uri())
        # What is typed before is lost, as its script does not listen yet.
        page.wait_for_function("document.documentElement.classList.contains('js')")
        page.click("input.md-search__input")
        told = page.locator(".md-search-result__meta")
        expect(told).to_contain_text("Type to start", timeout=30_000)
        page.keyboard.type("requeue", delay=50)
        expect(told).to_contain_text("matching documents", timeout=30_000)
        browser.close()
    assert errors == []


@pytest.mark.soak
def test_a_wrong_link_is_an_error(tmp_path):
    """Of a site of one more page, whose folder of documents is a copy."""
    wrong = ["nothing.md", "CLIENT.md#nothing", "../nothing.py", "/CLIENT.md"]
    links = "".join(f"[link]({link})\n" for link in wrong)
    docs = tmp_path / "docs"
    docs.mkdir()
    for path in (ROOT / "docs").iterdir():
        (docs / path.name).symlink_to(path)
    (docs / "wrong.md").write_text(f"# Wrong\n\n{links}", encoding="utf-8")
    config = tmp_path / "mkdocs.yml"
    text = CONFIG.replace("docs_dir: docs", f"docs_dir: {docs}")
    for folder in ("docs/site/hooks.py", "docs/site/theme"):
        text = text.replace(folder, f"{ROOT}/{folder}")
    config.write_text(text.replace("nav:\n", "nav:\n  - wrong.md\n", 1), encoding="utf-8")
    done = build(tmp_path / "site", config)
    assert done.returncode != 0
    warnings = [line for line in done.stderr.splitlines() if line.startswith("WARNING")]
    assert len(warnings) == len(wrong)
    assert all("wrong.md" in warning for warning in warnings)
    assert all(any(link in warning for warning in warnings) for link in wrong)
