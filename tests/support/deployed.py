"""What deployment files say: the commands in them, and whether a daemon takes these."""

from __future__ import annotations

import re
from importlib import import_module
from typing import TYPE_CHECKING, Any

from nsqfast.dev.manual import list_settings
from nsqfast.program.command_line import split_flags
from nsqfast.tools.completion.programs import DAEMONS
from support.server import ROOT

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

FOLDER = ROOT / "deploy"


def defaults_of(program: str) -> dict[str, Any]:
    (settings,) = list_settings(program)
    return settings.defaults


def read_command(words: Sequence[str]) -> tuple[str, dict[str, Any]]:
    """The program and its settings, by attribute; an assertion for a flag that it does not have."""
    program, *rest = words
    program = program.rpartition("/")[2]
    assert program in DAEMONS
    (settings,) = list_settings(program)
    given, left = split_flags(settings.options, list(rest))
    assert not left, f"not flags: {left}"
    # Some options are checked by their class.
    known = {key: value for key, value in given.items() if key != "config"}
    import_module(DAEMONS[program]).Options(**known)
    return program, {**settings.defaults, **given}


def ports_of(settings: dict[str, Any]) -> set[int]:
    """The ports that it listens on without TLS."""
    texts = [settings.get("tcp_address", ""), settings.get("http_address", "")]
    return {int(text.rpartition(":")[2]) for text in texts if text}


def read_unit(text: str) -> Iterator[tuple[str, str]]:
    """Key and value of each line of a systemd unit."""
    for line in text.splitlines():
        if found := re.match(r"(\w+)=(.*)", line):
            yield found[1], found[2]
