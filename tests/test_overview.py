"""`python -m nsqfast`: what it says, and the programs that it runs."""

import re
import subprocess
import sys
from importlib import metadata

import pytest

from nsqfast import NSQ_VERSION, __version__, extras, overview
from nsqfast.programs import PROGRAMS
from support.plain_install import read_project
from support.server import ROOT


def run_module(*words):
    return subprocess.run(
        [sys.executable, "-m", "nsqfast", *words],
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )


def test_the_programs_are_those_that_are_installed():
    scripts = read_project()["scripts"]
    assert {each.name: f"{each.module}:main" for each in PROGRAMS} == scripts


def test_their_extras_are_those_of_pyproject():
    known = read_project()["optional-dependencies"]
    assert {extra for each in PROGRAMS for extra in each.extras} <= known.keys()


@pytest.mark.parametrize("words", [[], ["--help"]])
def test_says_what_there_is(words):
    done = run_module(*words)
    assert (done.returncode, done.stderr) == (0, "")
    lines = done.stdout.splitlines()
    assert lines[:2] == [f"nsqfast {__version__}", f"compatible with NSQ {NSQ_VERSION}"]
    for each in PROGRAMS:
        (line,) = (line for line in lines if line.split()[:1] == [each.name])
        assert each.purpose in line
        assert f"[{','.join(each.extras)}]" in line
    assert re.search(
        rf"^  aiohttp +{re.escape(metadata.version('aiohttp'))}$", done.stdout, re.MULTILINE
    )
    assert lines[-1] == f"Documents: {overview.find_documents()}"


def test_says_what_is_missing(monkeypatch):
    monkeypatch.setitem(extras.PACKAGES, "admin", ("no_such_a", "aiohttp", "no_such_b"))
    monkeypatch.setitem(extras.PACKAGES, "server", ("aiohttp",))
    lines = overview.compose_overview().splitlines()
    states = {line.split()[0]: line for line in lines if line.startswith("  nsqfast-")}
    assert states["nsqfast-nsqadmin"].endswith("  lacks no_such_a, no_such_b")
    assert states["nsqfast-nsqd"].endswith("  installed")


def test_in_a_checkout_documents_are_beside_the_package(monkeypatch):
    monkeypatch.setattr(overview, "FOLDER", ROOT / "nsqfast")
    assert overview.find_documents() == str(ROOT / "docs")


def test_elsewhere_documents_are_at_the_address_of_pyproject(monkeypatch, tmp_path):
    monkeypatch.setattr(overview, "FOLDER", tmp_path / "site-packages" / "nsqfast")
    assert overview.find_documents() == read_project()["urls"]["Documentation"]


def test_version():
    done = run_module("--version")
    assert (done.returncode, done.stdout) == (0, f"{overview.VERSION_LINES}\n")


@pytest.mark.parametrize("word", ["nsqd", "nsqfast-nsqd"])
def test_runs_a_program(word):
    own = subprocess.run(
        [sys.executable, "-m", "nsqfast.nsqd.main", "--version"],
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )
    done = run_module(word, "--version")
    assert (done.returncode, done.stdout) == (0, own.stdout)
    assert done.stdout.startswith(f"nsqd v{NSQ_VERSION} ")


def test_takes_the_names_of_nsq_and_returns_the_status_of_the_program():
    done = run_module("nsq_tail")
    assert done.returncode == 1
    assert done.stderr.endswith(" --nsqd-tcp-address or --lookupd-http-address required\n")


def test_another_word_is_an_error():
    done = run_module("nsqdd", "--version")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("python -m nsqfast: there is no program nsqdd; there are nsqd, ")
    assert done.stderr.count("\n") == 1
