"""Markers of every folder of tests, each of which says itself what it needs.

`soak` is what `make test` leaves out to end in six minutes on two cores, and CI runs: what is run once more with Go's
nsqd (compat runs both always), and what takes more than two seconds of processor time or ten of waiting: nodes and
utilities in trouble, kills again and again, leaks by the thousand, clusters in network namespaces, the commands of the
documents, a browser with the charts, the keyboard, roles, prefixes and hostile names. `make soak` runs it,
`make test ARGS="-m 'not trust'"` both. `trust` is for `make trust` only (tests/durability). `go` needs the Go programs,
which `make go-nsq` builds into .go-nsq/.

pytest-xdist does not fit: each of its workers collects all tests, gets a JVM and a browser, and no test of asyncio runs
in a process that Playwright was in.
"""

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
