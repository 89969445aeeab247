"""Man pages: those of today's options, for every program, without a warning, and with examples that are accepted."""

import shlex
import shutil
import subprocess
import sys
import tomllib

import pytest

from nsqfast.dev.manual import compose_files, list_settings
from nsqfast.dev.manual_facts import FACTS
from nsqfast.program.command_line import split_flags
from support.server import ROOT

FOLDER = ROOT / "deploy" / "man"
PAGES = sorted(FACTS)
WITH_FLAGS = [name for name in PAGES if list_settings(name)]
TEXTS = compose_files("man")


def test_there_is_one_for_every_program():
    with (ROOT / "pyproject.toml").open("rb") as file:
        assert set(tomllib.load(file)["project"]["scripts"]) == set(PAGES)


def test_the_files_are_those_of_todays_options():
    found = {path.name: path.read_text(encoding="utf-8") for path in FOLDER.iterdir()}
    assert found == TEXTS, "run `make man`"


@pytest.mark.skipif(shutil.which("mandoc") is None, reason="mandoc is missing: apt install mandoc")
def test_mandoc_complains_about_nothing():
    command = ["mandoc", "-Tlint", "-Wwarning", *sorted(FOLDER.glob("*.1"))]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.stdout, done.returncode) == ("", 0)


@pytest.mark.parametrize("name", WITH_FLAGS)
def test_the_flags_of_the_examples_exist(name):
    jobs = {settings.job: settings for settings in list_settings(name)}
    lines = "\n".join(FACTS[name].examples.values()).replace("\\\n", "").splitlines()
    for line in [line for line in lines if line.startswith(name)]:
        words = shlex.split(line)
        words = words[: words.index("<")] if "<" in words else words
        assert words.pop(0) == name
        settings = jobs[words.pop(0) if name == "nsqfast-spark" else ""]
        words = (
            words[1:] if name in {"nsqfast-bench", "nsqfast-commitlog", "nsqfast-run"} else words
        )
        _, rest = split_flags(settings.options, words)
        assert all(not word.startswith("-") for word in rest)


def test_a_host_is_in_no_page(monkeypatch):
    monkeypatch.setattr("socket.gethostname", lambda: "some-host-of-mine")
    assert compose_files("man") == TEXTS
    assert "some-host-of-mine" not in "".join(TEXTS.values())


def test_main_writes_them(tmp_path):
    command = [sys.executable, "-m", "nsqfast.dev.manual"]
    subprocess.run([*command, "man", tmp_path / "man"], check=True)
    assert {path.name for path in (tmp_path / "man").iterdir()} == set(TEXTS)
    assert subprocess.run([*command, "fish", tmp_path], check=False).returncode == 2
