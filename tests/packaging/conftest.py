"""Tests of wheels run for each wheel, and are skipped where none was made (`make wheels`, `.ci/wheels/build.py`).

They say what may be in one, and which file is missing: one that is no source needs a place in MANIFEST.in (sdist) or
`[tool.setuptools.package-data]` (wheel). `make wheel-test` runs others against the wheels in dist/, without compiler
and checkout, `make wheel-extras` installs each extra alone.
"""

import sys

import pytest

from support.server import ROOT
from support.wheels import WHEELS

# The programs that make wheels are in no package.
sys.path.append(str(ROOT / ".ci"))


def pytest_generate_tests(metafunc):
    if "wheel" in metafunc.fixturenames:
        missing = pytest.param(None, marks=pytest.mark.skip(reason="no wheel: run `make wheel`"))
        metafunc.parametrize("wheel", WHEELS or [missing], ids=lambda path: path and path.name)
