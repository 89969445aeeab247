"""Markers and fixtures of every folder of tests, each of which says itself what it needs.

`soak` is what `make test` leaves out to end in six minutes on two cores, and CI runs: what is run once more with Go's
nsqd (compat runs both always), and what takes more than two seconds of processor time or ten of waiting: nodes and
utilities in trouble, kills again and again, leaks by the thousand, clusters in network namespaces, the commands of the
documents, a browser with the charts, the keyboard, roles, prefixes and hostile names. `make soak` runs it,
`make test ARGS="-m 'not trust'"` both. `trust` is for `make trust` only (tests/durability). `go` needs the Go programs,
which `make go-nsq` builds into .go-nsq/.

pytest-xdist does not fit: each of its workers collects all tests, gets a JVM and a browser, and no test of asyncio runs
in a process that Playwright was in.

A module may set NSQD_FLAGS (more flags) and NSQD_METADATA (the nsqd.dat it starts with) for its broker.
"""

import importlib
import inspect
import itertools
import json
import os

import pytest

from support.certificates import Certificates
from support.loops import strict
from support.ports import hold_port
from support.server import NO_GO, ROOT, go_folder, start_nsqd

# Every process with numpy would start threads of OpenBLAS, which use the processor while they wait.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

TOPIC_NUMBERS = itertools.count(1)

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


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem):
    """A test that is a coroutine runs in a loop of its own: uvloop's, or one of `loop_factory`."""
    if not inspect.iscoroutinefunction(pyfuncitem.obj):
        return None
    import uvloop

    arguments = {name: pyfuncitem.funcargs[name] for name in pyfuncitem._fixtureinfo.argnames}
    with strict(arguments.get("loop_factory", uvloop.new_event_loop)) as run:
        run(pyfuncitem.obj(**arguments))
    return True


@pytest.fixture(params=["asyncio", "uvloop"])
def loop_factory(request):
    """For a test on asyncio's own loop, and on uvloop."""
    return importlib.import_module(request.param).new_event_loop


@pytest.fixture(scope="module", params=["nsqfast", pytest.param("go", marks=pytest.mark.go)])
def implementation(request):
    """Whose daemons a test talks to."""
    return request.param


@pytest.fixture(scope="module")
def broker(request, implementation, tmp_path_factory):
    """One for all tests of a module, and for each implementation."""
    folder = tmp_path_factory.mktemp(implementation)
    metadata = getattr(request.module, "NSQD_METADATA", None)
    if metadata is not None:
        (folder / "nsqd.dat").write_text(json.dumps(metadata))
    flags = getattr(request.module, "NSQD_FLAGS", ())
    with start_nsqd(implementation, folder, *flags) as server:
        yield server


@pytest.fixture
def address(broker):
    return "{}:{}".format(*broker.tcp)


@pytest.fixture
def topic():
    """A topic that no other test has."""
    return f"topic-{next(TOPIC_NUMBERS)}"


@pytest.fixture
def dead():
    """An address where nobody listens."""
    return f"127.0.0.1:{hold_port()}"


@pytest.fixture(scope="module")
def certificates(tmp_path_factory):
    return Certificates(tmp_path_factory.mktemp("certificates"))
