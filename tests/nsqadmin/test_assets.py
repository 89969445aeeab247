"""Scripts and styles: kept for ever by browsers, small, and nothing in them that the policy would block."""

import re
import urllib.request

import pytest

from nsqfast.errors import OptionsError
from nsqfast.nsqadmin.web.assets import FOLDER, Assets, hash_files, read_files, shorten
from nsqfast.nsqadmin.web.urls import Urls
from support.admin_cluster import make_cluster
from support.admin_pages import AdminPages

SIZE_MAX = 120_000
FILES = sorted(path for path in FOLDER.rglob("*") if path.suffix in (".js", ".css"))
FORBIDDEN = re.compile(
    r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|DOMParser|\beval\(|new Function"
    r"|https?://(?!www\.w3\.org)|setAttribute\(.style|createContextualFragment"
)


def get(url):
    with urllib.request.urlopen(url, timeout=10) as answer:
        return answer.headers, answer.read()


def test_all_scripts_and_styles_together_are_small():
    """As they are served: without comments."""
    served = shorten(read_files(FOLDER))
    assert sum(len(served[path.relative_to(FOLDER).as_posix()]) for path in FILES) <= SIZE_MAX


def test_only_our_own_are_shortened():
    files = read_files(FOLDER)
    served = shorten(files)
    assert served.keys() == files.keys()
    for path in FILES:
        name = path.relative_to(FOLDER).as_posix()
        assert (served[name] == files[name]) == ("vendor" in path.parts), name


@pytest.mark.parametrize(
    "path",
    [path for path in FILES if "vendor" not in path.parts],
    ids=lambda path: path.relative_to(FOLDER).as_posix(),
)
def test_scripts_make_no_markup_and_ask_nobody_else(path):
    assert FORBIDDEN.search(path.read_text(encoding="utf-8")) is None


@pytest.mark.parametrize(
    "path", [path for path in FILES if path.suffix == ".js" and "vendor" not in path.parts], ids=str
)
def test_modules_import_by_relative_addresses_that_exist(path):
    for name in re.findall(r'from "([^"]+)"|import "([^"]+)"', path.read_text(encoding="utf-8")):
        wanted = name[0] or name[1]
        assert wanted.startswith("./")
        assert (path.parent / wanted).exists(), wanted


def test_files_are_kept_for_ever_below_their_hash():
    with AdminPages(make_cluster()) as site:
        page = get(site.url + "/")[1].decode()
        script = re.search(r'src="(/static/[0-9a-f]{12}/js/main\.js)"', page)[1]
        headers, body = get(site.url + script)
        assert body == shorten(read_files(FOLDER))["js/main.js"]
        assert headers["Content-Type"] == "text/javascript; charset=utf-8"
        assert headers["Cache-Control"] == "public, max-age=31536000, immutable"
        # A page that was loaded before an upgrade asks for the old ones.
        headers, old = get(site.url + "/static/000000000000/js/main.js")
        assert (old, headers["Cache-Control"]) == (body, "no-cache")


@pytest.mark.parametrize(
    "name", ["js/none.js", "../web/app.py", "%2e%2e/web/app.py", "/etc/passwd"]
)
def test_nothing_else_is_served(name):
    with AdminPages(make_cluster()) as site, pytest.raises(urllib.error.HTTPError) as caught:
        get(f"{site.url}/static/000000000000/{name}")
    caught.value.close()
    assert caught.value.code == 404


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
        headers, body = get(site.url + "/static/x/js/main.js")
    assert (body, headers["Cache-Control"]) == (b"second", "no-cache")


def test_a_folder_that_there_is_not_ends_the_start(tmp_path):
    with pytest.raises(OptionsError, match="--dev-static-dir .* is not a folder"):
        Assets(Urls("/"), str(tmp_path / "none"))
