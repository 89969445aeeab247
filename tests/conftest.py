"""Fixtures for every folder of tests."""

import pytest

from support.server import NO_GO, ROOT, go_folder

# Once more with Go's nsqd, or Go's utility: as long again, and tests/compat has what nsqd and the client do.
AGAIN_WITH_GO = [ROOT / "tests" / name for name in ("client", "spark", "spool", "tools")]


@pytest.hookimpl(tryfirst=True)  # before -m chooses
def pytest_collection_modifyitems(items):
    for item in items:
        is_here = any(item.path.is_relative_to(folder) for folder in AGAIN_WITH_GO)
        if is_here and item.get_closest_marker("go"):
            item.add_marker("soak")


def pytest_runtest_setup(item):
    if item.get_closest_marker("go") and go_folder() is None:
        pytest.skip(NO_GO)
