"""Writes man pages or sample config files into a folder, for `make man` and `make samples`.

python -m nsqfast.dev.manual man deploy/man
python -m nsqfast.dev.manual samples deploy/config
"""

import dataclasses
import importlib
import json
import sys
import textwrap
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

from nsqfast.dev.manual_facts import FACTS, Facts
from nsqfast.program.options import Common, Option, by_group, declared, defaults, to_toml
from nsqfast.program.usage import KEYS, SYNTAX, describe
from nsqfast.tools.completion.programs import DAEMONS, JOBS, MODULES, WITHOUT_VERSION

# Defaults that come from the host: in words, and one that a file may show.
OF_HOST: dict[str, tuple[str, object]] = {
    "broadcast_address": ("the name of the host", "broker-1.example.com"),
    "node_id": ("a number made from the name of the host", 1),
}


@dataclass(frozen=True, slots=True)
class Settings:
    """The options of a program, or of one of its jobs."""

    about: str
    options: list[Option]
    defaults: dict[str, Any]
    job: str = ""

    @property
    def has_config(self) -> bool:
        """Whether there is --config."""
        return any(item.flag == "config" for item in self.options)


def list_settings(program: str) -> list[Settings]:
    """One for most programs, none for a program without flags, one for each job of nsqfast-spark."""
    if program in JOBS:
        return _list_settings_of_jobs(importlib.import_module(JOBS[program]).JOBS)
    if program not in MODULES:
        return []
    module = importlib.import_module(MODULES[program])
    common = declared(Common)
    if program not in DAEMONS:
        shared = [] if program in WITHOUT_VERSION else ["version"]
        common = [item for item in common if item.flag in shared]
    options = [*common, *declared(module.Options)]
    plain = {**defaults(Common), **defaults(module.Options)}
    return [Settings(getattr(module, "ABOUT", ""), _show_in_words(options), plain)]


def _list_settings_of_jobs(jobs: dict[str, str]) -> list[Settings]:
    abouts = importlib.import_module("nsqfast.spark_jobs.options").ABOUTS
    common = [item for item in declared(Common) if item.flag == "version"]
    found = []
    for job, name in jobs.items():
        cls = importlib.import_module(name).Options
        plain = {**defaults(Common), **defaults(cls)}
        found.append(Settings(abouts[job], [*common, *declared(cls)], plain, job))
    return found


def _show_in_words(options: Iterable[Option]) -> list[Option]:
    """The same options; of a default that comes from the host a description shows words instead."""

    def replace(item: Option) -> Option:
        words = OF_HOST[item.attribute][0]
        return dataclasses.replace(item, kind=dataclasses.replace(item.kind, show=lambda _: words))

    return [replace(item) if item.attribute in OF_HOST else item for item in options]


# A daemon's config file for the systemd units: every setting with its help and its default, commented out, except that
# nobody reaches it from elsewhere and that connections have a limit.


SAMPLE_WIDTH = 100
EVERYWHERE, HERE = "0.0.0.0:", "127.0.0.1:"
CONNECTIONS_MAX = 10_000


def compose_sample(program: str) -> str:
    """The text of a daemon's file."""
    (settings,) = list_settings(program)
    head = (
        f"Settings of {program}, for --config. A line that begins with # and a name is a setting with its default: "
        "remove the # to change it. The lines without # let only this machine reach the daemon and limit its "
        f"connections. A flag on the command line overrides this file. See {program}(1)."
    )
    lines = _comment(head)
    for title, items in by_group(settings.options).items():
        items = [item for item in items if item.key]  # noqa: PLW2901 - those that a file can set
        if items:
            lines += ["", "", f"# ---- {title}"]
        for item in items:
            value = settings.defaults[item.attribute]
            closed = _close(item, value)
            if closed is None:
                lines += [
                    "",
                    *_comment(_help(item)),
                    f"#{item.key} = {_value(item, settings.defaults)}",
                ]
            else:
                text = f"{item.help} (default {json.dumps(value)})"
                lines += ["", *_comment(text), f"{item.key} = {json.dumps(closed)}"]
    return "\n".join(lines) + "\n"


def _close(item: Option, value: object) -> str | int | None:
    """What stands there instead of an address on every interface, or of any number of connections; else None."""
    if isinstance(value, str) and value.startswith(EVERYWHERE):
        return value.replace(EVERYWHERE, HERE)
    return CONNECTIONS_MAX if item.key == "max_connections" and value == 0 else None


def _comment(text: str) -> list[str]:
    return textwrap.wrap(
        text,
        SAMPLE_WIDTH,
        initial_indent="# ",
        subsequent_indent="# ",
        break_long_words=False,
        break_on_hyphens=False,
    )


def _help(item: Option) -> str:
    words = OF_HOST.get(item.attribute)
    return f"{item.help} (default {words[0]})" if words else item.help


def _value(item: Option, defaults: dict[str, Any]) -> str:
    """The default as TOML writes it."""
    if item.attribute in OF_HOST:
        return json.dumps(OF_HOST[item.attribute][1])
    return to_toml(item.kind, defaults[item.attribute])


DATE = "2026-11-24"  # of the last change to what is not made from the options
SAMPLES = "share/nsqfast/config"  # where the wheel puts them, see pyproject.toml
PAGE_WIDTH = 78


