"""The help text of a program: its options by group, each with its default.

Usage: nsqfast-nsqd [flags]

Disk:
  --data-path string      folder of the queues and of nsqd.dat; empty = the current folder
  --sync-every int        messages of a queue between two fsyncs (default 2500)
"""

import textwrap
from collections.abc import Iterable
from typing import Any

from nsqfast.program.options import BOOL, Option, by_group

WIDTH_MIN, WIDTH_MAX = 60, 100
# Where the texts begin; a longer flag has a line of its own.
TEXT_COLUMN = 30

HELP = Option("help", "help", "", BOOL, "print this text and exit", "General")
SYNTAX = (
    "Flags begin with one hyphen or two; --name value and --name=value are the same, but a switch "
    "takes its value only after an equals sign, as in --name=false. A repeatable flag adds to a list. "
    "Durations are written as 250ms, 90s or 1h30m."
)
KEYS = (
    "In the config file a setting has the name of its flag with underscores, unless this text says "
    "otherwise; a flag on the command line overrides the file."
)


def command_name(program: str) -> str:
    """What is typed to start a program of this NSQ name: nsqfast-nsq-to-file for nsq_to_file."""
    return program if program.startswith("nsqfast") else "nsqfast-" + program.replace("_", "-")


def usage(options: Iterable[Option], defaults: dict[str, Any], program: str, about: str) -> str:
    """The whole help text; `about` is a sentence on what the program does."""
    import shutil  # late: no start needs it

    width = min(max(shutil.get_terminal_size().columns, WIDTH_MIN), WIDTH_MAX)
    groups = by_group([HELP, *options])
    has_config = any(item.flag == "config" for items in groups.values() for item in items)
    lines = [f"Usage: {command_name(program)} [flags]"]
    if about:
        lines += ["", *textwrap.wrap(about, width)]
    for title, items in groups.items():
        lines += ["", f"{title}:"]
        for item in items:
            lines += _entry(item, describe(item, defaults, has_config), width)
    for text in (SYNTAX, KEYS) if has_config else (SYNTAX,):
        lines += ["", *textwrap.wrap(text, width, break_on_hyphens=False)]
    return "\n".join(lines)


def _entry(item: Option, text: str, width: int) -> list[str]:
    head = f"  --{item.flag} {item.kind.hint}".rstrip()
    indent = " " * TEXT_COLUMN
    wrapped = textwrap.wrap(
        text,
        width,
        initial_indent=indent,
        subsequent_indent=indent,
        break_long_words=False,
        break_on_hyphens=False,
    )
    if len(head) > TEXT_COLUMN - 2:
        return [head, *wrapped]
    return [head.ljust(TEXT_COLUMN) + wrapped[0].lstrip(), *wrapped[1:]]


def describe(item: Option, defaults: dict[str, Any], has_config: bool) -> str:
    """What an option does, with its default and its key in the config file in brackets."""
    notes = []
    if default := defaults.get(item.attribute):
        notes.append(f"default {item.kind.show(default)}")
    if has_config and item.key and item.key != item.flag.replace("-", "_"):
        notes.append(f"config key {item.key}")
    return f"{item.help} ({'; '.join(notes)})" if notes else item.help
