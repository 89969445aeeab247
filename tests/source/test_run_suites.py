"""`make test`: every test is in one suite, and one line at the end counts all; `make help` names every target."""

import re
import shutil
import signal
import subprocess
import sys
import threading

import pytest

from run_suites import Ended, Runner, choose_files, complete, list_named
from support.fake_nsqd import eventually
from support.suites import ALONE, ROOT, SUITES, divide, list_files


def test_every_file_is_in_one_suite():
    files = list_files()
    divided = [path for paths in divide(files).values() for path in paths]
    assert sorted(divided) == files
    assert all((ROOT / place).exists() for places in SUITES.values() for place in places)
    for one in ALONE:
        path, _, name = one.partition("::")
        assert f"def {name}(" in (ROOT / path).read_text(encoding="utf-8")
    assert divide(files).keys() >= SUITES.keys()


def test_a_file_belongs_to_the_suite_that_names_it_most_closely():
    paths = ["tests/client/test_examples.py", "tests/client/test_link.py", "tests/test_logs.py"]
    assert divide(paths) == {
        "client": ["tests/client/test_link.py"],
        "examples": ["tests/client/test_examples.py"],
        "others": ["tests/test_logs.py"],
    }


def test_arguments():
    assert list_named(["-k", "x", "tests/client"]) == [ROOT / "tests" / "client"]
    one = ["tests/test_logs.py::test_text_line"]
    assert list_named(one) == [ROOT / "tests" / "test_logs.py"]
    assert list_named(["-k", "docs", "-m", ""]) == []
    assert complete(one, list_named(one)) == ["-m", "not trust", *one]
    for chosen in (["tests/client"], ["-m", "soak", *one]):
        assert complete(chosen, list_named(chosen)) == chosen
    files, arguments = choose_files(["--ignore=tests/source", "-x"])
    assert arguments == ["-x"]
    assert files == [path for path in list_files() if not path.startswith("tests/source/")]


@pytest.mark.parametrize(
    ("text", "counts"),
    [
        ("===== 12 passed, 1 skipped, 3 deselected in 4.51s =====", (12, 1, 0)),
        ("2 failed, 1 passed, 1 error in 93.10s (0:01:33)", (1, 0, 2)),
        ("1 passed in 0.1s\n=== 7 passed, 2 warnings in 0.5s ===", (7, 0, 0)),
        ("===== no tests ran in 0.01s =====", (0, 0, 0)),
        ("Segmentation fault", (0, 0, 0)),
    ],
)
def test_counts_of_a_suite(text, counts):
    found = Ended("x", 0, text, 1.0).counts
    assert (found["passed"], found["skipped"], found["failed"]) == counts


pytestmark = pytest.mark.slow


@pytest.fixture
def make_runner(tmp_path, capsys):
    """Of files with these texts: each is a suite."""

    def make(arguments=(), **texts):
        for name, text in texts.items():
            (tmp_path / f"test_{name}.py").write_text(text)
        suites = {name: [f"test_{name}.py"] for name in texts}
        return Runner(list(arguments), tmp_path), suites

    return make


@pytest.mark.soak
def test_suites_beside_each_other(make_runner, capsys):
    runner, suites = make_runner(
        good="def test_a(): pass\ndef test_b(): pass\n",
        bad="def test_c(): assert 1 == 2\n",
        skipped="import pytest\npytestmark = pytest.mark.skip\ndef test_d(): pass\n",
        broken="import no_such_module\n",
    )
    runner.run_beside(suites, 2)
    assert runner.sum_up() == "1 failed, 2 passed, 1 skipped, 1 error"
    assert runner.status == 1
    said = capsys.readouterr().out
    assert re.search(r"^good +2 passed in \d+s$", said, re.MULTILINE)
    assert "def test_c(): assert 1 == 2" in said
    assert "No module named 'no_such_module'" in said
    assert "def test_a()" not in said


@pytest.mark.soak
def test_nothing_chosen_is_no_failure_where_others_have_tests(make_runner):
    runner, suites = make_runner(
        ["-k", "test_a"], good="def test_a(): pass\n", none="def test_b(): pass\n"
    )
    runner.run_beside(suites, 1)
    assert (runner.status, runner.sum_up()) == (0, "1 passed, 1 deselected")
    runner, suites = make_runner(["-k", "test_x"], none="def test_b(): pass\n")
    runner.run_beside(suites, 1)
    assert runner.status == 5


def test_a_crash_is_said(make_runner, capsys):
    runner, suites = make_runner(dead="import os\ndef test_a(): os._exit(9)\n")
    runner.run_beside(suites, 1)
    assert (runner.status, runner.sum_up()) == (9, "no tests ran")
    assert "ended with 9" in capsys.readouterr().out


def test_the_first_failure_is_the_last_suite(make_runner):
    runner, suites = make_runner(
        ["-x"], bad="def test_c(): assert 0\n", good="def test_a(): pass\n"
    )
    runner.run_beside(suites, 1)
    assert [one.name for one in runner.ended] == ["bad"]


def test_an_interrupt_ends_all(make_runner, tmp_path):
    text = (
        "import threading\n"
        "from pathlib import Path\n"
        "def test_a():\n"
        f"    Path({str(tmp_path)!r}, 'begun').touch()\n"
        "    threading.Event().wait()\n"
    )
    runner, suites = make_runner(hangs=text, later="def test_a(): pass\n")

    def interrupt():
        eventually((tmp_path / "begun").exists)
        runner.interrupt()

    thread = threading.Thread(target=interrupt)
    thread.start()
    runner.run_beside(suites, 1)
    thread.join()
    assert [(one.name, one.status) for one in runner.ended] == [("hangs", signal.SIGINT)]
    assert runner.is_interrupted


def test_help_names_every_target():
    text = (ROOT / "Makefile").read_text(encoding="utf-8").replace("\\\n", " ")
    targets = re.search(r"^\.PHONY: (.*)$", text, re.MULTILINE)[1].split()
    done = subprocess.run(
        [shutil.which("make"), "--no-print-directory", "help"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    lines = done.stdout.splitlines()
    assert all(re.match(r"make .{22} \S", line) for line in lines), "one column"
    assert {line.split()[1] for line in lines} == set(targets)
    assert set(targets) == set(re.findall(r"^([a-z-]+):(?!=)", text, re.MULTILINE))


def test_the_driver_passes_what_names_tests_to_pytest():
    command = [sys.executable, "tests/run_suites.py", "--collect-only", "-q", "tests/test_logs.py"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    assert "tests/test_logs.py::test_text_line" in done.stdout
