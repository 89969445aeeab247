"""Tests of wheels run for each wheel, and are skipped where none was made."""

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
