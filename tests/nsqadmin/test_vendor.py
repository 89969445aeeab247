"""What is not ours is as its authors published it, with its licence beside it."""

import hashlib

from nsqfast.nsqadmin.web.assets import FOLDER

UPLOT = FOLDER / "vendor" / "uplot"
# https://registry.npmjs.org/uplot/-/uplot-1.6.32.tgz, package/dist and package/LICENSE
PUBLISHED = {
    "uPlot.iife.min.js": "19c8d4c6ad88929a79f4ae49d6f7161566dfd0ba3d15cc495e974f787eb78f1f",
    "LICENSE": "8f989229699b4fe2f1a0432d0e9edc338a8a911e250e2d1b01ecd770a5f5b1bd",
}


def test_uplot_is_unchanged_and_has_its_licence():
    found = {name: hashlib.sha256((UPLOT / name).read_bytes()).hexdigest() for name in PUBLISHED}
    assert found == PUBLISHED
    assert "MIT License" in (UPLOT / "LICENSE").read_text()


def test_the_list_of_checksums_beside_it_is_right():
    lines = (UPLOT / "SHA256SUMS").read_text().splitlines()
    assert {name: digest for digest, name in (line.split() for line in lines)} == PUBLISHED


def test_nothing_else_is_vendored():
    names = {path.relative_to(FOLDER / "vendor").as_posix() for path in UPLOT.parent.rglob("*.*")}
    assert names == {f"uplot/{name}" for name in PUBLISHED if "." in name}
