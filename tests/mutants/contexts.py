"""Which test runs which line, in sub-processes too: pytest says here what runs now, coverage in every process asks.

A context is the number of a test, "@NAME" for a fixture that outlives a test, or "-" for the time before all tests.
"""

import json
import mmap
import os
from pathlib import Path

import coverage
import pytest

INSIDE, FOLDER = os.environ["MUTANTS_INSIDE"], Path(os.environ["MUTANTS_FOLDER"])
with (FOLDER / "now").open("r+b") as _file:
    NOW = mmap.mmap(_file.fileno(), 64)
tests = []


class Switcher(coverage.CoveragePlugin):
    def dynamic_context(self, frame):
        """At each call from outside, a step of an event loop say: a daemon that a fixture started serves many tests."""
        code, caller = frame.f_code, frame.f_back
        if not code.co_filename.startswith(INSIDE):
            return None
        if code.co_name == "<module>" and frame.f_globals["__name__"] == "__main__":
            return None  # it lasts as long as its process
        if caller is not None and caller.f_code.co_filename.startswith(INSIDE):
            return None
        return read()


def coverage_init(registry, _options):
    registry.add_dynamic_context(Switcher())


def read():
    return NOW[:].decode().strip()


def say(name):
    NOW[:] = name.encode().ljust(len(NOW))
    os.environ["MUTANTS_BEGIN"] = name  # the context of a process outside of all such calls


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item):
    say(str(len(tests)))
    names = list(item.fixturenames)
    tests.append({"id": item.nodeid, "fixtures": names, "seconds": 0, "outcome": "passed"})
    try:
        return (yield)
    finally:
        say("-")


@pytest.hookimpl(wrapper=True)
def pytest_fixture_setup(fixturedef):
    before = read()
    if fixturedef.scope != "function" and not before.startswith("@"):
        say("@" + fixturedef.argname)
    try:
        return (yield)
    finally:
        say(before)


def pytest_runtest_logreport(report):
    tests[-1]["seconds"] += report.duration
    if not report.passed:
        tests[-1]["outcome"] = report.outcome


def pytest_sessionfinish():
    (FOLDER / "tests").write_text(json.dumps(tests))
