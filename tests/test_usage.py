"""The help text of every program: whole, by group, no wider than asked, and on standard output."""

import importlib

import pytest

from nsqfast.command_line import flags_or_help
from nsqfast.nsqd.options import ABOUT, Options, parse
from nsqfast.options import INT, STRING, FlagError, Option, by_group, declared, defaults, option
from nsqfast.spark_jobs.main import JOBS
from nsqfast.tools.completion.programs import MODULES
from nsqfast.usage import TEXT_COLUMN, WIDTH_MAX, command_name, usage

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


def test_groups_keep_the_order_of_declaration():
    items = [Option(name, name, name, INT, name, name[0]) for name in ("b1", "a1", "b2", "a2")]
    found = by_group(items)
    assert [(title, [item.flag for item in group]) for title, group in found.items()] == [
        ("b", ["b1", "b2"]),
        ("a", ["a1", "a2"]),
    ]


def test_the_layout(monkeypatch):
    monkeypatch.setenv("COLUMNS", "70")
    items = [
        Option("port", "port", "port", INT, "port to listen on", "Addresses"),
        Option("a_very_long_flag_of_all", "a-very-long-flag-of-all", "other_key", STRING, "a word", "Words"),
        Option("config", "config", "", STRING, "file", "Words"),
    ]  # fmt: skip
    text = usage(items, {"port": 4150, "config": ""}, "nsq_tool", "Does something.")
    assert text.splitlines()[:13] == [
        "Usage: nsqfast-nsq-tool [flags]",
        "",
        "Does something.",
        "",
        "General:",
        "  --help                      print this text and exit",
        "",
        "Addresses:",
        "  --port int                  port to listen on (default 4150)",
        "",
        "Words:",
        "  --a-very-long-flag-of-all string",
        " " * TEXT_COLUMN + "a word (config key other_key)",
    ]


def test_a_wide_terminal_gets_no_wider_lines(monkeypatch):
    monkeypatch.setenv("COLUMNS", "400")
    lines = usage(declared(Options), defaults(Options), "nsqd", ABOUT).splitlines()
    assert max(map(len, lines)) <= WIDTH_MAX


@pytest.mark.parametrize("word", ["--help", "-help", "-h", "--h"])
def test_help_is_on_standard_output(word, capsys):
    with pytest.raises(SystemExit) as left:
        parse([word, "--nope"])
    assert left.value.code == 0
    printed = capsys.readouterr()
    assert printed.err == ""
    assert printed.out.startswith("Usage: nsqfast-nsqd [flags]\n")


def test_an_error_says_where_the_help_is():
    with pytest.raises(
        FlagError, match=r"^flag needs an argument: -topic\nsee nsqfast-nsq-tail --help$"
    ):
        flags_or_help(
            [Option("topic", "topic", "", STRING, "t", "g")], {}, ["--topic"], "nsq_tail", ""
        )


def test_names_of_commands():
    assert command_name("nsqd") == "nsqfast-nsqd"
    assert command_name("nsq_to_file") == "nsqfast-nsq-to-file"
    assert command_name("nsqfast-spark ingest") == "nsqfast-spark ingest"


def test_an_option_without_a_group_belongs_to_the_one_before():
    from dataclasses import dataclass

    @dataclass
    class Base:
        a: int = option(INT, 1, "a", group="First")
        b: int = option(INT, 1, "b")
        c: int = option(INT, 1, "c", group="Second")

    @dataclass
    class More(Base):
        b: int = option(INT, 2, "another b")
        d: int = option(INT, 1, "d", group="First")

    assert [(item.flag, item.group) for item in declared(More)] == [
        ("a", "First"),
        ("b", "First"),
        ("c", "Second"),
        ("d", "First"),
    ]
