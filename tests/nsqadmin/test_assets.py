"""Scripts and styles: kept for ever by browsers, small, and nothing in them that the policy would block."""

import hashlib
import re

import pytest

from nsqfast.errors import OptionsError
from nsqfast.nsqadmin.context import Urls
from nsqfast.nsqadmin.web.render import STATIC, Assets, hash_files, minify, read_files
from support.admin_cluster import make_cluster
from support.admin_pages import AdminPages

# https://registry.npmjs.org/uplot/-/uplot-1.6.32.tgz, package/dist and package/LICENSE
PUBLISHED = {
    "uPlot.iife.min.js": "19c8d4c6ad88929a79f4ae49d6f7161566dfd0ba3d15cc495e974f787eb78f1f",
    "LICENSE": "8f989229699b4fe2f1a0432d0e9edc338a8a911e250e2d1b01ecd770a5f5b1bd",
}
FORBIDDEN = re.compile(
    r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|DOMParser|\beval\(|new Function"
    r"|https?://(?!www\.w3\.org)|setAttribute\(.style|createContextualFragment"
)


def test_files_are_kept_for_ever_below_their_hash():
    with AdminPages(make_cluster()) as site:
        page = site.get("/").text
        script = re.search(r'src="(/static/[0-9a-f]{12}/js/main\.js)"', page)[1]
        found = site.get(script)
        assert found.body == minify(read_files(STATIC))["js/main.js"]
        assert found.headers["Content-Type"] == "text/javascript; charset=utf-8"
        assert found.headers["Cache-Control"] == "public, max-age=31536000, immutable"
        # A page that was loaded before an upgrade asks for the old ones.
        old = site.get("/static/000000000000/js/main.js")
        assert (old.body, old.headers["Cache-Control"]) == (found.body, "no-cache")


def test_the_hash_differs_with_any_name_or_byte():
    files = {"a.js": b"1", "b.js": b"2"}
    others = [
        {"a.js": b"1"},
        {"a.js": b"12", "b.js": b""},
        {"a.js": b"1", "c.js": b"2"},
        {"a.jsb.js": b"12"},
    ]
    assert len({hash_files(each) for each in [files, *others]}) == 5


def test_a_folder_for_development_is_read_each_time(tmp_path):
    for name in ("favicon.svg", "css/base.css", "js/main.js"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("first")
    with AdminPages(make_cluster(), f"--dev-static-dir={tmp_path}") as site:
        (tmp_path / "js" / "main.js").write_text("second")
        found = site.get("/static/x/js/main.js")
    assert (found.body, found.headers["Cache-Control"]) == (b"second", "no-cache")


def test_a_folder_that_there_is_not_ends_the_start(tmp_path):
    with pytest.raises(OptionsError, match="--dev-static-dir .* is not a folder"):
        Assets(Urls("/"), str(tmp_path / "none"))


def test_our_own_are_shortened_make_no_markup_and_ask_nobody_else():
    files = read_files(STATIC)
    served = minify(files)
    assert served.keys() == files.keys()
    assert sum(len(body) for body in served.values()) < sum(len(body) for body in files.values())
    # The shortener takes the inner one of two templates for code, and its spaces away.
    nested = re.compile(rb"\$\{[^}]*`")
    for name, body in served.items():
        if "vendor/" in name:
            assert body == files[name]
        elif name.endswith((".js", ".css")):
            assert FORBIDDEN.search(files[name].decode()) is None, name
            assert nested.search(files[name]) is None, name


def test_nothing_else_is_served():
    with AdminPages(make_cluster()) as site:
        for name in ("js/none.js", "../web/site.py", "%2e%2e/web/site.py", "/etc/passwd"):
            assert site.get(f"/static/000000000000/{name}").status == 404


def test_what_is_not_ours_is_as_its_authors_published_it_with_its_licence():
    folder = STATIC / "vendor"
    found = {path.name: path for path in folder.rglob("*") if path.is_file()}
    sums = dict(line.split()[::-1] for line in found.pop("SHA256SUMS").read_text().splitlines())
    assert sums == PUBLISHED
    digests = {name: hashlib.sha256(path.read_bytes()).hexdigest() for name, path in found.items()}
    assert digests == PUBLISHED
    assert "MIT License" in found["LICENSE"].read_text()
