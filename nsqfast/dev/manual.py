"""Writes man pages or sample config files into a folder, for `make man` and `make samples`.

python -m nsqfast.dev.manual man deploy/man
python -m nsqfast.dev.manual samples deploy/config
"""

import sys
import textwrap
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

from nsqfast.dev.manual_facts import FACTS, Facts
from nsqfast.dev.sample_config import compose_sample
from nsqfast.dev.settings import Settings, list_settings
from nsqfast.program.options import Option, by_group
from nsqfast.program.usage import KEYS, SYNTAX, describe
from nsqfast.tools.completion.programs import DAEMONS

DATE = "2026-11-24"  # of the last change to what is not made from the options
SAMPLES = "share/nsqfast/config"  # where the wheel puts them, see pyproject.toml
WIDTH = 78


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
    wrapped = textwrap.wrap(text, WIDTH, break_long_words=False, break_on_hyphens=False)
    return [_escape(line) for line in wrapped]


def _quote(text: str) -> str:
    return f'"{_escape(text)}"' if " " in text else _escape(text)


if __name__ == "__main__":
    sys.exit(main())