def main(argv: list[str] | None = None) -> int:
    """Return the exit status."""
    words = sys.argv[1:] if argv is None else argv
    if len(words) != 2 or words[0] not in {"man", "samples"}:
        sys.stderr.write(f"two words are needed: man or samples, and a folder\n{__doc__ or ''}")
        return 2
    kind, folder = words[0], Path(words[1])
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in compose_files(kind).items():
        (folder / name).write_text(text, encoding="utf-8")
    return 0


def compose_files(kind: str) -> dict[str, str]:
    """The text of every file, by name."""
    if kind == "man":
        return {f"{name}.1": compose_page(name) for name in FACTS}
    return {f"{name.removeprefix('nsqfast-')}.toml": compose_sample(name) for name in DAEMONS}


def compose_page(program: str) -> str:
    """The man page of a program, in roff."""
    facts = FACTS[program]
    settings = list_settings(program)
    lines = [
        f'.TH "{_escape(program.upper())}" "1" "{DATE}" "nsqfast" "NSQ"',
        *_section("NAME"),
        f"{_escape(program)} \\- {facts.name}",
        *_section("SYNOPSIS"),
        f"{_bold(program)} {_escape(facts.words)}",
        *_description(facts, settings),
        *_options(settings),
        *_config(program, settings),
        *_lists(facts),
        *_examples(facts),
        *_see_also(facts),
    ]
    # A section begins with a paragraph anyway.
    shown = [
        line
        for before, line in pairwise(["", *lines])
        if not (line == ".PP" and before[:3] == ".SH")
    ]
    return "\n".join(shown) + "\n"


def _description(facts: Facts, settings: list[Settings]) -> Iterator[str]:
    yield from _section("DESCRIPTION")
    abouts = [each.about for each in settings if each.about and not each.job]
    for text in (*abouts, *facts.text.split("\n\n")):
        yield from _paragraph(text)


def _options(settings: list[Settings]) -> Iterator[str]:
    for each in settings:
        yield from _section(f"options of {each.job}" if each.job else "options")
        yield from _paragraph(each.about if each.job else SYNTAX)
        for title, items in by_group(each.options).items():
            yield from _subsection(title)
            for item in items:
                text = describe(item, each.defaults, each.has_config)
                yield from _entry(_tag(item), text)


def _tag(item: Option) -> str:
    tag = _bold(f"--{item.flag}")
    return f"{tag}={_italic(item.kind.hint)}" if item.kind.hint else tag


def _config(program: str, settings: list[Settings]) -> Iterator[str]:
    if any(each.has_config for each in settings):
        yield from _section("CONFIGURATION FILE")
        yield from _paragraph(
            f"The file of --config is TOML. {KEYS} A repeatable flag is a list there, and a duration a text. A sample "
            f"with every setting is {SAMPLES}/{program.removeprefix('nsqfast-')}.toml below the prefix of the install."
        )


def _lists(facts: Facts) -> Iterator[str]:
    statuses = {str(status): text for status, text in facts.statuses.items()}
    for title, entries in (
        ("SIGNALS", facts.signals),
        ("EXIT STATUS", statuses),
        ("FILES", facts.files),
    ):
        if entries:
            yield from _section(title)
        for tag, text in entries.items():
            yield from _entry(_bold(tag), text)


def _examples(facts: Facts) -> Iterator[str]:
    yield from _section("EXAMPLES")
    for title, command in facts.examples.items():
        yield from _paragraph(f"{title}:")
        yield from _example(command)


def _see_also(facts: Facts) -> Iterator[str]:
    yield from _section("SEE ALSO")
    *others, last = facts.see_also
    for name in others:
        yield f".BR {_escape(name)} (1),"
    yield f".BR {_escape(last)} (1)"


# The few requests of roff that a man page needs; see man(7) and groff_man(7).


def _escape(text: str) -> str:
    """Make text show as it is: a hyphen can be copied as a minus, and no line is taken for a request."""
    text = text.replace("\\", "\\e").replace("-", "\\-")
    return f"\\&{text}" if text[:1] in {".", "'"} else text


def _section(name: str) -> list[str]:
    return [f".SH {_quote(name.upper())}"]


def _subsection(name: str) -> list[str]:
    return [f".SS {_quote(name)}"]


def _paragraph(text: str) -> list[str]:
    return [".PP", *_lines(text)]


def _entry(tag: str, text: str) -> list[str]:
    """One of a list: a tag, which is roff already, and its explanation."""
    return [".TP", tag, *_lines(text)]


def _example(command: str) -> list[str]:
    """Lines that are shown as they are, indented."""
    shown = [_escape(line) for line in command.splitlines()]
    return [".PP", ".RS 4", ".nf", *shown, ".fi", ".RE"]


def _bold(text: str) -> str:
    return f"\\fB{_escape(text)}\\fR"


def _italic(text: str) -> str:
    return f"\\fI{_escape(text)}\\fR"


def _lines(text: str) -> list[str]:
    wrapped = textwrap.wrap(text, PAGE_WIDTH, break_long_words=False, break_on_hyphens=False)
    return [_escape(line) for line in wrapped]


def _quote(text: str) -> str:
    return f'"{_escape(text)}"' if " " in text else _escape(text)


if __name__ == "__main__":
    sys.exit(main())
