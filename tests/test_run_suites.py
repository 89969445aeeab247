"""`make test`: every test is in one suite, and one line at the end counts all; `make help` names every target."""

import re
import shlex
import shutil
import subprocess
import sys
import threading
from dataclasses import replace

import psutil
import pytest

from run_suites import INTERRUPTED, SILENCE_S_MAX, Ended, Runner, choose_files, complete, list_named
from support.fake_nsqd import eventually
from support.suites import ROOT, SUITES, divide, guards_messages, list_files
from unsteady import describe, run_rounds


def test_every_file_is_in_one_suite():
    files = list_files()
    divided = [path for paths in divide(files).values() for path in paths]
    assert sorted(divided) == files
    assert all((ROOT / place).exists() for places in SUITES.values() for place in places)
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
def make_runner(tmp_path, monkeypatch):
    """Of files with these texts: each is a suite."""
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")  # they only take time here

    def make(*arguments, **texts):
        for name, text in texts.items():
            (tmp_path / f"test_{name}.py").write_text(text)
        suites = {name: [f"test_{name}.py"] for name in texts}
        return Runner(list(arguments), tmp_path, tmp_path / "logs"), suites

    return make


@pytest.fixture
def run(make_runner):
    """Run such files, look at what failed once more, and return the runner."""

    def run_texts(*arguments, **texts):
        runner, suites = make_runner(*arguments, **texts)
        runner.run_beside(suites, 2)
        runner.look_again()
        return runner

    return run_texts


@pytest.mark.soak
def test_suites_beside_each_other(run, capsys):
    runner = run(
        good="def test_a(): pass\ndef test_b(): pass\n",
        bad="def test_c(): assert 1 == 2\n",
        skipped="import pytest\npytestmark = pytest.mark.skip\ndef test_d(): pass\n",
        broken="import no_such_module\n",
    )
    assert runner.sum_up() == "1 failed, 2 passed, 1 skipped, 1 error"
    assert (runner.status, runner.unsteady) == (1, [])
    said = capsys.readouterr().out
    assert re.search(r"^good +2 passed in \d+s$", said, re.MULTILINE)
    assert "def test_c(): assert 1 == 2" in said
    assert "No module named 'no_such_module'" in said
    assert "def test_a()" not in said


# Fails, and leaves something behind that lets it pass the next time.
AT_FIRST = """
import pathlib, pytest
def fail_once(name):
    path = pathlib.Path(f"{{__file__}} {{name}}")
    if not path.exists():
        path.touch()
        raise AssertionError(name)
@pytest.fixture
def teardown():
    yield
    fail_once("teardown")
def test_teardown(teardown): pass
@pytest.mark.parametrize("one", range({count}))
def test_body(one): fail_once(one)
"""


def test_what_passes_in_the_second_look_is_unsteady(run):
    runner = run(bad=AT_FIRST.format(count=2), good="def test_a(): pass\n")
    assert runner.unsteady == [
        "test_bad.py::test_body[0]",
        "test_bad.py::test_body[1]",
        "test_bad.py::test_teardown",
    ]
    assert (runner.status, runner.sum_up()) == (0, "5 passed")


def test_more_than_three_unsteady_ones_are_red(run):
    runner = run(bad=AT_FIRST.format(count=3))
    assert (runner.status, len(runner.unsteady)) == (1, 4)


def test_what_fails_twice_or_guards_messages_is_red(run, monkeypatch):
    once = AT_FIRST.format(count=1)
    runner = run(
        bad=once, worse="def test_x(): assert 0\n", guarded=once.replace("test_", "test_kill_")
    )
    assert runner.unsteady == ["test_bad.py::test_body[0]", "test_bad.py::test_teardown"]
    assert (runner.status, runner.sum_up()) == (1, "2 failed, 4 passed, 1 error")
    guarded = [f"tests/{one}/test_x.py::test_x" for one in ("compat", "durability", "ext", "fuzz")]
    assert all(map(guards_messages, [*guarded, "tests/spark/test_kills.py::test_x"]))
    assert not guards_messages("tests/client/test_x.py::test_x")
    monkeypatch.setenv("NSQFAST_SANITIZE", "1")
    assert guards_messages("tests/client/test_x.py::test_x")


