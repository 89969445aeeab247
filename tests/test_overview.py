"""`python -m nsqfast`: what it says, and the programs that it runs."""

import sys

import pytest

from nsqfast import NSQ_VERSION
from nsqfast.program import overview
from nsqfast.program.overview import PROGRAMS
from support.commands import run_command
from support.plain_install import read_project


def run_module(*words):
    return run_command(sys.executable, "-m", "nsqfast", *words)


def test_the_programs_are_those_that_are_installed():
    scripts = read_project()["scripts"]
    assert {each.name: f"{each.module}:main" for each in PROGRAMS} == scripts


def test_their_extras_are_those_of_pyproject():
    known = read_project()["optional-dependencies"]
    assert {extra for each in PROGRAMS for extra in each.extras} <= known.keys()


def test_elsewhere_documents_are_at_the_address_of_pyproject(monkeypatch, tmp_path):
    monkeypatch.setattr(overview, "FOLDER", tmp_path / "site-packages" / "nsqfast")
    assert overview.find_documents() == read_project()["urls"]["Documentation"]


def test_version():
    done = run_module("--version")
    assert (done.returncode, done.stdout) == (0, f"{overview.VERSION_LINES}\n")


@pytest.mark.parametrize("word", ["nsqd", "nsqfast-nsqd"])
def test_runs_a_program(word):
    own = run_command(sys.executable, "-m", "nsqfast.nsqd.main", "--version")
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
