"""Completion files: made from the options, and understood by real shells."""

import os
import pty
import shutil
import subprocess
import sys
import tomllib

import pytest

from nsqfast.tools.completion import main
from nsqfast.tools.completion.programs import programs
from support.server import ROOT
from support.tools import read_terminal

FILES = {"bash": ROOT / "completions" / "nsqfast.bash", "zsh": ROOT / "completions" / "_nsqfast"}
# What takes words of its own and no flags.
PLAIN = {"nsqfast-completion"}

# Completes the words behind `--` as bash would if Tab were pressed behind the last one.
ASK_BASH = """
source "$1"; shift 2
COMP_WORDS=("$@") COMP_CWORD=$(($# - 1))
compopt() { :; }
previous=${COMP_WORDS[COMP_CWORD - 1]}
_nsqfast_complete "$1" "${COMP_WORDS[COMP_CWORD]}" "$previous"
printf '%s\\n' "${COMPREPLY[@]}"
"""


@pytest.mark.parametrize(
    ("shell", "script"), [("bash", main.complete_bash), ("zsh", main.complete_zsh)]
)
def test_the_files_are_those_of_todays_options(shell, script):
    assert FILES[shell].read_text(encoding="utf-8") == script(programs()), "run `make completions`"


def test_every_command_is_completed():
    with (ROOT / "pyproject.toml").open("rb") as file:
        installed = set(tomllib.load(file)["project"]["scripts"])
    assert {program.name for program in programs()} == installed - PLAIN


def complete(*words, cwd=None):
    asked = ["bash", "--norc", "-c", ASK_BASH, "bash", FILES["bash"], "--", *words]
    done = subprocess.run(asked, capture_output=True, text=True, check=True, cwd=cwd)
    assert done.stderr == ""
    return done.stdout.split()


@pytest.mark.parametrize(
    ("words", "wanted"),
    [
        (["nsqfast-nsqd", "--tls-min"], ["--tls-min-version="]),
        (["/usr/bin/nsqfast-nsqd", "--tls-min"], ["--tls-min-version="]),
        (["nsqfast-nsqd", "--log-level", "w"], ["warn"]),
        (["nsqfast-nsqd", "--log-level", "=", "w"], ["warn"]),
        (["nsqfast-nsqd", "-log-level", "=", "w"], ["warn"]),
        (["nsqfast-nsqd", "--log-level", "="], ["debug", "info", "warn", "error", "fatal"]),
        (["nsqfast-nsqlookupd", "--ver"], ["--verbose", "--version"]),
        (["nsqfast-nsqlookupd", "--verbose", "--tcp"], ["--tcp-address="]),
        (["nsqfast-bench", "l"], ["latency"]),
        (["nsqfast-nsqd", "--nothing"], []),
    ],
)
def test_bash(words, wanted):
    assert complete(*words) == wanted


def test_bash_offers_files_and_folders(tmp_path):
    (tmp_path / "data").mkdir()
    (tmp_path / "date.toml").touch()
    assert complete("nsqfast-nsqd", "--data-path", "=", "da", cwd=tmp_path) == ["data"]
    assert set(complete("nsqfast-nsqd", "--config", "dat", cwd=tmp_path)) == {"data", "date.toml"}


@pytest.mark.skipif(shutil.which("zsh") is None, reason="zsh is missing: apt install zsh")
@pytest.mark.parametrize(
    ("typed", "wanted"),
    [
        ("nsqfast-nsqd --tls-min", "--tls-min-version="),
        ("nsqfast-nsqd --log-level=w", "--log-level=warn"),
        ("nsqfast-bench lat", "nsqfast-bench latency"),
    ],
)
def test_zsh(typed, wanted, tmp_path):
    (tmp_path / ".zshrc").write_text(
        f"fpath=({FILES['zsh'].parent} $fpath)\nautoload -U compinit\ncompinit -u -D\nPS1='ready> '\n",
        encoding="utf-8",
    )
    child, terminal = pty.fork()
    if child == 0:
        os.execvpe("zsh", ["zsh", "-i"], os.environ | {"ZDOTDIR": str(tmp_path), "TERM": "dumb"})
    try:
        read_terminal(terminal, b"ready> ")
        os.write(terminal, typed.encode() + b"\t")
        assert wanted.encode() in read_terminal(terminal, wanted.encode())
    finally:
        os.kill(child, 9)
        os.waitpid(child, 0)
        os.close(terminal)


def test_another_word_is_an_error():
    command = [sys.executable, "-m", "nsqfast.tools.completion.main"]
    assert subprocess.run([*command, "fish"], check=False, capture_output=True).returncode == 2
    assert subprocess.run([*command, "--help"], check=False, capture_output=True).returncode == 0