def test_a_suite_that_hangs_says_where_and_the_others_go_on(make_runner, tmp_path, capsys):
    runner, suites = make_runner(
        hangs="import threading\n"
        "def test_a():\n"
        "    open('begun', 'w').close()\n"
        "    threading.Event().wait()\n",
        good="def test_b(): pass\n",
    )

    def lose_patience():
        eventually((tmp_path / "begun").exists)
        runner.silence_s_max = 0
        eventually(lambda: runner.ended)
        runner.silence_s_max = SILENCE_S_MAX

    thread = threading.Thread(target=lose_patience)
    thread.start()
    runner.run_beside(suites, 1)
    thread.join()
    assert [(one.name, one.status) for one in runner.ended] == [("hangs", -6), ("good", 0)]
    assert runner.status == -6
    said = capsys.readouterr().out
    assert re.search(r'File ".*test_hangs.py", line 4 in test_a', said)
    assert re.search(r"^hangs +ended with -6", said, re.MULTILINE)


@pytest.mark.soak
def test_nothing_chosen_is_no_failure_where_others_have_tests(run):
    runner = run("-k", "test_a", good="def test_a(): pass\n", none="def test_b(): pass\n")
    assert (runner.status, runner.sum_up()) == (0, "1 passed, 1 deselected")


@pytest.mark.parametrize(
    "arguments",
    [
        ["tests/no_such_file.py"],
        ["tests/test_logs.py::test_none"],
        ["tests/test_logs.py", "-k", "none"],
    ],
)
def test_no_test_matches(arguments):
    command = [sys.executable, "tests/run_suites.py", *arguments]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 5
    assert done.stdout.splitlines()[-1] == f"nsqfast: no test matches {shlex.join(arguments)}"


def test_a_crash_is_said(run, capsys):
    runner = run(dead="import os\ndef test_a(): os._exit(9)\n")
    assert (runner.status, runner.sum_up()) == (9, "no tests ran")
    assert "ended with 9" in capsys.readouterr().out


def test_the_first_failure_is_the_last_suite(make_runner):
    texts = {"bad": "def test_c(): assert 0\n", "good": "def test_a(): pass\n"}
    runner, suites = make_runner("-x", **texts)
    runner.run_beside(suites, 1)
    runner.look_again()
    assert [one.name for one in runner.ended] == ["bad"]


def is_gone(pid):
    try:
        return psutil.Process(pid).status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


def test_an_interrupt_ends_all(make_runner, tmp_path):
    """The suite, and a program that its test has started."""
    runner, suites = make_runner(
        hangs="import subprocess\n"
        "def test_a():\n"
        "    with subprocess.Popen(['sleep', '1000']) as one:\n"
        "        open('begun', 'w').write(str(one.pid))\n"
        "        one.wait()\n",
        later="def test_a(): pass\n",
    )
    begun = tmp_path / "begun"

    def interrupt():
        eventually(lambda: begun.exists() and begun.read_text())
        runner.interrupt()

    thread = threading.Thread(target=interrupt)
    thread.start()
    runner.run_beside(suites, 1)
    thread.join()
    assert [(one.name, one.status) for one in runner.ended] == [("hangs", INTERRUPTED)]
    assert runner.is_interrupted
    eventually(lambda: is_gone(int(begun.read_text())))


def test_rounds_name_what_failed_and_its_seeds(make_runner, tmp_path):
    runner, suites = make_runner(
        bad="import os\n"
        "def test_a(): assert os.environ['NSQFAST_SEED'] == '1'\n"
        "def test_b(): assert 0\n"
    )
    rounds = [replace(runner, seed=seed, logs=tmp_path / seed, ended=[]) for seed in "12"]
    assert len(run_rounds(rounds, suites)) == 2
    assert describe(rounds) == [
        "2x test_bad.py::test_b (seeds 1, 2)",
        "1x test_bad.py::test_a (seeds 2)",
    ]


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
