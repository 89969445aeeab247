"""Fixtures for every folder of tests."""

import pytest

from support.server import NO_GO, go_folder


def pytest_runtest_setup(item):
    if item.get_closest_marker("go") and go_folder() is None:
        pytest.skip(NO_GO)
