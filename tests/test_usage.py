"""The help text of every program: whole, by group, no wider than asked, and on standard output."""

import importlib
import os
import subprocess
import sys

import pytest

from nsqfast.program.command_line import flags_or_help
from nsqfast.program.options import STRING, FlagError, Option, by_group, declared, defaults
from nsqfast.program.overview import PROGRAMS
from nsqfast.program.usage import usage
from nsqfast.spark_jobs.main import JOBS
from nsqfast.tools.completion.programs import MODULES

SETTINGS = [*MODULES.values(), *JOBS.values()]


def declared_in(module):
    return declared(importlib.import_module(module).Options)


@pytest.mark.parametrize("module", SETTINGS)
def test_every_option_has_a_group_and_a_text(module):
    for item in declared_in(module):
        assert item.group, item.flag
        assert item.help.strip() == item.help != "", item.flag
        assert not item.help.endswith("."), item.flag
        assert item.kind.is_list == ("repeatable" in item.help), item.flag


@pytest.mark.parametrize("module", SETTINGS)
def test_every_flag_is_in_the_help_once(module, monkeypatch):
    monkeypatch.setenv("COLUMNS", "72")
    cls = importlib.import_module(module).Options
    lines = usage(declared(cls), defaults(cls), "nsq_tool", "Does it.").splitlines()
    shown = [line.split()[0] for line in lines if line.startswith("  --")]
    assert sorted(shown) == sorted(["--help", *(f"--{item.flag}" for item in declared(cls))])
    titles = [line[:-1] for line in lines if line.endswith(":") and not line.startswith(" ")]
    assert titles == [
        "General",
        *(title for title in by_group(declared(cls)) if title != "General"),
    ]
    # Only a word that is longer than the room for it may stand out.
    for line in lines:
        assert len(line) <= 72 or " " not in line.strip()


def test_an_error_says_where_the_help_is():
    with pytest.raises(
        FlagError, match=r"^flag needs an argument: -topic\nsee nsqfast-nsq-tail --help$"
    ):
        flags_or_help(
            [Option("topic", "topic", "", STRING, "t", "g")], {}, ["--topic"], "nsq_tail", ""
        )


READ = [[each.command, "--help"] for each in PROGRAMS]
READ += [
    ["nsqd", "--version"],
    ["nsq-tail", "--version"],
    ["bench", "--version"],
    ["run", "--version"],
]
READ += [["bench", "pub", "--help"], ["spark", "ingest", "--help"], ["completion", "bash"]]


@pytest.mark.parametrize("words", [["--help"], ["--version"], *READ], ids=" ".join)
def test_nobody_has_to_read_it_to_the_end(words):
    """As `| head -1` leaves it: no traceback, neither when it is printed nor when the process ends."""
    reader, writer = os.pipe()
    os.close(reader)
    with open(writer, "wb") as closed:
        command = [sys.executable, "-m", "nsqfast", *words]
        done = subprocess.run(
            command, stdout=closed, stderr=subprocess.PIPE, timeout=60, check=False
        )
    assert (done.returncode, done.stderr) == (0, b"")
