"""`make test`: every test is in one suite, and one line at the end counts all."""

import re
import shlex
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import psutil
import pytest

from run_suites import INTERRUPTED, SILENCE_S_MAX, Runner, choose_files, complete, list_named
from support.commands import run_command
from support.suites import ROOT, SUITES, divide, guards_messages, list_files
from support.waiting import eventually
from unsteady import describe, run_rounds


@pytest.fixture(autouse=True)
def is_release_build(monkeypatch):
    """Where checks are compiled in, `make debug-test`, no failure is repeated: here it is as in `make test`."""
    for name in ("NSQFAST_DEBUG", "NSQFAST_SANITIZE"):
        monkeypatch.delenv(name, raising=False)


def test_every_file_is_in_the_suite_that_names_it_most_closely():
    files = list_files()
    divided = divide(files)
    assert sorted(path for paths in divided.values() for path in paths) == files
    assert all((ROOT / place).exists() for places in SUITES.values() for place in places)
    assert divided.keys() >= SUITES.keys()
    assert "tests/client/test_examples.py" in divided["examples"]
    assert "tests/client/test_link.py" in divided["client"]
    assert "tests/test_logs.py" in divided["others"]


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
def run(make_runner, tmp_path):
    """Run such files, and look at what failed once more; or `act` once the first has written the file `begun`."""
    begun = tmp_path / "begun"

    def run_texts(*arguments, act=None, **texts):
        runner, suites = make_runner(*arguments, **texts)
        if act is None:
            runner.run_beside(suites, 1 if arguments else 2)
            runner.look_again()
            return runner
        with ThreadPoolExecutor(1) as pool:
            waiting = pool.submit(eventually, lambda: begun.exists() and begun.read_text())
            waiting.add_done_callback(lambda _: act(runner))
            runner.run_beside(suites, 1)
        return runner

    return run_texts


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


def test_suites_beside_each_other(run, capsys):
    """What fails twice, breaks, crashes or guards messages is red."""
    once = AT_FIRST.format(count=1)
    runner = run(
        good="def test_a(): pass\n",
        bad="def test_c(): assert 1 == 2\n",
        skipped="import pytest\npytestmark = pytest.mark.skip\ndef test_d(): pass\n",
        broken="import no_such_module\n",
        dead="import os\ndef test_a(): os._exit(9)\n",
        unsteady=once,
        guarded=once.replace("test_", "test_kill_"),
    )
    assert runner.unsteady == ["test_unsteady.py::test_body[0]", "test_unsteady.py::test_teardown"]
    assert runner.sum_up() == "2 failed, 5 passed, 1 skipped, 2 errors"
    assert runner.status == 1
    said = capsys.readouterr().out
    assert re.search(r"^good +1 passed in \d+s$", said, re.MULTILINE)
    assert re.search(r"^dead +ended with 9", said, re.MULTILINE)
    assert "def test_c(): assert 1 == 2" in said
    assert "No module named 'no_such_module'" in said
    assert "def test_a()" not in said


def test_the_files_of_a_suite_are_its_own_and_go_with_it(run, tmp_path):
    text = "import pathlib\ndef test_a(tmp_path): pathlib.Path(f'{__file__}.place').write_text(str(tmp_path))\n"
    run(one=text, other=text)
    places = [Path(path.read_text()) for path in tmp_path.glob("*.place")]
    assert len({place.parent for place in places}) == 2
    assert not any(place.exists() for place in places)


def test_what_guards_messages(monkeypatch):
    guarded = [f"tests/{one}/test_x.py::test_x" for one in ("compat", "durability", "ext", "fuzz")]
    assert all(map(guards_messages, [*guarded, "tests/spark/test_kills.py::test_x"]))
    assert not guards_messages("tests/client/test_x.py::test_x")
    monkeypatch.setenv("NSQFAST_SANITIZE", "1")
    assert guards_messages("tests/client/test_x.py::test_x")


@pytest.mark.parametrize(("count", "status"), [(2, 0), (3, 1)])
def test_more_than_three_unsteady_ones_are_red(run, count, status):
    """A suite of which nothing is chosen is no failure."""
    runner = run(bad=AT_FIRST.format(count=count), none="")
    assert runner.unsteady == [
        *(f"test_bad.py::test_body[{one}]" for one in range(count)),
        "test_bad.py::test_teardown",
    ]
    assert (runner.status, runner.sum_up()) == (status, f"{count + 2} passed")


def test_the_first_failure_is_the_last_suite(run):
    runner = run("-x", bad="def test_c(): assert 0\n", good="def test_a(): pass\n")
    assert [one.name for one in runner.ended] == ["bad"]


def test_a_suite_that_hangs_says_where_and_the_others_go_on(run, capsys):
    def lose_patience(runner):
        runner.silence_s_max = 0
        eventually(lambda: runner.ended)
        runner.silence_s_max = SILENCE_S_MAX

    runner = run(
        act=lose_patience,
        hangs="import pathlib, threading\n"
        "def test_a():\n"
        "    pathlib.Path('begun').write_text('yes')\n"
        "    threading.Event().wait()\n",
        good="def test_b(): pass\n",
    )
    assert [(one.name, one.status) for one in runner.ended] == [("hangs", -6), ("good", 0)]
    assert runner.status == -6
    said = capsys.readouterr().out
    assert re.search(r'File ".*test_hangs.py", line 4 in test_a', said)
    assert re.search(r"^hangs +ended with -6", said, re.MULTILINE)


def is_gone(pid):
    try:
        return psutil.Process(pid).status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


def test_an_interrupt_ends_all(run, tmp_path):
    """The suite, and a program that its test has started."""
    runner = run(
        act=Runner.interrupt,
        hangs="import subprocess\n"
        "def test_a():\n"
        "    with subprocess.Popen(['sleep', '1000']) as one:\n"
        "        open('begun', 'w').write(str(one.pid))\n"
        "        one.wait()\n",
        later="def test_a(): pass\n",
    )
    assert [(one.name, one.status) for one in runner.ended] == [("hangs", INTERRUPTED)]
    assert runner.is_interrupted
    eventually(lambda: is_gone(int((tmp_path / "begun").read_text())))


@pytest.mark.parametrize(
    "arguments",
    [
        ["tests/no_such_file.py"],
        ["tests/test_logs.py::test_none"],
        ["tests/test_logs.py", "-k", "none"],
    ],
)
def test_no_test_matches(arguments):
    done = run_command(sys.executable, "tests/run_suites.py", *arguments, cwd=ROOT)
    assert done.returncode == 5
    assert done.stdout.splitlines()[-1] == f"nsqfast: no test matches {shlex.join(arguments)}"


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
